"""Whatever happens in whatever order, nothing is lost and nothing is settled that was not committed.

The model plays the engine: an offset log, a commit log, a sink. Crashes happen between any two steps, with the logs as
they are; a restart replays an unfinished batch, as Spark does.
"""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.spark.source.desk import Desk, read_between
from twinbus.spark.versions import HAS_LIMITS, ReadMaxRows, UntoldStream
from twinbus.testing import Broker

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 7)),
        st.tuples(st.just("plan"), st.integers(1, 6)),
        st.tuples(st.just("plan and die"), st.integers(1, 6)),
        st.tuples(st.just("read"), st.just(0)),
        st.tuples(st.just("read and die"), st.just(0)),
        st.tuples(st.just("finish"), st.just(0)),
        st.tuples(st.just("commit"), st.just(0)),
        st.tuples(st.just("restart"), st.integers(0, 1)),
    ),
    max_size=25,
)


class Engine:
    """What Spark keeps on disk, and how it calls a source."""

    def __init__(self, desk: Desk, queue: str, mode: str) -> None:
        self.desk = desk
        self.queue = queue
        self.mode = mode
        self.reader: Any = None
        # The offset log: the end of each batch. The commit log: how many of them are done.
        self.offsets: list[dict[str, Any]] = []
        self.done = 0
        self.sent: list[str] = []
        # What the sink holds, by batch: a batch written again replaces itself.
        self.sink: dict[int, list[str]] = {}

    def start(self) -> Any:
        if self.reader is None:
            self.reader = self.desk.stream(queueName=self.queue, readMode=self.mode, maxWaitTime=0.1, numPartitions=2)
        return self.reader

    def die(self) -> None:
        reader, self.reader = self.reader, None
        if reader is not None:
            reader.stop()
        # A driver takes longer to start than the broker's disk to answer: messages settled earlier are gone by then.
        settled = {name for batch, names in self.sink.items() if batch + 1 < len(self.offsets) for name in names}
        deadline = time.monotonic() + 120
        while settled & set(self.desk.ids(self.queue)) and time.monotonic() < deadline:
            time.sleep(0.01)

    def restart(self, *, now: bool) -> None:
        """Begin another run; `now`: with availableNow, where that makes a difference."""
        self.die()

    def offset(self, batch: int) -> dict[str, Any]:
        found: dict[str, Any] = self.offsets[batch] if batch >= 0 else self.start().initialOffset()
        return found

    def send(self, count: int) -> None:
        ids = [str(len(self.sent) + number) for number in range(count)]
        self.desk.fill(self.queue, ids)
        self.sent += ids

    def plan(self, limit: int, *, logged: bool = True) -> None:
        if len(self.offsets) > self.done:
            # Never two batches at once.
            self.finish()
        start = self.offset(len(self.offsets) - 1)
        end = self.start().latestOffset(start, ReadMaxRows(limit))
        if end != start and logged:
            self.offsets.append(end)

    def read(self) -> None:
        if len(self.offsets) > self.done:
            batch = self.done
            rows = read_between(self.start(), self.offset(batch - 1), self.offset(batch))
            self.sink[batch] = [row["messageId"] for row in rows]

    def finish(self) -> None:
        """Read, write, and append to the commit log."""
        if len(self.offsets) > self.done:
            self.read()
            self.done += 1

    def commit(self) -> None:
        if self.done:
            self.start().commit(self.offsets[self.done - 1])

    def check(self) -> None:
        held = set(self.desk.ids(self.queue))
        committed = {name for batch, names in self.sink.items() if batch < self.done for name in names}
        assert set(self.sent) - held <= committed, "settled and never committed"

    def run(self, steps: list[tuple[str, int]]) -> None:
        for step, number in steps:
            if step == "send":
                self.send(number)
            elif step == "plan":
                self.plan(number)
            elif step == "plan and die":
                self.plan(number, logged=False)
                self.die()
            elif step == "read":
                self.read()
            elif step == "read and die":
                self.read()
                self.die()
            elif step == "finish":
                self.finish()
            elif step == "commit":
                self.commit()
            else:
                self.restart(now=bool(number))
            self.check()
        # At the end everything has come through, and nothing is left behind.
        self.finish()
        self.restart(now=False)
        idle = 0
        # A wait for messages may be over before a busy machine has delivered them.
        while idle < 50 and (idle == 0 or self.desk.ids(self.queue)):
            before = len(self.offsets)
            self.plan(100)
            idle = idle + 1 if len(self.offsets) == before else 0
            self.finish()
        self.check()
        assert self.desk.left(self.queue) == []
        written = [name for names in self.sink.values() for name in names]
        assert sorted(written, key=int) == self.sent


class OldEngine(Engine):
    """Spark before 4.2, which asks for the end of a batch without saying where the batch starts."""

    now = False
    # The end of the one batch of a run with availableNow, until it is planned.
    fetched: dict[str, Any] | None = None

    def start(self) -> Any:
        if self.reader is None:
            stream = self.desk.stream(
                queueName=self.queue, readMode=self.mode, maxWaitTime=0.1, numPartitions=2, maxMessagesPerTrigger=3
            )
            self.reader = stream if isinstance(stream, UntoldStream) else UntoldStream(stream)
            self.fetched = self.reader.latestOffset() if self.now else None
            if self.offsets:
                assert self.reader.partitions(self.offsets[-1], self.offsets[-1]) == []
        return self.reader

    def restart(self, *, now: bool) -> None:
        self.die()
        self.now = now

    def plan(self, limit: int, *, logged: bool = True) -> None:
        self.finish()
        if self.now and self.reader is not None and self.fetched is None:
            self.die()
        start = self.offset(len(self.offsets) - 1)
        reader = self.start()
        end, self.fetched = self.fetched or reader.latestOffset(), None
        if logged and (end != start or not self.offsets):
            self.offsets.append(end)
            if len(self.offsets) > 1:
                reader.commit(self.offsets[-2])


@pytest.mark.parametrize("kind", [Engine, OldEngine])
@pytest.mark.parametrize("mode", ["browse", "claim"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
@pytest.mark.timeout(300)
def test_any_order(desk: Desk, broker: Broker, mode: str, kind: type[Engine], steps: list[tuple[str, int]]) -> None:
    if kind is Engine and not HAS_LIMITS:
        pytest.skip("this Spark does not tell a stream where its batches start")
    queue = f"m-{uuid4()}"
    broker.create_queue(queue)
    engine = kind(desk, queue, mode)
    try:
        engine.run(steps)
    finally:
        engine.die()
        broker.delete_queue(queue)
