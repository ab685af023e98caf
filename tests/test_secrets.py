"""Secrets planted wherever one can be, and looked for wherever one could come out: logs, output, errors, reprs,
ledgers, pages. Keys are for `keys.json`, the ready file, the store and whoever asks for them; for nobody else."""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.auth.jwt_issuer import ISSUER, Issuer
from tests.broker.peer import Peer, text
from twinbus.amqp.events import Closed
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import Rejected
from twinbus.auth.claims import decide
from twinbus.auth.connection_string import ConnectionString
from twinbus.auth.policies import Policies, Policy, Right
from twinbus.auth.sas import parse, sign
from twinbus.broker.configuration.config import BrokerConfig, NamespaceConfig
from twinbus.broker.configuration.file import load_config
from twinbus.broker.security.certificates import ensure_ca
from twinbus.broker.security.keys import with_keys
from twinbus.cli.main import run
from twinbus.client import BusClient
from twinbus.errors import TwinbusError
from twinbus.testing import Broker

TWINBUS = [sys.executable, "-c", "from twinbus.cli.main import run; run()"]
PRIMARY = "cGxhbnRlZC1wcmltYXJ5LWtleS1vZi10aGUtdGVzdA=="
SECONDARY = "cGxhbnRlZC1zZWNvbmRhcnkta2V5LW9mLXRoZS10ZXN0="
WRONG = "cGxhbnRlZC13cm9uZy1rZXktb2YtdGhlLXRlc3Qtb25l="
MADE = "cGxhbnRlZC1rZXktdGhhdC1hbi1hZG1pbi1tYWRlLWhlcmU="
ISSUED = Issuer()


class Secrets:
    """What must not come out."""

    def __init__(self) -> None:
        self.texts: set[str] = set()
        for key in (PRIMARY, SECONDARY, WRONG, MADE):
            self.add(key)

    def add(self, secret: str) -> str:
        """Also as it looks when it is quoted, and without the padding that a cut would take away."""
        for form in (secret, quote(secret, safe=""), secret.rstrip("=")):
            if len(form) > 12:
                self.texts.add(form)
        return secret

    def token(self, key: str, path: str = "", name: str = "planted", lives_s: int = 600) -> str:
        made = sign(f"sb://localhost/{path}", name, key, int(time.time()) + lives_s)
        self.add(parse(made).signature)
        return made

    def jwt(self, **claims: Any) -> str:
        made = ISSUED.token(exp=int(time.time()) + 600, nbf=int(time.time()) - 60, **claims)
        for part in made.split(".")[1:]:
            self.add(part)
        return made

    def check(self, where: str, shown: str) -> bool:
        """Nothing planted is in `shown`."""
        for secret in self.texts:
            at = shown.find(secret)
            assert at < 0, f"{where} holds a secret: ...{shown[max(0, at - 200) : at]}[HERE]"
        return True


@pytest.fixture
def secrets() -> Secrets:
    return Secrets()


def config_text(more: str = "") -> str:
    return f"""
[namespaces.contoso.queues.orders]
[namespaces.contoso.queues.other]
[namespaces.contoso.topics.events.subscriptions.all]
[namespaces.contoso.policies.planted]
rights = ["Manage"]
primary_key = "{PRIMARY}"
secondary_key = "{SECONDARY}"
[namespaces.contoso.queues.orders.policies.weak]
rights = ["Send"]
primary_key = "{PRIMARY}"
[namespaces.contoso.jwt]
issuer = "{ISSUER}"
jwks = "jwks.json"
{more}"""


def written(folder: Path, more: str = "") -> Path:
    (folder / "jwks.json").write_text(ISSUED.jwks())
    path = folder / "twinbus.toml"
    path.write_text(config_text(more))
    return path


