"""Rounds on a real Spark session, between two real brokers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from twinbus.client import BusClient, Message
from twinbus.errors import ConnectionForcedError, InternalError
from twinbus.ledger.files import complete_files
from twinbus.ledger.totals import Totals
from twinbus.paired.homes import NamespaceAnswer, home_of
from twinbus.paired.options import NamespaceAddress
from twinbus.paired.syphon import Pairing
from twinbus.paired.syphon.roster import BacklogRoster, Roster
from twinbus.spark.syphon import rounds as rounds_module
from twinbus.spark.syphon.rounds import Rounds
from twinbus.spark.syphon.task import answer_schema, task_work
from twinbus.testing import Broker

from .conftest import House

# The first test starts the session.
pytestmark = pytest.mark.timeout(120)


def names(count: int, prefix: str = "m") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def until(condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def test_everything_comes_home_in_order(spark: SparkSession, house: House, tmp_path: Path) -> None:
    first, second = house.destination(), house.destination()
    house.divert(first, names(700, "a"), queue=0)
    house.divert(second, names(300, "b"), queue=1)
    rounds = Rounds(spark, house.pairing(tmp_path), house.queues)
    report = rounds.run(once=True)
    assert (report.total.syphoned, report.total.repeated) == (1_000, 0)
    assert report.drained == tuple(house.queues)
    assert (report.undrained, report.missing, report.failing, report.outage) == ((), (), (), "")
    assert rounds.rounds == 1
    assert house.taken(first, 700) == names(700, "a")
    assert house.taken(second, 300) == names(300, "b")
    # The tasks wrote the ledger themselves.
    totals = Totals()
    totals.read(complete_files(tmp_path))
    counts = {(group.entity, group.kind, group.stage): sums.count for group, sums in totals.groups.items()}
    assert counts[house.queues[0], "receive", "from-backlog"] == 700
    assert counts[first, "send", "to-primary"] == 700
    assert counts[house.queues[0], "complete", "from-backlog"] == 700
    assert {group.source for group in totals.groups} == {"syphon"}


def test_several_rounds_and_slots(spark: SparkSession, house: House) -> None:
    path = house.destination()
    house.divert(path, names(2_000))
    rounds = Rounds(spark, house.pairing(), house.queues, slots=2, messages_max=300)
    report = rounds.run(once=True)
    assert rounds.rounds > 1
    assert (report.total.syphoned, report.undrained) == (2_000, ())
    found = house.taken(path, 2_001, wait_s=0.5)
    assert len(found) == len(set(found)) == 2_000


def test_poison_and_absent_destinations_are_dead_lettered(spark: SparkSession, house: House) -> None:
    path = house.destination()
    house.divert(path, names(5))
    house.put([Message(b"no path", message_id="poison").encode()])
    house.divert("nowhere", ["lost"])
    report = Rounds(spark, house.pairing(), [*house.queues, f"{house.name}/x-servicebus-transfer/9"]).run(once=True)
    assert (report.total.syphoned, report.total.dead_lettered) == (5, 2)
    assert report.missing == (f"{house.name}/x-servicebus-transfer/9",)
    assert report.undrained == ()
    dead = {message.message_id: message.application_properties for message in house.dead(0, 2)}
    assert dead["poison"]["DeadLetterReason"] == "CannotBeRestored"
    assert dead["lost"]["DeadLetterReason"] == "DestinationNotFound"
    assert "nowhere" in dead["lost"]["DeadLetterErrorDescription"]


def test_a_busy_destination_holds_up_no_other_and_comes_later(spark: SparkSession, house: House) -> None:
    busy, good = house.destination(), house.destination()
    house.divert(busy, names(200, "busy"), queue=0)
    house.divert(good, names(100, "good"), queue=0)
    house.divert(good, names(100, "more"), queue=1)
    rounds = Rounds(spark, house.pairing(), house.queues)
    result = []
    worker = threading.Thread(target=lambda: result.append(rounds.run(once=True)))
    with house.primary.fault("refusing", busy):
        worker.start()
        assert len(house.taken(good, 200, wait_s=20)) == 200
        until(lambda: rounds.failing == [busy])
        until(lambda: rounds.rounds >= 3)
    worker.join(60)
    (report,) = result
    assert (report.total.syphoned, report.undrained, report.failing) == (400, (), ())
    assert report.total.dead_lettered == 0
    assert sorted(house.taken(busy, 200)) == sorted(names(200, "busy"))


def test_an_absent_primary_is_waited_for(spark: SparkSession, secondary_broker: Broker) -> None:
    with Broker(["first"], sync=False) as primary:
        house = House(primary, secondary_broker)
        path = house.destination()
        house.divert(path, names(50))
        primary.stop()
        rounds = Rounds(spark, house.pairing(), house.queues)
        result = []
        worker = threading.Thread(target=lambda: result.append(rounds.run(once=True)))
        worker.start()
        until(lambda: bool(rounds.outage))
        # Nothing is received in vain.
        assert rounds.tally.total().received == 0
        primary.start()
        worker.join(60)
        assert (result[0].total.syphoned, result[0].outage) == (50, "")
        assert house.taken(path, 50) == names(50)


def test_patience(spark: SparkSession, house: House) -> None:
    path = house.destination()
    house.divert(path, names(3))
    with house.primary.fault("refusing", path):
        report = Rounds(spark, house.pairing(), house.queues).run(once=True, patience_s=0.5)
    assert (report.undrained, report.failing) == ((house.queues[0],), (path,))


def test_without_once_it_waits_and_is_stopped(spark: SparkSession, house: House) -> None:
    path = house.destination()
    house.divert(path, names(30, "a"))
    rounds = Rounds(spark, house.pairing(), house.queues, watch_messages=100)
    result = []
    worker = threading.Thread(target=lambda: result.append(rounds.run()))
    worker.start()
    assert len(house.taken(path, 30, wait_s=30)) == 30
    until(lambda: rounds.state == "waiting")
    assert (rounds.rounds, rounds.tally.total().polls) == (1, 3)
    # The driver moves a few by itself, at once and without a round.
    house.divert(path, names(20, "b"), queue=1)
    assert len(house.taken(path, 20)) == 20
    until(lambda: rounds.tally.total().syphoned == 50)
    assert rounds.rounds == 1
    # Many end the wait.
    house.divert(path, names(500, "c"), queue=2)
    assert len(house.taken(path, 500, wait_s=20)) == 500
    until(lambda: rounds.rounds >= 2 and rounds.state == "waiting")
    rounds.stop()
    worker.join(20)
    assert not worker.is_alive()
    assert result[0].total.syphoned == 550
    assert result[0].total.repeated == 0


def test_a_stop_ends_tasks_in_the_middle(spark: SparkSession, house: House) -> None:
    mute = house.destination()
    house.divert(mute, names(50))
    rounds = Rounds(spark, house.pairing(), house.queues, round_s=60.0)
    worker = threading.Thread(target=rounds.run)
    # A send there may wait half a minute for its answer: only a task that gets the stop signal ends earlier.
    with house.primary.fault("silent", mute):
        worker.start()
        until(lambda: rounds.rounds == 1)
        time.sleep(1.0)
        rounds.stop()
        worker.join(29)
        assert not worker.is_alive()
    report = Rounds(spark, house.pairing(), house.queues).run(once=True)
    # Released, so that nobody has to wait for locks.
    assert report.undrained == ()


def test_no_secret_is_shown(spark: SparkSession, house: House, capfd: pytest.CaptureFixture[str]) -> None:
    pairing = house.pairing()
    secrets = [text.split("SharedAccessKey=")[1].split(";")[0] for text in (pairing.primary, pairing.secondary)]
    work = task_work(pairing, [], {}, None)
    frame = spark.range(0, 1, 1, 1).mapInArrow(work, answer_schema())
    frame.explain("extended")
    report = Rounds(spark, pairing, house.queues).run(once=True)
    shown = capfd.readouterr()
    text = (
        shown.out
        + shown.err
        + repr(pairing)
        + repr(report)
        + str(frame.schema)
        + repr(spark.sparkContext.getConf().getAll())
    )
    assert "mapInArrow" in text or "MapInArrow" in text
    for secret in secrets:
        assert secret not in text
    assert "SharedAccessKey" not in text


class Broken(Pairing):
    """A pairing that fails every task."""

    def syphon(self, *_: object, **__: object) -> None:  # type: ignore[override]
        raise RuntimeError("broken on purpose")


class Deadly(Pairing):
    """A pairing that kills the task's process."""

    def syphon(self, *_: object, **__: object) -> None:  # type: ignore[override]
        os._exit(3)


