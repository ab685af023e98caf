"""Group commit: what arrives while one commit runs goes into the next.

Commands add to `facts`; `request` asks for a commit. The event loop fills the write transaction, and a thread of its
own commits it without holding the interpreter lock while the disk works. The calls in `facts.then` answer clients,
always after the commit is durable.

While clients send more than one turn of the loop can handle, the next commit waits up to GATHER_MS for the rest: a
commit rewrites the pages of every queue it touches, so many small ones cost more than a few large ones.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from twinbus.broker.metering.histogram import Histogram
from twinbus.errors import StoreError
from twinbus.limits import (
    ANSWERS_WAITING_MAX,
    COMMIT_ROWS_MAX,
    GATHER_MS,
    PENDING_BYTES_MAX,
    SLICE_MS,
    SLOW_COMMIT_LOG_INTERVAL_MS,
    SLOW_COMMIT_MS,
)
from twinbus.store.facts import Facts
from twinbus.store.lmdb_store import Prepared, Store

logger = logging.getLogger(__name__)

SECONDS_BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
# Calls made after a commit between two checks of the time.
_ANSWERS = 8

ROWS_BOUNDS = (1, 4, 16, 64, 256, 1_024, 4_096, 16_384)

# So many clients must be behind before a commit waits for more: with few, all they may send is here already.
GATHER_CLIENTS = 4


class CommitLoop:
    """The only writer of a namespace's store."""

    def __init__(self, store: Store, name: str, on_failure: Callable[[BaseException], None]) -> None:
        self._store = store
        self._name = name
        # Called once if the store cannot be written: nothing can be promised after that.
        self._on_failure = on_failure
        # The event loop; set by start().
        self._loop: asyncio.AbstractEventLoop | None = None
        # What the next commit writes; commands append to it.
        self.facts = Facts()
        # Bytes of messages that wait for a commit; senders are paused when there are too many.
        self.pending_bytes = 0
        # Called when the waiting bytes or rows are below their bound again.
        self.on_relief: Callable[[], None] | None = None
        # How many clients have sent more than one turn of the loop can handle.
        self.behind = 0
        # Begins the commit that waits for more; None while none does.
        self._gathering: asyncio.TimerHandle | None = None
        # Called with every durable commit before anybody is answered; None while no backup runs.
        self.follower: Callable[[Facts], None] | None = None
        # The facts being committed, or None.
        self._running: Facts | None = None
        # Whether a turn is already scheduled.
        self._requested = False
        # Calls that are due because their commit is durable, oldest first, and whether they are being made.
        self._answers: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._answering = False
        # The store failed: no more commits.
        self.failed = False
        self.seconds = Histogram(SECONDS_BOUNDS)
        self.rows = Histogram(ROWS_BOUNDS)
        self._began_s = 0.0
        # No log line about a slow commit before that time.
        self._log_slow_after_s = 0.0
        # Set when no commit runs or waits any more; None while nobody waits for that.
        self._idle: asyncio.Event | None = None
        # Work for the thread; None ends it.
        self._work: SimpleQueue[Prepared | None] = SimpleQueue()
        self._committer = threading.Thread(target=self._serve, name=f"commit-{name}", daemon=True)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._committer.start()

    def request(self) -> None:
        """Commit the current facts: at once if idle, otherwise right after the running commit."""
        if self._requested or self._running is not None or self._loop is None:
            return
        self._requested = True
        self._loop.call_soon(self._turn)

    def request_if_needed(self) -> None:
        """Like `request`, for callers that may not have added anything."""
        if self._waiting():
            self.request()

    def hurry(self) -> None:
        """Begin the commit that waits for more: as much waits as should."""
        if self._gathering is not None:
            self._turn()

    def caught_up(self) -> None:
        """A client is no longer behind."""
        self.behind -= 1
        if not self.behind:
            self.hurry()

    @property
    def crowded(self) -> bool:
        return self.pending_bytes > PENDING_BYTES_MAX

    @property
    def full(self) -> bool:
        """Whether as many rows wait as one commit should write, or as many calls as one commit should cause; large jobs
        pause until that commit has begun, or until those calls are made."""
        facts = self.facts
        rows = len(facts.index) + len(facts.deletes) + len(facts.bodies) + len(facts.rows)
        return rows >= COMMIT_ROWS_MAX or len(self._answers) >= ANSWERS_WAITING_MAX

    def index_row(self, key: bytes, stored: bytes) -> bytes:
        """An index row on disk as it will be when everything that waits is durable; GONE_ROW if it will be deleted."""
        value = self.facts.index_row(key)
        if value is None and self._running is not None:
            value = self._running.index_row(key)
        return stored if value is None else value

    async def drain(self) -> None:
        """Wait until everything asked for is on disk and answered."""
        while not self.failed and (self._requested or self._running is not None or self._answering or self._waiting()):
            self.request()
            if self._idle is None:
                self._idle = asyncio.Event()
            await self._idle.wait()

    async def stop(self) -> None:
        await self.drain()
        self._work.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._committer.join)

    def _turn(self) -> None:
        self._requested = False
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        facts = self.facts
        if self.failed or self._running is not None:
            return
        self.facts = Facts()
        rows = len(facts.bodies) + len(facts.index) + len(facts.rows) + len(facts.deletes)
        if not rows:
            self._answer(facts)
            return
        crowded = rows >= COMMIT_ROWS_MAX or self.pending_bytes > PENDING_BYTES_MAX
        self._running = facts
        self.pending_bytes = 0
        self._began_s = time.perf_counter()
        self.rows.observe(rows)
        try:
            prepared = self._store.begin(facts)
        except StoreError as error:
            self._fail(error)
            return
        self._work.put(prepared)
        if crowded and self.on_relief is not None:
            self.on_relief()

    def _serve(self) -> None:
        """The thread's main loop."""
        while self._serve_next():
            pass

    def _serve_next(self) -> bool:
        """Make the next commit and tell the loop; False to stop. Returning frees the facts before the next wait."""
        prepared = self._work.get()
        if prepared is None:
            return False
        failure: BaseException | None = None
        try:
            prepared.commit()
        except BaseException as error:
            failure = error
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._done, failure)
        except RuntimeError:
            return False  # the event loop is closed: the process is ending
        return True

    def _done(self, failure: BaseException | None) -> None:
        facts = self._running
        self._running = None
        if failure is not None:
            self._fail(failure)
            return
        took_s = time.perf_counter() - self._began_s
        self.seconds.observe(took_s)
        if took_s >= SLOW_COMMIT_MS / 1000:
            self._log_slow(took_s)
        assert facts is not None
        if self.follower is not None:
            self.follower(facts)
        # Start the next commit before answering, so that the disk works meanwhile. Calls that wait for none come later.
        if not self.facts.empty:
            if self.behind >= GATHER_CLIENTS and not self.crowded and not self.full:
                self._gather()
            else:
                self._turn()
        self._answer(facts)

    def _log_slow(self, took_s: float) -> None:
        now_s = time.monotonic()
        if now_s >= self._log_slow_after_s:
            self._log_slow_after_s = now_s + SLOW_COMMIT_LOG_INTERVAL_MS / 1000
            logger.warning("a commit of namespace %s took %.1f s: the disk is slow or busy", self._name, took_s)

    def _gather(self) -> None:
        assert self._loop is not None
        self._requested = True
        self._gathering = self._loop.call_later(GATHER_MS / 1000, self._turn)

    def _answer(self, facts: Facts) -> None:
        """Make the calls that waited for a commit which is durable now; long runs of them in slices."""
        if self._answering:
            # Earlier ones first.
            self._answers.extend(facts.then)
            return
        self._answering = True
        if len(facts.then) <= _ANSWERS:
            for call, argument in facts.then:
                try:
                    call(argument)
                except Exception:
                    logger.exception("answering after a commit failed")
        else:
            self._answers.extend(facts.then)
        if self._answers:
            self._answer_on()
        else:
            self._rest()

    def _answer_on(self) -> None:
        """Make the calls that are due, one slice per turn of the loop."""
        answers = self._answers
        was_full = len(answers) >= ANSWERS_WAITING_MAX
        ends_s = time.perf_counter() + SLICE_MS / 1000
        while answers:
            for _ in range(min(len(answers), _ANSWERS)):
                call, argument = answers.popleft()
                try:
                    call(argument)
                except Exception:
                    logger.exception("answering after a commit failed")
            if was_full and len(answers) < ANSWERS_WAITING_MAX and self.on_relief is not None:
                was_full = False
                self.on_relief()
            if answers and time.perf_counter() >= ends_s and self._loop is not None:
                self._loop.call_soon(self._answer_on)
                return
        self._rest()

    def _rest(self) -> None:
        self._answering = False
        if self._running is None and not self._requested:
            if self._waiting():
                self.request()
            else:
                self._end_wait()

    def _end_wait(self) -> None:
        if self._idle is not None:
            self._idle.set()
            self._idle = None

    def _waiting(self) -> bool:
        facts = self.facts
        return bool(facts.then) or not facts.empty

    def _fail(self, error: BaseException) -> None:
        self.failed = True
        self._end_wait()
        self._on_failure(error)