@contextmanager
def serving(folder: Path) -> Iterator[tuple[ConnectionString, Callable[[], str]]]:
    """`twinbus serve` with everything it can log, its root's connection string, and what it has said so far."""
    ready, output = folder / "ready.json", folder / "output.txt"
    arguments = ["serve", "--config", str(written(folder)), "--data", str(folder / "data"), "--log-level", "debug"]
    arguments += ["--ready-file", str(ready), "--ledger", str(folder / "ledger"), "--allow-faults"]
    with output.open("wb") as log:
        process = subprocess.Popen([*TWINBUS, *arguments], stdout=log, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 120
        while not ready.exists():
            assert process.poll() is None, output.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        root = json.loads(ready.read_text())["namespaces"]["contoso"]["connection_string"]
        yield ConnectionString.parse(root), output.read_text
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


# --- what clients do, right and wrong ---------------------------------------------------------------------------------


def drive_amqp(connect: Callable[[], Peer], secrets: Secrets) -> None:
    """Every way to say who one is, and what follows from it."""
    answers = []
    bad = [
        secrets.token(WRONG),
        secrets.token(PRIMARY, name="nobody"),
        secrets.token(PRIMARY, lives_s=-600),
        secrets.token(PRIMARY, "other", name="weak"),
        secrets.token(PRIMARY) + "x",
        secrets.token(PRIMARY).replace("sig=", "sig=%"),
        secrets.token(PRIMARY).replace("se=", "se=x"),
        secrets.token(PRIMARY).replace("sr=", "sr=&sr="),
        f"SharedAccessSignature {PRIMARY}",
        f"SharedAccessSignature sr=x&{PRIMARY}=1&{PRIMARY}=2",
        f"Endpoint=sb://localhost/;SharedAccessKeyName=planted;SharedAccessKey={PRIMARY}",
        PRIMARY,
        secrets.jwt(iss="https://other.example"),
        secrets.jwt(roles=["nothing"]),
        secrets.jwt() + "x",
    ]
    with connect() as peer:
        for token in bad:
            response = peer.request("$cbs", "put-token", token, type="jwt", name="sb://localhost/orders")
            properties = response.application_properties or {}
            assert int(properties["status-code"]) >= 400
            answers.append(str(properties))
        answers.append(str(peer.request("$cbs", "put-tokens", secrets.token(PRIMARY)).application_properties))
        # Too large, and not a text: refused before they are decoded.
        tokens = peer.sender("$cbs")
        for odd in ("SharedAccessSignature " + "x" * 70_000 + PRIMARY, {"token": PRIMARY}):
            refused = peer.send(tokens, AmqpMessage.of_value(odd))
            assert isinstance(refused, Rejected)
            answers.append(str(refused.error))
        answers.append(peer.refusal(lambda: peer.sender("orders")).description)
    with connect() as peer:
        assert peer.put_token("sb://localhost/", secrets.token(SECONDARY)) == 202
        assert peer.put_token("sb://localhost/other", secrets.jwt()) == 202
        peer.send(peer.sender("orders"), text("a body"))
        peer.settle(peer.receive(peer.receiver("orders", 1)))
        drive_management(peer, answers)
        # Frames that no engine takes, with a key in them: what is said about them must not quote it.
        peer.socket.sendall(b"\x00\x00\x01\x00\x02\x00\x00\x00\x00\x53\x14" + PRIMARY.encode() * 5)
        peer.socket.sendall(b"\xff" * 300)
        peer.read(2)
        answers += [str(event.error) for event in peer.events if isinstance(event, Closed)]
    for number, answer in enumerate(answers):
        secrets.check(f"answer {number}", answer)


def drive_management(peer: Peer, answers: list[str]) -> None:
    policy = {"name": "made", "rights": ["Send"], "primary_key": MADE, "secondary_key": SECONDARY}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("set-policy", policy),
        ("set-policy", {**policy, "new": True}),
        ("set-policy", {**policy, "primary_key": MADE * 10}),
        ("set-policy", {**policy, "primary_key": [MADE]}),
        ("set-policy", {**policy, "rights": "x"}),
        ("set-policy", {**policy, "entity": "nowhere"}),
        ("set-policy", {"name": "planted", "rights": ["Send"], "primary_key": MADE}),
        ("rotate-key", {"name": "planted", "which": "primary"}),
        ("rotate-key", {"name": "made", "which": "secondary"}),
        ("rotate-key", {"name": "made", "which": MADE}),
        ("list-policies", {}),
        ("export", {"skip": 0}),
        ("export", {"skip": MADE}),
        ("delete-policy", {"name": "made"}),
        ("delete-policy", {"name": "planted"}),
        ("list-queues", {}),
        ("create-queue", {"path": "x", "primary_key": MADE}),
    ]
    for operation, body in calls:
        response = peer.request("$management", f"twinbus:{operation}", body)
        answers.append(f"{response.application_properties} {response.value}")


