"""A pair in every order of starting and stopping its four parts: every message comes home, or is listed as waiting.

    python tests/faults/pair_orders.py [--old FOLDER] [--rights manage|limited] [--seed N] [--share K/N]

Client, syphon, primary and secondary start in each of their 24 orders and stop in another one, with `localhost` in the
connection strings and no `primary_name`. After each step the client sends, and `twinbus pair status` must be right.
Then everything runs until nothing moves: each accepted message is in the primary, or in a backlog that `pair status`
lists, and `twinbus backlog adopt` brings the last ones home. With `--old`, a client of another version (a folder with
its `src`) sends beside the new one. With `limited`, the client may only send, and the syphon and the status may only
listen to the secondary.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from twinbus.auth.policies import Policy, Right
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.cli.main import run
from twinbus.client import BusClient
from twinbus.testing import Broker

CLIENT = Path(__file__).with_name("pair_orders_client.py")
PARTS = ("client", "syphon", "primary", "secondary")
QUEUES = ["contoso/x-servicebus-transfer/0", "contoso/x-servicebus-transfer/1"]
HOME_S = 90.0
# Keys of at least 256 bits, as the broker makes them.
KEYS = {
    "send": "c2VuZC1vbmx5LWtleS1vZi10aGUtcGFpci1vcmRlcnM=",
    "listen": "bGlzdGVuLW9ubHkta2V5LW9mLXRoZS1wYWlyLW9yZA==",
}


def namespace(name: str) -> NamespaceConfig:
    policies = [Policy(right.value.lower(), frozenset({right}), KEYS[right.value.lower()]) for right in _LIMITED]
    return NamespaceConfig(name, policies=policies)


_LIMITED = (Right.SEND, Right.LISTEN)


class Application:
    """A client in a process of its own."""

    def __init__(self, source: Path | None, primary: str, secondary: str, *, create: bool, state: Path) -> None:
        environment = {**os.environ, "TWINBUS_STATE_DIR": str(state)}
        if source is not None:
            environment["PYTHONPATH"] = str(source / "src")
        state.mkdir(exist_ok=True)
        # What it said, if it dies.
        self._log = (state / "errors.txt").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, str(CLIENT), primary, secondary, "create" if create else "assume"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            text=True,
        )

    def send(self, names: list[str]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(names) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"the client has ended: {self._log.read()[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


class Site:
    """The four parts of one pair."""

    def __init__(self, folder: Path, *, old: Path | None, limited: bool) -> None:
        self.folder = folder
        self._old = old
        self._limited = limited
        self.primary = Broker([namespace("contoso")], ["orders"], dev=False, sync=False, data=folder / "primary")
        self.secondary = Broker(
            [namespace("fabrikam")], QUEUES if limited else (), dev=False, sync=False, data=folder / "secondary"
        )
        for broker in (self.primary, self.secondary):
            # Their ports, keys and identities; none of them is up when the pair begins.
            broker.start()
            broker.stop()
        self.up: set[str] = set()
        self._clients: list[Application] = []
        self._syphon: subprocess.Popen[bytes] | None = None
        self.accepted: list[str] = []
        self.refused = 0
        self._sent = 0
        self.findings: list[str] = []

    # --- connection strings -------------------------------------------------------------------------------------------

    def text(self, side: str, who: str) -> str:
        broker = self.primary if side == "primary" else self.secondary
        text = broker.connection_string()
        if not self._limited or who == "operator":
            return text
        right = "send" if side == "primary" or who == "client" else "listen"
        parts = [part for part in text.split(";") if part and not part.startswith("SharedAccessKey")]
        return ";".join([*parts, f"SharedAccessKeyName={right}", f"SharedAccessKey={KEYS[right]}"])

    def _texts(self, who: str) -> tuple[str, str]:
        return self.text("primary", who), self.text("secondary", who)

    # --- parts --------------------------------------------------------------------------------------------------------

    def start(self, part: str) -> None:
        self.up.add(part)
        if part in ("primary", "secondary"):
            getattr(self, part).start()
        elif part == "client":
            sources = [None] if self._old is None else [None, self._old]
            self._clients = [
                Application(
                    source,
                    *self._texts("client"),
                    create=not self._limited,
                    state=self.folder / f"state-client-{number}",
                )
                for number, source in enumerate(sources)
            ]
        else:
            first, second = self._texts("syphon")
            environment = {
                **os.environ,
                "TWINBUS_PRIMARY": first,
                "TWINBUS_SECONDARY": second,
                "TWINBUS_STATE_DIR": str(self.folder / "state-syphon"),
            }
            self._syphon = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "twinbus",
                    "syphon",
                    "--engine",
                    "local",
                    "--quiet",
                    "--backlog-queue-count",
                    "2",
                ],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def stop(self, part: str) -> None:
        self.up.discard(part)
        if part in ("primary", "secondary"):
            getattr(self, part).stop()
        elif part == "client":
            for client in self._clients:
                client.stop()
            self._clients = []
        elif self._syphon is not None:
            self._syphon.terminate()
            try:
                self._syphon.wait(30)
            except subprocess.TimeoutExpired:
                self._syphon.kill()
                self._syphon.wait()
            self._syphon = None

    def close(self) -> None:
        for part in PARTS:
            if part in self.up:
                self.stop(part)
        self.primary.close()
        self.secondary.close()

    def send(self) -> None:
        for client in self._clients:
            names = [f"m{self._sent + number}" for number in range(2)]
            self._sent += 2
            answer = client.send(names)
            self.accepted += answer["accepted"]
            self.refused += len(answer["refused"])

    # --- what is where ------------------------------------------------------------------------------------------------

    def waiting(self) -> dict[str, int]:
        """Messages in each backlog queue, as the secondary itself counts them."""

        def counted(server: Any) -> dict[str, int]:
            queues = server.hosts["fabrikam"].entities.queues()
            return {queue.path: queue.counts.active for queue in queues if queue.counts.active}

        return self.secondary.call(counted)

    def home(self) -> list[str]:
        async def received() -> list[str]:
            found: list[str] = []
            async with BusClient.from_connection_string(self.text("primary", "operator")) as client:
                node = await client.management("orders")
                first = 1
                while messages := await node.peek(100, from_sequence_number=first):
                    found += [str(message.message_id) for message in messages]
                    first = messages[-1].sequence_number + 1
            return found

        return asyncio.run(received())

    def command(self, *arguments: str, who: str = "syphon") -> tuple[int, str]:
        first, second = self._texts(who)
        environment = {
            "TWINBUS_PRIMARY": first,
            "TWINBUS_SECONDARY": second,
            "TWINBUS_STATE_DIR": str(self.folder / "state-status"),
        }
        out = io.StringIO()
        with _environment(environment), contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            try:
                run(list(arguments))
                code = 0
            except SystemExit as ended:
                code = int(ended.code or 0)
        return code, out.getvalue()

    # --- checks -------------------------------------------------------------------------------------------------------

    def check(self, step: str) -> None:
        """`pair status` must say what is true."""
        if "secondary" not in self.up:
            code, out = self.command("pair", "status", "--json")
            found = json.loads(out)
            if (code, found["diverted"], found["queues"]) != (5, None, None):
                self.findings.append(f"{step}: secondary away, and status says {code} {found['diverted']}")
            return
        for _ in range(20):
            # The syphon may move messages meanwhile.
            before = self.waiting()
            code, out = self.command("pair", "status", "--json")
            if before == self.waiting():
                break
        found = json.loads(out)
        listed = {look["name"]: look["active"] for look in found["queues"] if look["active"]}
        if listed != before:
            self.findings.append(f"{step}: {before} wait, and status lists {listed}")
        guessed = [name for name in before if not name.startswith("contoso/")]
        allowed = {0} if not before else {4} if guessed else {3, 6}
        if code not in allowed:
            self.findings.append(f"{step}: {before} wait, and status exits {code}")
        if not guessed and found["diverted"] is not None and found["diverted"] != sum(before.values()):
            self.findings.append(f"{step}: {before} wait, and status says {found['diverted']} are diverted")
        if found["primary"] not in (None, "contoso"):
            self.findings.append(f"{step}: the primary is called {found['primary']}")

    def settle(self) -> dict[str, Any]:
        """Run everything until nothing moves, and account for every message."""
        for part in ("primary", "secondary", "syphon"):
            if part not in self.up:
                self.start(part)
        end = time.monotonic() + HOME_S
        while any(name.startswith("contoso/") for name in self.waiting()) and time.monotonic() < end:
            time.sleep(0.2)
        self.check("settled")
        waiting = sum(self.waiting().values())
        home = set(self.home())
        if len(home & set(self.accepted)) + waiting < len(set(self.accepted)):
            self.findings.append(f"{len(self.accepted)} accepted, {len(home)} home, {waiting} waiting")
        for prefix in {name.partition("/")[0] for name in self.waiting()}:
            code, _ = self.command("backlog", "adopt", prefix, "--yes", "--backlog-queue-count", "2", who="operator")
            if code:
                self.findings.append(f"adopting {prefix} exits {code}")
        end = time.monotonic() + HOME_S
        while set(self.accepted) - set(self.home()) and time.monotonic() < end:
            time.sleep(0.2)
        missing = set(self.accepted) - set(self.home())
        if missing:
            self.findings.append(f"{len(missing)} messages are not home after adopting: {sorted(missing)[:5]}")
        self.check("adopted")
        return {"accepted": len(self.accepted), "refused": self.refused, "waited": waiting, "findings": self.findings}


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def order(starts: tuple[str, ...], stops: tuple[str, ...], *, old: Path | None, limited: bool) -> dict[str, Any]:
    """One order of starting and one of stopping."""
    with tempfile.TemporaryDirectory(prefix="twinbus-orders-") as folder:
        site = Site(Path(folder), old=old, limited=limited)
        try:
            for part in starts:
                site.start(part)
                site.send()
                site.check(f"{part} started")
            for part in stops:
                site.stop(part)
                site.send()
                site.check(f"{part} stopped")
            return site.settle()
        finally:
            site.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, help="folder of another version, whose client sends as well")
    parser.add_argument("--rights", choices=("manage", "limited"), default="manage")
    parser.add_argument("--seed", type=int, default=1, help="chooses the orders of stopping")
    parser.add_argument("--share", default="1/1", help="run every Nth order only, from the Kth on")
    options = parser.parse_args()
    first, step = map(int, options.share.split("/"))
    orders = list(itertools.permutations(PARTS))
    stops = list(orders)
    Random(options.seed).shuffle(stops)
    failed = 0
    for starts, ends in list(zip(orders, stops, strict=True))[first - 1 :: step]:
        report = order(starts, ends, old=options.old, limited=options.rights == "limited")
        failed += bool(report["findings"])
        print(json.dumps({"starts": starts, "stops": ends, **report}), flush=True)
    print(f"{len(orders[first - 1 :: step])} orders, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
