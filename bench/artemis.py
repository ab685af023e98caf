"""A private ActiveMQ Artemis broker, downloaded with Maven, for one run.

`artemis create` writes the instance with its own defaults, which include a journal that is synced and tuned to the
disk; only the acceptors are ours: AMQP alone, loopback, one plain and one with TLS. Queues are anycast and durable.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from peer_tools import PeerMissing, free_port, listens, make_pkcs12

VERSION = "2.40.0"
START_TIMEOUT_S = 120.0
PASSWORD = "bench-password"


def distribution(folder: Path) -> Path:
    """The unpacked distribution, downloaded once."""
    unpacked = folder / f"apache-artemis-{VERSION}"
    if not unpacked.exists():
        if shutil.which("java") is None or shutil.which("mvn") is None:
            raise PeerMissing("Artemis needs Java 17 and Maven: apt-get install openjdk-17-jre-headless maven")
        command = ["mvn", "--quiet", "--batch-mode", "dependency:copy", f"-DoutputDirectory={folder}"]
        command += [f"-Dartifact=org.apache.activemq:apache-artemis:{VERSION}:tar.gz:bin"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PeerMissing(f"Maven cannot download Artemis {VERSION}: {done.stdout[-500:]}{done.stderr[-500:]}")
        with tarfile.open(folder / f"apache-artemis-{VERSION}-bin.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return unpacked


class Artemis:
    """`with Artemis(folder, queues) as peer:`, then AMQP 1.0 on 127.0.0.1:peer.port."""

    name = "artemis"
    version = VERSION
    user = "bench"
    password = PASSWORD
    # Whether it answers settlements that are sent unsettled.
    confirms = False

    def __init__(self, folder: Path, queues: Sequence[str]) -> None:
        home = distribution(folder)
        self.folder = Path(tempfile.mkdtemp(prefix="artemis-", dir=folder))
        self.port, self.tls_port = free_port(), free_port()
        # The broker's Java; None before start and after stop.
        self.process: subprocess.Popen[bytes] | None = None
        self.instance = self.folder / "instance"
        command = [str(home / "bin" / "artemis"), "create", str(self.instance), "--silent", "--no-web"]
        command += ["--user", self.user, "--password", self.password, "--require-login", "--host", "127.0.0.1"]
        # Without a bound on memory a queue with a million messages is paged to disk, as a user's would be.
        command += ["--queues", ",".join(queues), "--no-amqp-acceptor", "--no-hornetq-acceptor", "--no-mqtt-acceptor"]
        command += ["--no-stomp-acceptor", "--http-port", str(free_port()), "--default-port", str(self.port)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"artemis create failed:\n{done.stdout}{done.stderr}")
        self._set_acceptors()

    def _set_acceptors(self) -> None:
        store = self.folder / "tls.p12"
        make_pkcs12(store, PASSWORD)
        path = self.instance / "etc" / "broker.xml"
        # Credits are the default of `artemis create` for AMQP.
        common = "protocols=AMQP;amqpCredits=1000;amqpLowCredits=300;useEpoll=true;tcpNoDelay=true"
        tls = f"sslEnabled=true;keyStorePath={store};keyStorePassword={PASSWORD};keyStoreType=PKCS12"
        acceptors = (
            f'<acceptors><acceptor name="plain">tcp://127.0.0.1:{self.port}?{common}</acceptor>'
            f'<acceptor name="tls">tcp://127.0.0.1:{self.tls_port}?{common};{tls}</acceptor></acceptors>'
        )
        text = re.sub(r"<acceptors>.*?</acceptors>", lambda _: acceptors, path.read_text(), flags=re.DOTALL)
        path.write_text(text)

    def __enter__(self) -> Artemis:
        with (self.folder / "server.log").open("wb") as log:
            self.process = subprocess.Popen(
                [str(self.instance / "bin" / "artemis"), "run"], stdout=log, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not (listens(self.port) and listens(self.tls_port)):
            if self.process.poll() is not None or time.monotonic() > deadline:
                text = (self.folder / "server.log").read_text(errors="replace")
                self.__exit__(None, None, None)
                raise RuntimeError(f"Artemis did not start:\n{text}")
            time.sleep(0.1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self.process = self.process, None
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        """The Java process: the start script replaces itself by it."""
        assert self.process is not None
        return self.process.pid

    def declare(self, *queues: str) -> None:
        """The queues were named at `create`."""

    def address(self, queue: str) -> str:
        return queue