def drive_plain(connect: Callable[..., Peer]) -> None:
    for login in (f"\0planted\0{WRONG}", f"\0{PRIMARY}\0planted", f"{PRIMARY}", f"\0weak\0{PRIMARY}"):
        # Refused, as it should be, unless the key is right.
        with suppress(AssertionError):
            connect(sasl=("PLAIN", login.encode())).socket.close()


RULES = """<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">
<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
 xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><AuthorizationRules>
<AuthorizationRule i:type="{kind}"><Rights><AccessRights>{right}</AccessRights></Rights>
<KeyName>{name}</KeyName><PrimaryKey>{key}</PrimaryKey></AuthorizationRule></AuthorizationRules>
</QueueDescription></content></entry>"""


def drive_http(host: str, port: int, secrets: Secrets) -> None:
    """Pages, administration and messages, right and wrong; none of the answers shows a key that was not asked for."""

    def asked(method: str, path: str, token: str | None = None, body: str = "", **headers: str) -> tuple[int, str]:
        client = http.client.HTTPConnection(host, port, timeout=10)
        try:
            given = {**headers, **({} if token is None else {"Authorization": token})}
            client.request(method, path, body.encode(), given)
            response = client.getresponse()
            return response.status, f"{response.headers}\n{response.read().decode('utf-8', 'replace')}"
        finally:
            client.close()

    good = secrets.token(PRIMARY)
    bad = [secrets.token(WRONG), f"Bearer {secrets.jwt(iss='x')}", f"Basic {PRIMARY}", PRIMARY, "Bearer"]
    rule = {"kind": "SharedAccessAuthorizationRule", "right": "Send", "name": "n", "key": MADE}
    shown: list[tuple[int, str]] = []
    for token in [*bad, None]:
        for method, path in (("GET", "/orders"), ("PUT", "/new"), ("POST", "/orders/messages"), ("GET", "/$faults")):
            shown.append(asked(method, f"{path}?api-version=2021-05", token, RULES.format(**rule)))
            assert shown[-1][0] == 401
    for change in (
        {"kind": "Other"},
        {"right": "Write"},
        {"name": ""},
        {"key": MADE * 20},
        {"key": MADE + "<"},
        {"key": f"&{MADE};"},
    ):
        shown.append(asked("PUT", "/made?api-version=2021-05", good, RULES.format(**{**rule, **change})))
        assert shown[-1][0] == 400, change
    shown.append(asked("PUT", "/made?api-version=2021-05", good, f"<{MADE}"))
    shown.append(asked("POST", "/orders/messages", good, "body", BrokerProperties=f'{{"MessageId": [{MADE}'))
    shown.append(asked("POST", "/orders/messages", good, "body"))
    shown.append(asked("DELETE", "/orders/messages/head?timeout=1", good))
    shown.append(asked("DELETE", "/orders/messages/head?timeout=x", good))
    shown.append(asked("PUT", "/$faults", good, json.dumps({"mode": "slow", "delay_ms": MADE})))
    shown.append(asked("GET", "/$servicebus/websocket", good, **{"Sec-WebSocket-Protocol": PRIMARY}))
    assert asked("PUT", "/made?api-version=2021-05", good, RULES.format(**rule))[0] == 201
    assert MADE in asked("GET", "/made?api-version=2021-05", good)[1]
    for path in ("/health", "/metrics"):
        status, page = asked("GET", path, good)
        assert status == 200
        shown.append((status, page))
    for said in (
        f"GET /orders HTTP/1.1\r\nHost: x\r\nAuthorization {good}\r\n\r\n",
        f"GET /orders HTTP/1.1\r\nHost: x\r\nAuthorization: {good}\x01\r\n\r\n",
        f"GET /{good} HTTP/9\r\n\r\n",
        f"GET /orders HTTP/1.1\r\n{good * 400}",
        f"POST /orders/messages HTTP/1.1\r\nContent-Length: {PRIMARY}\r\nAuthorization: {good}\r\n\r\n",
        f"{PRIMARY}\r\n",
    ):
        with socket.create_connection((host, port), 5) as stream:
            stream.sendall(said.encode())
            stream.shutdown(socket.SHUT_WR)
            try:
                shown.append((0, stream.recv(65536).decode("utf-8", "replace")))
            except ConnectionError:
                continue
    for number, (status, page) in enumerate(shown):
        secrets.check(f"page {number} ({status})", page)


