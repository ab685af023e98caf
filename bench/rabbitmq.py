"""A private RabbitMQ node from Debian's package, for one run.

It has its own data folder, ports and Erlang name server, on loopback only; an installed RabbitMQ service is not
touched. Quorum queues are RabbitMQ's replicated kind that always flushes, with the same promise as ours.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

from peer_tools import PeerMissing, free_port, listens, make_pem

# Debian's commands in the path require root or their own user; these are the same scripts without that check.
SCRIPTS = Path("/usr/lib/rabbitmq/bin")
MISSING = "RabbitMQ is not installed. The comparison needs Debian's package: apt-get install rabbitmq-server"
START_TIMEOUT_S = 90.0


class RabbitMq:
    """`with RabbitMq(folder) as peer: peer.declare("bench")`, then AMQP 1.0 on 127.0.0.1:peer.port, guest/guest."""

    name = "rabbitmq"
    user = password = "guest"
    # Whether it answers settlements that are sent unsettled.
    confirms = True

    def __init__(self, folder: Path) -> None:
        if not (SCRIPTS / "rabbitmq-server").exists():
            raise PeerMissing(MISSING)
        # Data, logs, cookie and configuration; removed at the end.
        self.folder = Path(tempfile.mkdtemp(prefix="rabbitmq-", dir=folder))
        # The AMQP ports; both serve AMQP 0-9-1 and 1.0.
        self.port, self.tls_port = free_port(), free_port()
        self.epmd_port = free_port()
        # The server's process group; None before start and after stop.
        self.process: subprocess.Popen[bytes] | None = None
        self.environment = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.folder),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.epmd_port),
            "RABBITMQ_NODENAME": "twinbus-bench@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "none.conf"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def __enter__(self) -> RabbitMq:
        certificate, key = self.folder / "certificate.pem", self.folder / "key.pem"
        make_pem(certificate, key)
        lines = [f"listeners.tcp.local = 127.0.0.1:{self.port}", f"listeners.ssl.local = 127.0.0.1:{self.tls_port}"]
        lines += [f"ssl_options.certfile = {certificate}", f"ssl_options.keyfile = {key}"]
        lines += ["ssl_options.verify = verify_none"]
        (self.folder / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        (self.folder / "enabled_plugins").write_text("[rabbitmq_amqp1_0].\n")
        cookie = self.folder / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o400)
        with (self.folder / "server.log").open("wb") as log:
            self.process = subprocess.Popen(
                [str(SCRIPTS / "rabbitmq-server")],
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not listens(self.port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                text = (self.folder / "server.log").read_text(errors="replace")
                self.__exit__(None, None, None)
                raise RuntimeError(f"RabbitMQ did not start:\n{text}")
            time.sleep(0.1)
        self.control("await_startup")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self.process = self.process, None
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        # The node starts a name server that outlives it.
        subprocess.run(["epmd", "-port", str(self.epmd_port), "-kill"], env=self.environment, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def control(self, *arguments: str) -> str:
        """One rabbitmqctl command."""
        command = [str(SCRIPTS / "rabbitmqctl"), "--quiet", *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"rabbitmqctl {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def declare(self, *queues: str) -> None:
        """Durable quorum queues. rabbitmqctl has no command for it, so one call evaluates an expression on the node."""
        names = ", ".join(f'<<"{queue}">>' for queue in queues)
        resource = 'rabbit_misc:r(<<"/">>, queue, Name)'
        arguments = '[{<<"x-queue-type">>, longstr, <<"quorum">>}]'
        declare = f'rabbit_amqqueue:declare({resource}, true, false, {arguments}, none, <<"bench">>)'
        self.control("eval", f"[{declare} || Name <- [{names}]], ok.")

    def address(self, queue: str) -> str:
        return f"/amq/queue/{queue}"

    def purge(self, queue: str) -> None:
        self.control("purge_queue", queue)

    @property
    def pid(self) -> int:
        """The Erlang VM's process, whose CPU time is counted."""
        return int((self.folder / "pid").read_text())

    @property
    def version(self) -> str:
        return self.control("version").strip()
