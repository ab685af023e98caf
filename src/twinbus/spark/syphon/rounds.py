"""The driver of the syphon on Spark: rounds of tasks while there is a backlog, otherwise one long wait.

    with spark_session("twinbus syphon", brisk=True) as spark:
        report = Rounds(spark, pairing, queues).run(once=True)

- The queues are the state. Between rounds the driver remembers only which destinations fail and for how long they are
  paused. A driver that dies loses nothing; the next one continues.
- Rounds are for a backlog. While there is none, the driver itself waits with one long receive per queue and moves what
  arrives, so waiting costs no more than with the local syphon and holds no executor.
- The driver gets only rows, one for each backlog queue and task.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from twinbus.clock import Clock, MonotonicClock
from twinbus.errors import InternalError, OperationTimeoutError, ServiceError
from twinbus.limits import (
    SYPHON_LOOK_S,
    SYPHON_ROUND_FAILURES_MAX,
    SYPHON_ROUND_MESSAGES,
    SYPHON_ROUND_S,
    SYPHON_WATCH_MESSAGES,
)
from twinbus.paired.syphon.bounds import Bounds
from twinbus.paired.syphon.drain import Pairing, SyphonRun, monitor_thread
from twinbus.paired.syphon.monitor import Counts
from twinbus.paired.syphon.pauses import Pauses
from twinbus.paired.syphon.roster import BacklogRoster
from twinbus.paired.syphon.syphon import PATIENCE_S, Syphon, SyphonReport
from twinbus.paired.syphon.tally import QueueTally, Tally
from twinbus.plan.wording import plural
from twinbus.spark.syphon.shares import shares_of
from twinbus.spark.syphon.stop_signal import StopSignal
from twinbus.spark.syphon.task import COUNTERS, answer_schema, task_work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("twinbus.spark.syphon")

# For Spark's error texts: the cause comes early, followed by pages of stack frames.
_TEXT_CHARS_MAX = 400


class Rounds:
    """Runs a syphon on a Spark session, once. `stop` may be called from any thread or a signal handler."""

    def __init__(
        self,
        spark: SparkSession,
        pairing: Pairing,
        queues: Sequence[str] = (),
        *,
        roster: BacklogRoster | None = None,
        slots: int = 1,
        round_s: float = SYPHON_ROUND_S,
        messages_max: int = SYPHON_ROUND_MESSAGES,
        watch_messages: int = SYPHON_WATCH_MESSAGES,
        counts: Counts | None = None,
        on_round: Callable[[Rounds], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not queues and roster is None:
            raise ValueError("A syphon needs at least one backlog queue.")
        # The caller ends the session.
        self._spark = spark
        self._pairing = pairing
        # Finds the queues; None if they are given.
        self._roster = roster
        self._queues = list(queues) or ([] if roster is None else roster.expected)
        # Whether the queues are known, and when they were last looked for.
        self._found = roster is None
        self._looked_ms: int | None = None
        self._homeless: tuple[str, ...] = ()
        # Tasks per queue at a time, and the bounds of each.
        self._slots = slots
        self._round_s = round_s
        self._messages_max = messages_max
        # How many messages the driver moves by itself before a round is worthwhile.
        self._watch_messages = watch_messages
        # Reports the depth of the queues for the ledger; None to disable.
        self._counts = counts
        self._on_round = on_round
        self._clock = clock or MonotonicClock()
        # Paused destinations, and the pauses between rounds that moved nothing.
        self._pauses = Pauses(self._clock)
        self._stopping = threading.Event()
        self._begun = False
        # Tells the tasks to stop; None before the run, or if the driver cannot listen.
        self._signal: StopSignal | None = None
        self._watch: SyphonRun | None = None
        self._tally = Tally()
        for queue in self._queues:
            # Show all queues from the start.
            self._tally.of(queue)
        # Guards the tally: others read it, and a wait that ends must be counted once.
        self._lock = threading.Lock()
        # The last known state of each queue: empty, missing, or why it could not be received from.
        self._drained: set[str] = set()
        self._missing: set[str] = set()
        self._outages: dict[str, str] = {}
        # Why the primary cannot be reached; empty if it can.
        self._outage = ""
        self._at_work = False
        self.rounds = 0
        self._failures = 0

    # --- what it shows ------------------------------------------------------------------------------------------------

    @property
    def tally(self) -> Tally:
        """Counters by backlog queue: those of finished rounds, plus those of the current wait."""
        with self._lock:
            watching = self._watched
            return _sum(self._tally, Tally() if watching is None else watching.tally)

    @property
    def outage(self) -> str:
        """Why the primary cannot be reached; empty if it can."""
        watching = self._watched
        return self._outage if watching is None else watching.outage

    @property
    def outages(self) -> dict[str, str]:
        """Backlog queues that cannot be received from, and why."""
        watching = self._watched
        return dict(self._outages) if watching is None else watching.outages

    @property
    def failing(self) -> list[str]:
        """Destinations that currently reject messages."""
        watching = self._watched
        return self._pauses.paths() if watching is None else watching.failing

    @property
    def state(self) -> str:
        """What it is doing, in a word or two."""
        return "waiting" if self._watched is not None else f"round {self.rounds}"

    @property
    def _watched(self) -> Syphon | None:
        watch = self._watch
        return None if watch is None else watch.syphon

    # --- life ---------------------------------------------------------------------------------------------------------

    def run(self, *, once: bool = False, patience_s: float = PATIENCE_S) -> SyphonReport:
        """Run until `stop`; with `once`, until the backlog is empty or nothing has moved for `patience_s`."""
        if self._begun:
            raise RuntimeError("Rounds are run once.")
        self._begun = True
        self._signal = self._listening()
        monitor = (
            None if self._counts is None else monitor_thread(self._pairing, self._queues, self._counts, self._waits)
        )
        if monitor is not None:
            monitor.start()
        moved_ms = self._clock.now_ms()
        try:
            while not self._stopping.is_set():
                self._find_queues()
                if not self._found:
                    if once and self._clock.now_ms() - moved_ms > patience_s * 1000:
                        break
                    self._stopping.wait(self._pauses.fail() / 1000)
                    continue
                moved = self._round(self._left() if once else self._queues)
                if self._on_round is not None:
                    self._on_round(self)
                if moved:
                    moved_ms = self._clock.now_ms()
                    self._pauses.succeed()
                if not once:
                    if moved < self._watch_messages:
                        self._wait_for_messages()
                elif not self._left() or self._clock.now_ms() - moved_ms > patience_s * 1000:
                    break
                elif not moved:
                    # Locked, rejected for now, or unreachable: polling costs operations, so pause.
                    self._stopping.wait(self._pauses.fail() / 1000)
        finally:
            if self._signal is not None:
                self._signal.close()
            if monitor is not None:
                monitor.stop()
        return self._report()

    def stop(self) -> None:
        """Stop in an orderly way: tasks finish what they hold and release the rest."""
        self._stopping.set()
        stop_signal, watch = self._signal, self._watch
        if stop_signal is not None:
            stop_signal.send()
        if watch is not None:
            watch.stop()

    def _listening(self) -> StopSignal | None:
        settings = self._spark.sparkContext.getConf()
        host = settings.get("spark.driver.host") or "127.0.0.1"
        try:
            stop_signal = StopSignal(host, settings.get("spark.driver.bindAddress"))
        except OSError as error:
            logger.warning("a stop waits for the end of a round: cannot listen on %s (%s)", host, error.strerror)
            return None
        if self._stopping.is_set():
            stop_signal.send()
        return stop_signal

    def _waits(self, queue: str) -> bool:
        """Whether a backlog queue is known to be empty."""
        watching = self._watched
        if watching is None:
            return not self._at_work and queue in self._drained
        return watching.waits(queue)

    def _left(self) -> list[str]:
        return [queue for queue in self._queues if queue not in self._drained and queue not in self._missing]

    # --- the queues ---------------------------------------------------------------------------------------------------

    def _find_queues(self) -> None:
        """Look for the backlog queues of the primary, at most once a minute after they were found."""
        if self._roster is None:
            return
        now_ms = self._clock.now_ms()
        if self._looked_ms is not None and now_ms - self._looked_ms < SYPHON_LOOK_S * 1000:
            return
        try:
            found = self._roster.find_now()
        except ServiceError as error:
            if not self._found:
                self._outage = error.condition
                logger.warning("the backlog queues are not known yet: %s", error)
            return
        identity = found.home.identity
        if self._found and identity != self._pairing.identity:
            logger.error("another namespace answers as the primary %s: restart the syphon for it", found.home.name)
            return
        if not self._found:
            self._found, self._outage = True, ""
            self._pairing = replace(self._pairing, primary_name=found.home.name, identity=identity)
            self._pauses.succeed()
            self._queues.clear()
        self._looked_ms = now_ms
        self._homeless = found.homeless
        self._add_queues(found.own)

    def _add_queues(self, queues: Iterable[str]) -> None:
        with self._lock:
            for queue in queues:
                if queue not in self._queues:
                    # In place: the monitor has the list, too.
                    self._queues.append(queue)
                    self._tally.of(queue)

    # --- a round ------------------------------------------------------------------------------------------------------

    def _round(self, queues: Sequence[str]) -> int:
        """Run tasks on these queues; returns how many messages were settled."""
        from py4j.protocol import Py4JError, Py4JJavaError
        from pyspark.errors import PySparkException

        if not queues:
            # None is surely the primary's yet.
            return 0
        tasks = max(self._spark.sparkContext.defaultParallelism, 1)
        shares = shares_of(queues, tasks, slots=self._slots, messages_max=self._messages_max, seconds_max=self._round_s)
        work = task_work(
            self._pairing, shares, self._pauses.told(), None if self._signal is None else self._signal.address
        )
        self.rounds += 1
        self._at_work = True
        try:
            # A range with as many slices as numbers gives each share its own task.
            numbers = self._spark.range(0, len(shares), 1, len(shares))
            answers = numbers.mapInArrow(work, answer_schema()).collect()
        except (PySparkException, Py4JJavaError) as error:
            # pyspark raises the second when executors were lost too often.
            self._fail(error)
            return 0
        except Py4JError as error:
            raise InternalError(f"Spark's JVM does not respond ({type(error).__name__}).") from error
        finally:
            self._at_work = False
        self._failures = 0
        return self._take(answers)

    def _fail(self, error: Exception) -> None:
        """A round's tasks failed repeatedly: messages they held return when their locks expire."""
        self._failures += 1
        text = " ".join(str(error).split())[:_TEXT_CHARS_MAX] or type(error).__name__
        if self._failures >= SYPHON_ROUND_FAILURES_MAX:
            raise InternalError(f"{plural(self._failures, 'round')} of the syphon failed in a row: {text}") from error
        logger.warning("round %d of the syphon failed: %s", self.rounds, text)
        self._stopping.wait(self._pauses.fail() / 1000)

    def _take(self, answers: Iterable[Any]) -> int:
        failing: dict[str, tuple[int, int]] = {}
        cleared: set[str] = set()
        outages: set[str] = set()
        moved = 0
        seen: set[str] = set()
        for row in answers:
            queue = row["queue"]
            if queue not in seen:
                seen.add(queue)
                self._drained.discard(queue)
                self._missing.discard(queue)
                self._outages.pop(queue, None)
            counts = QueueTally(**{name: row[name] for name in COUNTERS})
            with self._lock:
                _add(self._tally.of(queue), counts)
            moved += counts.syphoned + counts.dead_lettered
            if row["drained"]:
                self._drained.add(queue)
            if row["missing"]:
                self._missing.add(queue)
            if row["outage"]:
                self._outages[queue] = row["outage"]
            outages.add(row["primary_outage"])
            cleared.update(row["cleared"])
            for each in row["failing"]:
                known = failing.get(each["path"], (0, 0))
                failing[each["path"]] = (max(known[0], each["failures"]), max(known[1], each["left_ms"]))
        self._outage = max(outages, default="")
        for path in self._pauses.paths():
            self._pauses.succeed(path)
        self._pauses.tell({path: each for path, each in failing.items() if path not in cleared})
        return moved

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _wait_for_messages(self) -> None:
        """Run a local syphon until so much has arrived that a round is worthwhile."""
        told = self._pauses.told()
        watch = SyphonRun(lambda: self._pairing.syphon(self._queues, failing=told, roster=self._roster))
        self._watch = watch
        if self._stopping.is_set():
            watch.stop()
        report = watch.run(bounds=Bounds(messages_max=self._watch_messages))
        assert watch.syphon is not None
        with self._lock:
            self._tally = _sum(self._tally, watch.syphon.tally)
            self._watch = None
        self._outage, self._outages = report.outage, watch.syphon.outages
        if watch.syphon.identity == self._pairing.identity:
            self._add_queues(watch.syphon.queues)
        self._homeless = report.homeless
        self._drained.clear()
        self._missing = set(report.missing)
        for path in self._pauses.paths():
            self._pauses.succeed(path)
        self._pauses.tell(watch.syphon.pauses.told())

    def _report(self) -> SyphonReport:
        return SyphonReport(
            total=self._tally.total(),
            queues=self._tally.as_dict(),
            drained=tuple(queue for queue in self._queues if queue in self._drained and queue not in self._missing),
            undrained=tuple(self._left()),
            missing=tuple(queue for queue in self._queues if queue in self._missing),
            failing=tuple(self._pauses.paths()),
            # Without an answer until now, the primary counts as away.
            outage=self._outage or ("" if self._found else OperationTimeoutError.condition),
            homeless=self._homeless,
        )


def _add(sums: QueueTally, more: QueueTally) -> None:
    for field in fields(QueueTally):
        setattr(sums, field.name, getattr(sums, field.name) + getattr(more, field.name))


def _sum(first: Tally, second: Tally) -> Tally:
    both = Tally()
    for tally in (first, second):
        for queue, counts in list(tally.queues.items()):
            _add(both.of(queue), counts)
    return both
