"""A real outage from start to end: the primary is killed, sends continue, it returns, and Spark brings them home."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from twinbus.client import Message
from twinbus.client.envelope import wrap
from twinbus.ledger.files import complete_files
from twinbus.ledger.records import Backlog, decode
from twinbus.ledger.totals import Totals

from .outage_load import BEFORE
from .processes import BrokerProcess, secrets, syphon_process, until

LOAD = Path(__file__).with_name("outage_load.py")
SENDS = 60
QUEUES = 3


def send_through_an_outage(primary: BrokerProcess, secondary: BrokerProcess) -> dict[str, Any]:
    """An application sends while the primary is up and while it is down; returns its results."""
    process = subprocess.Popen(
        [sys.executable, str(LOAD), primary.name, str(secondary.ca), str(QUEUES), str(SENDS)],
        env={**os.environ, **secrets(primary, secondary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "sent\n"
    primary.kill()
    out, _ = process.communicate("go on\n", timeout=60)
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.timeout(180)
def test_the_syphon_after_a_real_outage(tmp_path: Path) -> None:
    entities = "[namespaces.contoso.queues.orders]\n[namespaces.contoso.topics.news.subscriptions.all]\n"
    with (
        BrokerProcess(tmp_path, "contoso", entities) as primary,
        BrokerProcess(tmp_path, "fabrikam") as secondary,
    ):
        sent = send_through_an_outage(primary, secondary)
        assert (sent["diverted"], len(sent["ids"])) == (2 * SENDS, 2 * SENDS + BEFORE)
        # A message that no syphon can deliver.
        queue = "contoso/x-servicebus-transfer/0"
        poison = Message(b"no path", message_id="poison").encode()
        secondary.put(queue, [poison, wrap(Message(b"x", message_id="lost").encode(), "nowhere")])
        primary.start()

        log, ledger = tmp_path / "events", tmp_path / "ledger"
        log.mkdir()
        logging = {"enabled": "true", "compress": "false", "dir": f"file://{log}"}
        settings = " ".join(f"--conf spark.eventLog.{name}={value}" for name, value in logging.items())
        process = syphon_process(
            primary,
            secondary,
            *("--once", "--json", "--master", "local[2]"),
            *("--backlog-queue-count", str(QUEUES), "--ledger", str(ledger), "--ca-file", str(secondary.ca)),
            environment={"PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell"},
        )
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        result = json.loads(out.splitlines()[-1])
        assert (result["syphoned"], result["dead_lettered"], result["undrained"]) == (2 * SENDS, 2, [])

        orders = [str(message.message_id) for message in primary.taken("orders", SENDS + BEFORE)]
        news = [str(message.message_id) for message in primary.taken("news/Subscriptions/all", SENDS)]
        assert sorted(orders + news) == sorted(sent["ids"])
        dead = {m.message_id: m.application_properties for m in secondary.taken(f"{queue}/$DeadLetterQueue", 2)}
        assert dead["poison"]["DeadLetterReason"] == "CannotBeRestored"
        assert dead["lost"]["DeadLetterReason"] == "DestinationNotFound"

        totals = Totals()
        totals.read(complete_files(ledger))
        sends = {group.entity: sums.count for group, sums in totals.groups.items() if group.kind == "send"}
        assert (sends["orders"], sends["news"]) == (SENDS, SENDS)

        # The driver recorded the backlog: first with messages, then without.
        records = [decode(line) for file in complete_files(ledger) for line in file.read_bytes().splitlines()]
        looks = sorted((each for each in records if isinstance(each, Backlog)), key=lambda look: look.start_ms)
        assert sum({look.entity: look.depth for look in reversed(looks)}.values()) == 2 * SENDS + 2
        assert set({look.entity: look.depth for look in looks}.values()) == {0}
        assert max(look.oldest_ms for look in looks) > 1_000

        # Spark logged all that it knows of the job; the keys are not in it.
        logged = "".join(path.read_text(errors="replace") for path in log.rglob("*") if path.is_file())
        assert "mapInArrow" in logged or "MapInArrow" in logged
        for broker in (primary, secondary):
            assert broker.key not in logged + out + err
        assert "SharedAccessKey" not in logged


@pytest.mark.timeout(180)
def test_a_signal_ends_it_in_good_order(tmp_path: Path) -> None:
    entities = "[namespaces.contoso.queues.orders]\n"
    backlog = '[namespaces.fabrikam.queues."contoso/x-servicebus-transfer/0"]\n'
    with (
        BrokerProcess(tmp_path, "contoso", entities) as primary,
        BrokerProcess(tmp_path, "fabrikam", backlog) as secondary,
    ):
        queue = "contoso/x-servicebus-transfer/0"
        names = [f"m{number}" for number in range(300)]
        secondary.put(queue, [wrap(Message(b"x", message_id=name).encode(), "orders") for name in names])
        process = syphon_process(primary, secondary, "--json", "--master", "local[2]", "--backlog-queue-count", "1")
        assert len(primary.taken("orders", 300, wait_s=60)) == 300
        assert process.stdout is not None
        while json.loads(process.stdout.readline())["state"] != "waiting":
            pass
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0, err
        assert json.loads(out.splitlines()[-1])["syphoned"] == 300


@pytest.mark.timeout(120)
def test_a_signal_while_spark_starts(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, "contoso") as primary, BrokerProcess(tmp_path, "fabrikam") as secondary:
        process = syphon_process(primary, secondary, "--master", "local[2]", "--backlog-queue-count", "1")
        # Its JVM starts before anything else of Spark.
        until(lambda: has_child(process.pid), 60)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 0, err
        assert "before Spark had started" in err


def has_child(pid: int) -> bool:
    return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
