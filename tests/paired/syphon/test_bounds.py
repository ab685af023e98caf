"""Bounded runs: they end when they should, finish what they have, and report what is left."""

from __future__ import annotations

import asyncio
import pickle
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from twinbus.client import BusClient
from twinbus.clock import SteppedClock
from twinbus.errors import ConfigError
from twinbus.ledger.files import complete_files
from twinbus.ledger.totals import Totals
from twinbus.limits import SYPHON_BATCH_MESSAGES
from twinbus.paired.syphon import Bounds, Pairing, SyphonRun, drain
from twinbus.paired.syphon.drain import _listen, name_of
from twinbus.paired.syphon.intake import _ONCE_S
from twinbus.paired.syphon.pauses import Pauses
from twinbus.testing import Broker

from .conftest import Pair, until
from .test_syphon import numbered

BRIEF = Bounds(brief=True)


def pairing_of(pair: Pair, ledger: Path | None = None) -> Pairing:
    return Pairing(
        pair.primary.connection_string(),
        pair.secondary.connection_string(),
        pair.name,
        ledger=None if ledger is None else str(ledger),
    )


@pytest.mark.parametrize("bounds", [{"messages_max": 0}, {"seconds_max": 0}])
def test_bounds_are_checked(bounds: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(bounds))):
        Bounds(**bounds)


async def test_a_brief_run_ends_with_the_backlog(pair: Pair) -> None:
    path = pair.destination()
    await pair.divert(path, numbered(600), queue=1)
    started = time.monotonic()
    report = await pair.syphon().run(bounds=BRIEF)
    took_s = time.monotonic() - started
    assert (report.total.syphoned, report.drained, report.undrained) == (600, tuple(pair.queues), ())
    # One empty receive per queue; each waits, so there are more only while the last messages take their time.
    assert report.total.polls <= len(pair.queues) * (1 + took_s / _ONCE_S)
    assert len(await pair.taken(path, 600)) == 600


async def test_a_run_ends_with_its_messages(pair: Pair) -> None:
    path = pair.destination()
    await pair.divert(path, numbered(1_500))
    report = await pair.syphon().run(bounds=Bounds(messages_max=400, brief=True))
    # Messages in progress are finished, and none of them is repeated.
    assert 400 <= report.total.syphoned <= 400 + SYPHON_BATCH_MESSAGES
    assert report.total.repeated == 0
    assert pair.queues[0] in report.undrained
    assert await pair.syphon().run(bounds=BRIEF) is not None
    found = [message.message_id for message in await pair.taken(path, 1_500)]
    assert found == [f"m{n}" for n in range(1_500)]


async def test_a_run_ends_with_its_time(pair: Pair) -> None:
    started = time.monotonic()
    report = await pair.syphon().run(bounds=Bounds(seconds_max=0.5))
    assert time.monotonic() - started >= 0.5
    assert report.total.received == 0


async def test_a_bad_destination_ends_a_brief_run_and_is_told_to_the_next(pair: Pair) -> None:
    bad, good = pair.destination(), pair.destination()
    # The bad ones are in front, and more than the run may settle.
    await pair.divert(bad, numbered(500, "bad"))
    await pair.divert(good, numbered(60, "good"))
    pairing = pairing_of(pair)
    bounds = Bounds(messages_max=300, seconds_max=20, brief=True)
    with pair.primary.fault("refusing", bad):
        first = await asyncio.to_thread(drain, pairing, pair.queues, bounds)
        assert (first.report.total.syphoned, first.report.failing) == (60, (bad,))
        assert first.report.undrained == (pair.queues[0],)
        failures, left_ms = first.failing[bad]
        assert failures >= 1
        assert 0 < left_ms <= 60_000
        # The next run knows it and does not try: it releases what it must not send.
        left_alone = {bad: (failures, 60_000)}
        second = await asyncio.to_thread(drain, pairing, pair.queues, bounds, failing=left_alone)
        assert second.report.total.left == 0
        assert second.failing[bad][0] == failures
        assert second.cleared == ()
    third = await asyncio.to_thread(drain, pairing, pair.queues, BRIEF, failing={bad: (failures, 0)})
    assert (third.report.total.syphoned, third.failing, third.cleared) == (500, {}, (bad,))
    assert len(await pair.taken(bad, 500)) == 500


