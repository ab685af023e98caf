"""`twinbus report` over the ledgers of a real outage, written by two brokers, a paired client and its syphon."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from azure.servicebus import ServiceBusMessage

from twinbus.cli.main import run
from twinbus.paired import PairedEvent
from twinbus.paired.aio import PairedServiceBusClient
from twinbus.testing import Broker

if TYPE_CHECKING:
    from tests.browser import Browser

BEFORE, DURING, AFTER = 10, 25, 5


async def live_through_an_outage(primary: Broker, secondary: Broker, bundle: Path, ledger: Path) -> None:
    """Send before, during and after; receive all of it."""
    events: list[PairedEvent] = []
    client = PairedServiceBusClient.from_connection_strings(
        primary.connection_string(),
        secondary.connection_string(),
        primary_name="contoso",
        backlog_queue_count=2,
        failover_interval=0,
        ping_primary_interval=1,
        try_timeout=2,
        retry_total=0,
        enable_syphon=True,
        ledger=ledger,
        on_event=events.append,
        admin_options={"connection_verify": str(bundle)},
    )

    async def until(kind: str) -> None:
        async with asyncio.timeout(30):
            while not any(event.kind == kind for event in events):
                await asyncio.sleep(0.02)

    async with client, client.get_queue_sender("orders") as sender:

        async def send(count: int, name: str) -> None:
            for number in range(count):
                await sender.send_messages(ServiceBusMessage(b"x" * 500, message_id=f"{name}-{number}"))

        await send(BEFORE, "before")
        with primary.fault("down"):
            await send(DURING, "during")
        await until("failed-back")
        await send(AFTER, "after")
        found: list[str] = []
        async with client.get_queue_receiver("orders") as receiver:
            async with asyncio.timeout(40):
                while len(found) < BEFORE + DURING + AFTER:
                    for message in await receiver.receive_messages(max_message_count=50, max_wait_time=1):
                        await receiver.complete_message(message)
                        found.append(str(message.message_id))
        assert len(set(found)) == BEFORE + DURING + AFTER


@pytest.mark.timeout(300)
def test_the_report_of_a_real_outage(tmp_path: Path, browser: Browser) -> None:
    ledgers = [tmp_path / name for name in ("primary", "secondary", "client")]
    with (
        Broker(["contoso"], ["orders"], sync=False, allow_faults=True, ledger=ledgers[0]) as primary,
        Broker(["fabrikam"], sync=False, ledger=ledgers[1]) as secondary,
    ):
        bundle = tmp_path / "both.pem"
        bundle.write_text(primary.ca_file.read_text() + secondary.ca_file.read_text())
        with warnings.catch_warnings():
            # The SDK leaves sockets open when a connection fails; that is not tested here.
            warnings.simplefilter("ignore", ResourceWarning)
            asyncio.run(live_through_an_outage(primary, secondary, bundle, ledgers[2]))
            gc.collect()
    output = tmp_path / "report.html"
    given = [argument for ledger in ledgers for argument in ("--ledger", str(ledger))]
    # Its own process: its session must not be the one that the other tests share.
    command = [sys.executable, "-m", "twinbus", "report", *given, "--tables", str(tmp_path / "tables"), "--json"]
    done = subprocess.run(
        [*command, "--output", str(output), "--master", "local[2]"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    stages = {name: cost["count"] for name, cost in found["stages"].items()}
    assert stages["to-backlog"] == stages["to-primary"] == DURING
    # Messages that the syphon received while the primary was down were released, and received again.
    assert DURING <= stages["from-backlog"] <= 4 * DURING
    # Direct sends, and the receives of all messages; those that came too late for a call of the SDK's receiver are
    # released and received again.
    received = BEFORE + DURING + AFTER
    assert received <= stages["direct"] - BEFORE - AFTER <= 4 * received
    (episode,) = found["episodes"]
    assert (episode["entity"], episode["diverted"], episode["syphoned"]) == ("orders", DURING, DURING)
    (outage,) = found["outages"]
    assert (outage["operations"]["to-backlog"], outage["operations"]["ping"] >= 1) == (DURING, True)
    assert found["latency"]["count"] == DURING
    assert found["sentence"].startswith("The outage of ")
    assert f"diverted {DURING} messages of 1 entity" in found["sentence"]
    assert found["quarantined"] == 0
    assert f"page: {output}" in done.stderr

    browser.open(output.as_uri())
    browser.sees(f"diverted {DURING} messages of 1 entity", ".headline")
    charts = [each for each in browser.all("figure svg") if each.is_displayed()]
    assert len(charts) >= 5
    assert all(each.size["width"] > 300 and each.size["height"] > 50 for each in charts)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--tables", "nowhere"], "There are no tables in nowhere: give --tables DIR, or --ledger DIR to create them."),
        (["--ledger", "nowhere"], "There is no ledger in nowhere"),
        (["--tables", ".", "--from", "noon"], "'noon' is not a time"),
        (
            ["--tables", ".", "--from", "2026-11-16", "--to", "2026-11-15"],
            "--to 2026-11-15 is not after --from 2026-11-16",
        ),
        (["--tables", ".", "--output", "no/such/report.html"], "There is no folder"),
        (["--tables", ".", "--prices", "golden"], "Unknown price sheet 'golden'"),
    ],
)
def test_what_is_wrong_is_said_before_spark_starts(
    arguments: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("twinbus.spark.session.spark_session", None)
    with pytest.raises(SystemExit) as caught:
        run(["report", *arguments])
    assert caught.value.code == 2
    assert text in capsys.readouterr().err