def drive_sdk(root: ConnectionString, folder: Path, secrets: Secrets) -> None:
    """The official client with the planted key, and with a wrong one."""
    good = ConnectionString(root.host, root.port, "planted", PRIMARY, emulator=True).format()
    with ServiceBusClient.from_connection_string(good) as client:
        with client.get_topic_sender("events") as sender:
            sender.send_messages(ServiceBusMessage("x"))
        with client.get_subscription_receiver("events", "all") as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=5)
            receiver.complete_message(message)
    bad = ConnectionString(root.host, root.port, "planted", WRONG, emulator=True).format()
    with (
        ServiceBusClient.from_connection_string(bad, retry_total=0) as client,
        pytest.raises(ServiceBusError) as caught,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))
    secrets.check("the SDK's error", str(caught.value))
    trusted = str(ensure_ca(folder / "data"))
    with ServiceBusAdministrationClient.from_connection_string(good, connection_verify=trusted) as admin:
        assert admin.get_queue("orders").name == "orders"


def drive_cli(root: ConnectionString, secrets: Secrets) -> None:
    """Commands that work and commands that do not; none shows a key unless it is told to."""
    good = ConnectionString(root.host, root.port, "planted", PRIMARY, emulator=True).format()
    wrong = ConnectionString(root.host, root.port, "planted", WRONG, emulator=True).format()
    nobody = ConnectionString(root.host, 1, "planted", PRIMARY, emulator=True).format()
    commands = [
        ["policy", "list", "-c", good],
        ["policy", "list", "--json", "-c", good],
        ["policy", "create", "by-cli", "-r", "Send", "-c", good],
        ["policy", "rotate", "by-cli", "swap", "-c", good],
        ["policy", "rotate", "planted", "primary", "-c", good],
        ["policy", "delete", "by-cli", "-c", good],
        ["export", "-c", good],
        ["export", "--format", "emulator", "-c", good],
        ["queue", "list", "-c", wrong],
        ["queue", "list", "-c", nobody],
        ["queue", "list", good],
        ["queue", "show", "-c", good, "nowhere"],
        ["queue", "list", "-c", good.replace(";", ",")],
        ["queue", "list", "-c", good.replace("Endpoint=sb://", "Endpoint=")],
        ["queue", "list", "-c", good.replace("SharedAccessKey=", "SharedAccesKey=")],
        ["queue", "list", "-c", good.replace("SharedAccessKey=", "")],
        ["queue", "list", "-c", good.replace("sb://", f"sb://x:{PRIMARY}@")],
        ["queue", "list", "-c", f"{good};SharedAccessSignature={secrets.token(PRIMARY)}"],
        ["queue", "list", "-c", PRIMARY],
        ["fault", "list", "-c", wrong],
        ["fault", "set", "odd", "-c", good],
        ["queue", "list", f"--connection={good}"],
        ["check", good],
    ]
    for command in commands:
        done = subprocess.run([*TWINBUS, *command], capture_output=True, text=True, timeout=30, check=False)
        secrets.check(" ".join(command[:3]), done.stdout + done.stderr)
    environment = {**os.environ, "TWINBUS_CONNECTION_STRING": good}
    for command in (["queue", "--help"], ["queue", "list", "--help"], ["queue", "show"]):
        done = subprocess.run([*TWINBUS, *command], capture_output=True, text=True, env=environment, check=False)
        secrets.check(" ".join(command), done.stdout + done.stderr)