async def test_what_a_brief_run_cannot_send_is_unlocked(pair: Pair) -> None:
    path = pair.destination()
    await pair.divert(path, numbered(40))
    with pair.primary.fault("refusing", path):
        report = await pair.syphon().run(bounds=BRIEF)
    assert (report.failing, report.undrained) == ((path,), (pair.queues[0],))
    async with BusClient.from_connection_string(pair.secondary.connection_string()) as client:
        receiver = await client.receiver(pair.queues[0])
        messages = await receiver.receive_batch(40, 2)
        assert len(messages) == 40
        receiver.release(messages)


async def test_what_somebody_else_has_locked_ends_a_brief_run(pair: Pair) -> None:
    await pair.divert(pair.destination(), numbered(5))
    async with BusClient.from_connection_string(pair.secondary.connection_string()) as client:
        receiver = await client.receiver(pair.queues[0])
        assert len(await receiver.receive_batch(5, 2)) == 5
        report = await pair.syphon().run(bounds=BRIEF)
        assert (report.undrained, report.total.polls) == ((pair.queues[0],), 2)


async def test_an_absent_primary_costs_no_receive(secondary_broker: Broker) -> None:
    with Broker(["first"], sync=False) as primary:
        pair = Pair(primary, secondary_broker)
        await pair.divert(pair.destination(), numbered(5))
    report = await pair.syphon().run(bounds=BRIEF)
    assert report.outage
    assert (report.total.received, report.total.polls) == (0, 0)


async def test_an_absent_secondary_ends_a_brief_run(primary_broker: Broker) -> None:
    with Broker(["second"], sync=False) as secondary:
        pair = Pair(primary_broker, secondary)
    drained = await asyncio.to_thread(drain, pairing_of(pair), pair.queues, BRIEF)
    assert set(drained.outages) == set(drained.report.undrained) == set(pair.queues)


async def test_a_bell_that_rings_stops_a_run(pair: Pair) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        rung: list[socket.socket] = []
        ringer = threading.Thread(target=lambda: rung.append(server.accept()[0]))
        ringer.start()
        run = SyphonRun(lambda: pairing_of(pair).syphon(pair.queues))
        running = asyncio.create_task(
            asyncio.to_thread(run.run, bounds=Bounds(seconds_max=50), stop_address=server.getsockname())
        )
        await until(lambda: bool(rung))
        ringer.join()
        assert not running.done()
        rung[0].close()
        async with asyncio.timeout(120):
            await running


async def test_a_run_is_stopped_from_outside(pair: Pair) -> None:
    path = pair.destination()
    await pair.divert(path, numbered(3))
    run = SyphonRun(lambda: pairing_of(pair).syphon(pair.queues))
    running = asyncio.create_task(asyncio.to_thread(run.run, bounds=Bounds()))
    assert len(await pair.taken(path, 3)) == 3
    run.stop()
    async with asyncio.timeout(120):
        assert (await running).total.syphoned == 3
    # A run that is stopped before it begins does nothing.
    early = SyphonRun(lambda: pairing_of(pair).syphon(pair.queues))
    early.stop()
    assert (await asyncio.to_thread(early.run, bounds=Bounds(seconds_max=30))).total.polls == 0


def test_pauses_are_handed_on() -> None:
    clock = SteppedClock()
    first = Pauses(clock, first_ms=1_000, longest_ms=8_000, draw=lambda: 1.0)
    assert [first.fail("a"), first.fail("a"), first.fail("b")] == [1_000, 2_000, 1_000]
    clock.step(ms=500)
    assert first.told() == {"a": (2, 1_500), "b": (1, 500)}
    second = Pauses(clock, first_ms=1_000, longest_ms=8_000, draw=lambda: 1.0)
    second.tell(first.told())
    assert second.paths() == ["a", "b"]
    assert second.left_ms("a") == 1_500
    # It continues to grow from there.
    assert second.fail("a") == 4_000


def test_a_pairing_shows_no_secret(pair: Pair) -> None:
    pairing = pairing_of(pair)
    assert "SharedAccessKey" not in repr(pairing)
    assert pickle.loads(pickle.dumps(pairing)) == pairing


