"""What a page finds when its commands are run: a broker, entities in it, files, and ports that are free.

Rules:
- Every page has a pair of namespaces, `contoso` (documented on port 5672) and `fabrikam` (on 5673), with keys of their
  own, and their connection strings in the variables that the commands read. A page that starts a broker on one of these
  ports gets a free port for it instead.
- A page without a broker of its own finds the pair's data folder as `data`.
- Its `.venv` is the environment that the tests run in.
- What differs from page to page stands in `SETTINGS`, and nowhere else.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.docs.pages import ROOT, Command
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.entities.settings import QueueSettings
from twinbus.testing import Broker

# Ports as the pages write them. They are replaced by free ones where they are ports: `HOST:5672`, `--amqp-port 5672`.
PORTS = (5672, 5673, 5671, 5300, 6000, 6001, 7077)
_PORT = re.compile(r"(?:(?<=:)|(?<=-port )|(?<=-port=))(" + "|".join(map(str, PORTS)) + r")(?!\d)")
# A connection string whose key the page leaves out.
_ELIDED = re.compile(r"Endpoint=sb://(?:localhost|127\.0\.0\.1)(?::(\d+))?;[^'\"\s]*\.\.\.[^'\"\s]*")


@dataclass
class Setting:
    """What a page finds."""

    # Queues in both namespaces.
    queues: list[str | QueueSettings] = field(default_factory=lambda: ["orders"])
    # Topics in the first, each with a subscription `all`.
    topics: list[str] = field(default_factory=list)
    # Files that are there: name and contents; `{primary}` and `{secondary}` in them are the connection strings.
    files: dict[str, str] = field(default_factory=dict)
    # Done with the broker before the first command.
    prepare: Callable[[Broker], None] | None = None
    # Variables that its commands find.
    environment: dict[str, str] = field(default_factory=dict)
    # How long all its commands may take.
    timeout_s: int = 120


DEFAULT = Setting()
STRINGS = {"primary.txt": "{primary}\n", "secondary.txt": "{secondary}\n"}


def _with_backlog(broker: Broker) -> None:
    for number in range(10):
        broker.create_queue(f"contoso/x-servicebus-transfer/{number}", "fabrikam")


# The file that the page shows.
_EMULATOR = (ROOT / "docs" / "emulator.md").read_text().split("```json\n")[1].split("```")[0]

# A ledger that a client of the reader's has written.
_SENT = {"v": 1, "type": "operations", "id": "5f0c2b9de1a44c07-1", "source": "client", "namespace": "contoso"}
_SENT |= {"start_ms": 1_794_700_800_000, "end_ms": 1_794_700_801_000, "entity": "orders", "kind": "send"}
_SENT |= {"stage": "direct", "outcome": "ok", "count": 20, "bytes": 400, "units": 20}
LEDGERS = {"client-ledger/client-1.jsonl": json.dumps(_SENT) + "\n"}
# Pages that start several JVMs: each is to start soon, and none has much to compute. Spark's own classes need no check.
_UNCHECKED = "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
BRISK = {"JAVA_TOOL_OPTIONS": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {_UNCHECKED}"}

SETTINGS = {
    "docs/administration.md": Setting(queues=[]),
    # It trusts a CA by certifi's bundle alone.
    "docs/clients.md": Setting(environment={"REQUESTS_CA_BUNDLE": ""}),
    # Some of their commands start Spark.
    "docs/cluster.md": Setting(environment=BRISK, timeout_s=600),
    "docs/emulator.md": Setting(files={"config.json": _EMULATOR}),
    "docs/ledger.md": Setting(files=LEDGERS, environment=BRISK, timeout_s=240),
    "docs/plan.md": Setting(timeout_s=240),
    "docs/quickstart.md": Setting(timeout_s=240),
    "docs/report.md": Setting(timeout_s=240),
    "docs/spark.md": Setting(queues=["orders", "copies"]),
    "docs/syphon.md": Setting(files=STRINGS, prepare=_with_backlog, timeout_s=240),
}


def setting_of(page: str) -> Setting:
    return SETTINGS.get(page, DEFAULT)


class Scene:
    """A page's setting, made real."""

    def __init__(self, broker: Broker, folder: Path, served: set[int], given: dict[str, str]) -> None:
        # The pair of namespaces.
        self.broker = broker
        # Where the page's commands are run.
        self.folder = folder
        # The page's own variables.
        self._given = given
        # Documented port -> the port it is here.
        self.ports = {5672: broker.endpoint("contoso").port, 5673: broker.endpoint("fabrikam").port}
        for port in PORTS:
            if port in served or port not in self.ports:
                self.ports[port] = free_port()

    @property
    def environment(self) -> dict[str, str]:
        """What the first command finds: only what a reader's own shell has, and where the brokers are."""
        kept = ("LANG", "LC_ALL", "TERM", "JAVA_HOME", "PYTHONPATH", "TMPDIR", "CI", "TWINBUS_ARCHIVE")
        primary, secondary = (self.broker.connection_string(each) for each in ("contoso", "fabrikam"))
        return {
            **{name: os.environ[name] for name in kept if name in os.environ},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "TWINBUS_CONNECTION_STRING": primary,
            "TWINBUS_PRIMARY": primary,
            "TWINBUS_SECONDARY": secondary,
            # The official clients administer a broker over HTTPS.
            "TWINBUS_CA": str(self.broker.ca_file),
            "REQUESTS_CA_BUNDLE": str(self.broker.ca_file),
            **self._given,
        }

    def here(self, text: str, connection_string: Callable[[int], str | None] = lambda port: None) -> str:
        """A page's text with this machine's ports, paths and keys."""
        text = _PORT.sub(lambda match: str(self.ports[int(match[1])]), text)

        def whole(match: re.Match[str]) -> str:
            port = int(match[1]) if match[1] else self.ports[5672]
            known = {self.broker.endpoint(each).port: each for each in ("contoso", "fabrikam")}
            found = connection_string(port) or (self.broker.connection_string(known[port]) if port in known else None)
            return found or match[0]

        return _ELIDED.sub(whole, text)


@contextmanager
def scene(page: str, folder: Path, commands: list[Command]) -> Iterator[Scene]:
    """A page's broker, files and free ports, for the time of its commands."""
    setting = setting_of(page)
    served = {int(port) for each in commands if "twinbus serve" in each.text for port in _PORT.findall(each.text)}
    for name in ("examples", "docs", "bench", "compliance"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(sys.prefix)
    with Broker(
        namespaces=[NamespaceConfig("contoso"), NamespaceConfig("fabrikam")],
        queues=setting.queues,
        dev=False,
        allow_faults=True,
        data=folder / ".broker",
        ledger=True,
    ) as broker:
        for topic in setting.topics:
            broker.create_topic(topic, "contoso")
            broker.create_subscription(topic, "all", "contoso")
        if setting.prepare is not None:
            setting.prepare(broker)
        strings = {"primary": broker.connection_string("contoso"), "secondary": broker.connection_string("fabrikam")}
        for name, contents in setting.files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(re.sub(r"\{(primary|secondary)\}", lambda match: strings[match[1]], contents))
        if not any("twinbus serve" in each.text for each in commands):
            (folder / "data").symlink_to(broker.data)
            broker.ca_file  # noqa: B018 - asking for it makes it
        yield Scene(broker, folder, served, setting.environment)


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