# --- the tests --------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(240)  # it starts some thirty processes
def test_a_broker_process_keeps_its_secrets(tmp_path: Path, secrets: Secrets) -> None:
    with serving(tmp_path) as (root, said):
        secrets.add(root.key or "")

        def connect(**options: Any) -> Peer:
            # A broker is needed only to find the port.
            return Peer(None, over=socket.create_connection((root.host, root.port), 10), **options)  # type: ignore[arg-type]

        drive_amqp(connect, secrets)
        drive_plain(connect)
        drive_http(root.host, root.port or 0, secrets)
        drive_sdk(root, tmp_path, secrets)
        drive_cli(root, secrets)
        secrets.check("the output", said())
        # A rotated root key is a secret as well, and is in the ready file again.
        rotate = ["policy", "rotate", root.key_name or "", "primary", "--ready-file", str(tmp_path / "ready.json")]
        subprocess.run([*TWINBUS, *rotate], check=True, capture_output=True, timeout=30)
        again = json.loads((tmp_path / "ready.json").read_text())["namespaces"]["contoso"]["connection_string"]
        assert secrets.add(ConnectionString.parse(again).key or "") != root.key
    output = (tmp_path / "output.txt").read_text()
    assert "DEBUG" in output or "INFO" in output
    secrets.check("the output", output)
    ledger = "".join(path.read_text(errors="replace") for path in (tmp_path / "ledger").rglob("*") if path.is_file())
    assert "orders" in ledger
    secrets.check("the ledger", ledger)
    for path in (tmp_path / "data").rglob("*"):
        # The certificate of the development CA is for everybody: clients must trust it.
        if path.is_file() and path.name != "ca.pem":
            assert path.stat().st_mode & 0o077 == 0, path