async def test_over_tls_by_the_text_of_a_ca(pair: Pair) -> None:
    """As on another machine, which does not have the CA's file."""
    path = pair.destination()
    await pair.divert(path, numbered(5))
    texts = [
        broker.connection_string().replace("UseDevelopmentEmulator=true", "").rstrip(";")
        for broker in (pair.primary, pair.secondary)
    ]
    both = pair.primary.ca_file.read_text() + pair.secondary.ca_file.read_text()
    drained = await asyncio.to_thread(drain, Pairing(texts[0], texts[1], pair.name, ca=both), pair.queues, BRIEF)
    assert drained.report.total.syphoned == 5
    assert len(await pair.taken(path, 5)) == 5
    with pytest.raises(ConfigError, match="CA's certificate"):
        Pairing(texts[0], texts[1], pair.name, ca="nonsense")


def test_the_name_of_a_primary(pair: Pair) -> None:
    key = "SharedAccessKeyName=n;SharedAccessKey=a2V5"
    assert name_of(f"Endpoint=sb://contoso.servicebus.windows.net/;{key}") == "contoso"
    # The namespace reports its name; one that does not answer is named after its address.
    assert name_of(pair.primary.connection_string(), pair.primary.ca_file) == "first"
    assert name_of(f"Endpoint=sb://localhost:1;{key}") == "localhost-1"


# --- what it costs to wait --------------------------------------------------------------------------------------------


class SteppedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time can be advanced: waits end at once."""

    stepped_s = 0.0

    def time(self) -> float:
        return super().time() + self.stepped_s

    def waits(self, least_s: float) -> int:
        """How many timers have at least `least_s` to go."""
        return sum(not each.cancelled() and each.when() - self.time() >= least_s for each in self._scheduled)  # type: ignore[attr-defined]


def test_an_idle_hour_is_four_receives_a_queue(tmp_path: Path, primary_broker: Broker) -> None:
    """10 queues: 40 receives an hour, 960 a day; the broker, the syphon's ledger and its counters agree."""
    with Broker(["second"], sync=False, ledger=tmp_path / "broker") as secondary:
        pair = Pair(primary_broker, secondary, 10)

        async def hour() -> int:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, SteppedLoop)
            # The real syphon, with its own long receive.
            syphon = pairing_of(pair, tmp_path / "syphon").syphon(pair.queues)
            running = asyncio.create_task(syphon.run())
            for quarter in range(4):
                # Each queue's receive has begun.
                await until(lambda: loop.waits(890) >= 10, 60)
                loop.stepped_s += 890
                await asyncio.sleep(0.3)
                assert syphon.tally.total().polls == quarter * 10
                loop.stepped_s += 10
                await until(lambda before=quarter: syphon.tally.total().polls >= (before + 1) * 10, 60)
            # Let the last receives get their credit: ended early, they returned nothing and cost nothing.
            await asyncio.sleep(0.3)
            syphon.stop()
            return (await running).total.polls

        with asyncio.Runner(loop_factory=SteppedLoop) as runner:
            assert runner.run(hour()) == 40
    operations = {}
    for name in ("broker", "syphon"):
        totals = Totals()
        totals.read(complete_files(tmp_path / name))
        operations[name] = {
            (group.kind, group.entity): sums.count
            for group, sums in totals.groups.items()
            if "transfer" in group.entity
        }
    assert operations["syphon"] == {("empty-poll", queue): 4 for queue in pair.queues}
    # The broker counts one more of each: the receive that the end interrupted.
    assert {kind for kind, _ in operations["broker"]} == {"empty-poll"}
    assert set(operations["broker"].values()) <= {4, 5}


def test_only_a_ca_and_tls_make_a_context(primary_broker: Broker) -> None:
    secured = "Endpoint=sb://{}.example.net/;SharedAccessKeyName=n;SharedAccessKey=k"
    plain = secured + ";UseDevelopmentEmulator=true"
    ca = primary_broker.ca_file.read_text()
    assert Pairing(secured.format("a"), secured.format("b"), "a").tls(secured) is None
    with_ca = Pairing(secured.format("a"), secured.format("b"), "a", ca=ca)
    assert with_ca.tls(secured) is not None
    assert with_ca.tls(plain) is None


async def test_a_run_stops_when_the_connection_to_its_stop_address_closes() -> None:
    connected, stopped = asyncio.Event(), asyncio.Event()
    writers: list[asyncio.StreamWriter] = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        connected.set()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    listening = asyncio.create_task(_listen(address, SimpleNamespace(stop=stopped.set)))  # type: ignore[arg-type]
    await connected.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not stopped.is_set()
    writers[0].close()
    await listening
    assert stopped.is_set()
    server.close()
