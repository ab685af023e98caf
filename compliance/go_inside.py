"""One package of the Go client's tests, on a machine whose loopback has the service's names and ports.

Two brokers, Standard and Premium, on addresses of their own, and an endpoint that hands out JSON web tokens as the
cloud's managed identity does. Nothing of the client or of its tests is changed.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

TWINBUS = Path(sys.executable).with_name("twinbus")
READY_TIMEOUT_S = 60
# Namespace, its address and tier. Not 127.0.0.1: a test wants nobody there.
SERVED = (("standard", "127.0.0.2", "Standard"), ("premium", "127.0.0.3", "Premium"))
POLICIES = {"NoManage": ["Listen", "Send"], "SendOnly": ["Send"], "ListenOnly": ["Listen"]}
ISSUER = "https://issuer"
AUDIENCE = "https://servicebus.azure.net"
# What the cloud's template for these tests creates.
CONFIGURATION = """
host = "{address}"
tls_names = ["{name}.servicebus.windows.net"]

[namespaces.{name}]
sku = "{sku}"
amqps_port = 5671
admin_port = 443

[namespaces.{name}.jwt]
issuer = "{issuer}"
public_keys = ["issuer.pem"]

[namespaces.{name}.queues.testQueue]
lock_duration = "5m"

[namespaces.{name}.queues.testQueueWithSessions]
lock_duration = "5m"
requires_session = true
"""


class Issuer:
    """Signs tokens, and hands them out over HTTP."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(65537, 2048)

    def public_key(self) -> bytes:
        form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        return self._key.public_key().public_bytes(*form)

    def answer(self) -> bytes:
        end_s = int(time.time()) + 86_400
        claims = {"iss": ISSUER, "aud": AUDIENCE, "exp": end_s, "roles": ["Azure Service Bus Data Owner"]}
        parts = [json.dumps(part).encode() for part in ({"alg": "RS256", "typ": "JWT"}, claims)]
        signed = b".".join(map(_base64, parts))
        token = signed + b"." + _base64(self._key.sign(signed, padding.PKCS1v15(), hashes.SHA256()))
        told = {"access_token": token.decode(), "expires_on": str(end_s), "resource": AUDIENCE, "token_type": "Bearer"}
        return json.dumps(told).encode()

    def serve(self) -> str:
        """Serve until the process ends; the address."""
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = issuer.answer()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nobody wants to read it."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/token"


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def prepare_network(folder: Path) -> None:
    # SIOCSIFFLAGS: loopback up and running.
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh22x", b"lo", 0x41))
    names = [f"{address} {name}.servicebus.windows.net" for name, address, _ in SERVED]
    (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *names, ""]))
    subprocess.run(["mount", "--bind", folder / "hosts", "/etc/hosts"], check=True)


def start_broker(folder: Path, name: str, address: str, sku: str, issuer: Issuer) -> subprocess.Popen[bytes]:
    folder.mkdir()
    (folder / "data").mkdir(mode=0o700)
    (folder / "issuer.pem").write_bytes(issuer.public_key())
    text = CONFIGURATION.format(name=name, address=address, sku=sku, issuer=ISSUER)
    for policy, rights in POLICIES.items():
        text += f'\n[namespaces.{name}.policies.{policy}]\nrights = {json.dumps(rights)}\nprimary_key = "{policy}"\n'
    (folder / "twinbus.toml").write_text(text)
    # Makes the CA.
    subprocess.run([TWINBUS, "trust", "--data", "data"], cwd=folder, check=True, capture_output=True)
    command = [TWINBUS, "serve", "--config", "twinbus.toml", "--data", "data", "--ready-file", "ready.json"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    end = time.monotonic() + READY_TIMEOUT_S
    while not (folder / "ready.json").exists():
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            raise SystemExit(f"The broker of {name} did not start.")
        time.sleep(0.05)
    return process


def environment(folder: Path, identity: str) -> dict[str, str]:
    def connection_string(name: str, policy: str, key: str) -> str:
        return f"Endpoint=sb://{name}.servicebus.windows.net/;SharedAccessKeyName={policy};SharedAccessKey={key}"

    authorities = folder / "authorities.pem"
    authorities.write_text("".join((folder / name / "data" / "ca.pem").read_text() for name, _, _ in SERVED))
    settings = {
        "AZURE_RECORD_MODE": "live",
        "SSL_CERT_FILE": str(authorities),
        "IDENTITY_ENDPOINT": identity,
        "IDENTITY_HEADER": "any",
        "SERVICEBUS_CONNECTION_STRING_NO_MANAGE": connection_string("standard", "NoManage", "NoManage"),
        "SERVICEBUS_CONNECTION_STRING_SEND_ONLY": connection_string("standard", "SendOnly", "SendOnly"),
        "SERVICEBUS_CONNECTION_STRING_LISTEN_ONLY": connection_string("standard", "ListenOnly", "ListenOnly"),
    }
    for name, suffix in (("standard", ""), ("premium", "_PREMIUM")):
        ready = json.loads((folder / name / "ready.json").read_text())["namespaces"][name]["connection_string"]
        key = ready.partition("SharedAccessKey=")[2].partition(";")[0]
        settings[f"SERVICEBUS_ENDPOINT{suffix}"] = f"{name}.servicebus.windows.net"
        settings[f"SERVICEBUS_CONNECTION_STRING{suffix}"] = connection_string(name, "RootManageSharedAccessKey", key)
    return {**os.environ, **settings}


def main() -> None:
    sources, program, log, pattern = sys.argv[1:]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twinbus-go-")))
        prepare_network(folder)
        issuer = Issuer()
        for name, address, sku in SERVED:
            process = start_broker(folder / name, name, address, sku, issuer)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        command = [program, "-test.v", "-test.timeout", "40m", *(["-test.run", pattern] if pattern else [])]
        with Path(log).open("wb") as output:
            settings = environment(folder, issuer.serve())
            subprocess.run(command, cwd=sources, env=settings, stdout=output, stderr=subprocess.STDOUT, check=False)


if __name__ == "__main__":
    main()