@pytest.mark.parametrize("kind", [Broken, Deadly])
def test_rounds_that_always_fail_end_it(
    spark: SparkSession, house: House, kind: type[Pairing], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds_module, "SYPHON_ROUND_FAILURES_MAX", 1)
    pairing = house.pairing()
    with pytest.raises(InternalError, match="1 round of the syphon failed") as caught:
        Rounds(spark, kind(pairing.primary, pairing.secondary, pairing.primary_name), house.queues).run(once=True)
    assert "SharedAccessKey" not in str(caught.value)


def test_where_nobody_can_listen_it_works_all_the_same(
    spark: SparkSession, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(99, "Cannot assign requested address")

    monkeypatch.setattr(rounds_module, "StopSignal", refused)
    path = house.destination()
    house.divert(path, names(5))
    assert Rounds(spark, house.pairing(), house.queues).run(once=True).total.syphoned == 5


def test_rounds_are_run_once(spark: SparkSession, house: House) -> None:
    rounds = Rounds(spark, house.pairing(), house.queues)
    rounds.stop()
    # Stopped before it began: nothing is done.
    assert rounds.run(once=True).undrained == tuple(house.queues)
    with pytest.raises(RuntimeError, match="once"):
        rounds.run()
    with pytest.raises(ValueError, match="at least one"):
        Rounds(spark, house.pairing(), [])


def test_a_roster_finds_the_queues_when_the_primary_has_answered(spark: SparkSession, house: House) -> None:
    path = house.destination()
    house.divert(path, names(20))
    pairing = house.pairing()
    roster = pairing.roster(house.name, len(house.queues))
    find_now, asked = roster.find_now, []

    def find_later() -> Roster:
        asked.append(None)
        if len(asked) < 3:
            raise ConnectionForcedError("The primary is away.")
        return find_now()

    roster.find_now = find_later  # type: ignore[method-assign]
    rounds = Rounds(spark, pairing, roster=roster)
    report = rounds.run(once=True)
    assert (len(asked), rounds.rounds) == (3, 1)
    assert (report.total.syphoned, report.outage, report.complete) == (20, "", True)
    assert set(report.drained) == set(house.queues)
    assert sorted(house.taken(path, 20)) == sorted(names(20))


def test_a_primary_that_never_answers_is_an_outage(spark: SparkSession, house: House) -> None:
    nobody = house.pairing().roster(house.name, 3)

    def find_nobody() -> Roster:
        raise ConnectionForcedError("The primary is away.")

    nobody.find_now = find_nobody  # type: ignore[method-assign]
    house.divert(house.destination(), names(3))
    rounds = Rounds(spark, house.pairing(), roster=nobody)
    report = rounds.run(once=True, patience_s=0)
    assert (rounds.rounds, report.total.syphoned) == (0, 0)
    assert report.outage
    assert not report.complete


def test_a_primary_without_any_backlog_queue_needs_no_round(spark: SparkSession, house: House) -> None:
    # It answers, but says neither its name nor its identity, and no queue is surely its own.
    address = NamespaceAddress.parse("sb://127.0.0.1:1")
    home = home_of(address, told=NamespaceAnswer())
    secondary = house.pairing().secondary
    roster = BacklogRoster(lambda: home, None, lambda: BusClient.from_connection_string(secondary), count=2)
    rounds = Rounds(spark, house.pairing(), roster=roster)
    report = rounds.run(once=True)
    assert (rounds.rounds, report.outage, report.found_queues) == (0, "", False)
    # One that goes on waits for queues, and can be stopped.
    waiting = Rounds(spark, house.pairing(), roster=roster)
    worker = threading.Thread(target=waiting.run)
    worker.start()
    until(lambda: waiting.state == "waiting")
    waiting.stop()
    worker.join(60)
    assert not worker.is_alive()