def test_an_embedded_broker_keeps_its_secrets(
    tmp_path: Path, secrets: Secrets, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    config = load_config(written(tmp_path))
    with Broker(config.namespaces, dev=False, ledger=tmp_path / "ledger", allow_faults=True) as broker:
        root = ConnectionString.parse(broker.connection_string())
        secrets.add(root.key or "")
        drive_amqp(lambda: Peer(broker), secrets)
        drive_plain(lambda **options: Peer(broker, **options))
        drive_http(root.host, root.port or 0, secrets)
        assert broker.server is not None
        host = broker.server.hosts["contoso"]
        things = [broker, broker.endpoint(), broker.server, config, host, host.keyring, host.policies, host.jwt]
        things += [list(host.policies), vars(broker), vars(broker.server), vars(host.keyring), host.describe()]
        for thing in things:
            secrets.check(f"the repr of {type(thing).__name__}", repr(thing))
    secrets.check("the log", "\n".join(f"{record.getMessage()} {record.exc_text}" for record in caplog.records))
    out, err = capfd.readouterr()
    secrets.check("the output", out + err)
    for path in (tmp_path / "ledger").rglob("*"):
        secrets.check(path.name, path.read_text(errors="replace"))


def test_reprs_of_what_holds_a_secret(tmp_path: Path, secrets: Secrets) -> None:
    policy = Policy("planted", frozenset({Right.SEND}), PRIMARY, SECONDARY)
    config = with_keys(BrokerConfig([NamespaceConfig("contoso", policies=[policy])], data=tmp_path / "data"))
    secrets.add(config.namespaces[0].root.primary_key)
    text = f"Endpoint=sb://localhost;SharedAccessKeyName=planted;SharedAccessKey={PRIMARY};UseDevelopmentEmulator=true"
    signed = f"Endpoint=sb://localhost;SharedAccessSignature={secrets.token(PRIMARY)}"
    things = [
        policy,
        Policies([policy]),
        config,
        config.namespaces,
        load_config(written(tmp_path)),
        ConnectionString.parse(text),
        ConnectionString.parse(signed),
        parse(secrets.token(PRIMARY)),
        BusClient.from_connection_string(text),
        BusClient.from_connection_string(signed),
        BusClient.with_password("localhost", 1, "planted", PRIMARY),
    ]
    for thing in things:
        assert secrets.check(f"the repr of {type(thing).__name__}", f"{thing!r} {thing}")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (f'primary_key = "{PRIMARY}"\nsecondary', f'primary_key = ["{PRIMARY}"]\nsecondary'),
        (f'secondary_key = "{SECONDARY}"', f'secondary_key = {{ a = "{SECONDARY}" }}'),
        (f'primary_key = "{PRIMARY}"\nsecondary', f'primary_kye = "{PRIMARY}"\nsecondary'),
        (f'primary_key = "{PRIMARY}"\nsecondary', f'primary_key = "{PRIMARY * 20}"\nsecondary'),
        (f'primary_key = "{PRIMARY}"\nsecondary', "secondary"),
        (f'primary_key = "{PRIMARY}"\nsecondary', f"primary_key = {PRIMARY}\nsecondary"),
        (f'primary_key = "{PRIMARY}"\nsecondary', f'primary_key = "{PRIMARY}\nsecondary'),
        ("[namespaces.contoso.policies.planted]\n", f'[namespaces.contoso.policies]\nx = "{PRIMARY}"\n[x]\n'),
        ('rights = ["Manage"]', 'rights = ["Mange"]'),
        ("[namespaces.contoso.policies.planted]\n", f'[namespaces]\npolicies = "{PRIMARY}"\n[x]\n'),
    ],
)
def test_a_wrong_configuration_is_told_without_its_keys(
    tmp_path: Path, secrets: Secrets, capsys: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    path = written(tmp_path)
    changed = path.read_text().replace(old, new)
    assert changed != path.read_text()
    path.write_text(changed)
    with pytest.raises(SystemExit) as caught:
        run(["serve", "--config", str(path), "--data", str(tmp_path / "data")])
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("twinbus: ")
    secrets.check("the error", captured.out + captured.err)


def test_a_damaged_file_of_keys_is_not_quoted(tmp_path: Path, secrets: Secrets) -> None:
    (tmp_path / "keys.json").write_text(f'{{"namespaces": {{"contoso": {{"x": ["{PRIMARY}", 5]}}}}}}')
    with pytest.raises(TwinbusError) as caught:
        with_keys(BrokerConfig([NamespaceConfig("contoso")], data=tmp_path))
    secrets.check("the traceback", "".join(traceback.format_exception(caught.value)))


def test_tracebacks_of_refused_tokens(secrets: Secrets) -> None:
    policies = Policies([Policy("planted", frozenset({Right.SEND}), PRIMARY, SECONDARY)])
    for token in (secrets.token(WRONG), secrets.token(PRIMARY, lives_s=-99), PRIMARY, secrets.jwt(), f"{PRIMARY}.a.b"):
        with pytest.raises(TwinbusError) as caught:
            decide(token, "sb://localhost/orders", policies, time.time())
        secrets.check("the traceback", re.sub(r'File "[^"]*"', "", "".join(traceback.format_exception(caught.value))))
