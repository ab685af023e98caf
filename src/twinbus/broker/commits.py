"""Group commit: what arrives while one commit runs goes into the next.

Commands add to `facts`; `request` asks for a commit. The write transaction is filled on the loop's thread, where none
contends with it, and committed on a thread of its own, which holds no interpreter lock while the disk works. Whoever
waits is answered from `facts.then`, after the disk answered and never before.

For a small commit, such as that of a client that waits for each answer, the loop itself waits a moment while the disk
is quick: being woken by the thread takes longer. A disk that does not answer in that moment holds nobody up: the loop
goes on, the answer comes as usual, and the loop does not wait again before the disk has been quick for a while.
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
from twinbus.limits import COMMIT_ROWS_MAX, PENDING_BYTES_MAX, SLICE_MS
from twinbus.store.facts import Facts
from twinbus.store.lmdb_store import Prepared, Store

logger = logging.getLogger(__name__)

SECONDS_BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
# Calls after a commit between two looks at the time.
_ANSWERS = 8

ROWS_BOUNDS = (1, 4, 16, 64, 256, 1_024, 4_096, 16_384)

# The loop waits for commits of no more rows than this, and no longer than that ...
SMALL_ROWS_MAX = 8
QUICK_S = 0.001
# ... after this many commits in a row that took less.
QUICK_COMMITS = 16


class Handover:
    """A prepared commit on its way to the thread and back."""

    __slots__ = ("failure", "finished", "over", "prepared", "took_s", "waited_for")

    def __init__(self, prepared: Prepared, waited_for: bool) -> None:
        self.prepared = prepared
        # Whether the loop waits for `finished`; if not, it must be called.
        self.waited_for = waited_for
        # Released by the thread when the loop waits.
        self.finished = threading.Lock()
        self.finished.acquire()
        # Set by the thread, last: the two below hold.
        self.over = False
        # Why the commit failed; None when it did not.
        self.failure: BaseException | None = None
        # How long the disk took.
        self.took_s = 0.0

    def commit(self) -> None:
        """On the thread."""
        began_s = time.perf_counter()
        try:
            self.prepared.commit()
        except BaseException as error:
            self.failure = error
        self.took_s = time.perf_counter() - began_s
        self.over = True


class CommitLoop:
    """One for each namespace: its store's only writer."""

    def __init__(self, store: Store, name: str, on_failure: Callable[[BaseException], None]) -> None:
        self._store = store
        # Told once, when the store cannot be written: nothing after that can be promised.
        self._on_failure = on_failure
        # The loop that owns the store, set by start().
        self._loop: asyncio.AbstractEventLoop | None = None
        # What the next commit will write; commands append to it.
        self.facts = Facts()
        # Bytes of messages waiting for a commit: senders are held back when they grow too many.
        self.pending_bytes = 0
        # Called when bytes or rows that wait for a commit fell below their bound again.
        self.on_relief: Callable[[], None] | None = None
        # Called at the end of each turn, when deadlines may have moved.
        self.on_turn: Callable[[], None] | None = None
        # Told of every commit once it is durable, before anybody is answered; None while no backup runs.
        self.follower: Callable[[Facts], None] | None = None
        # The facts being committed now, None when the worker is idle, and the commit itself.
        self._running: Facts | None = None
        self._handover: Handover | None = None
        # Whether a turn is already on its way in this loop iteration.
        self._requested = False
        # What is to be called for commits that are durable, the oldest first.
        self._answers: deque[tuple[Callable[[Any], None], Any]] = deque()
        # Set when the store failed: commits stop for good.
        self.failed = False
        # How long commits took, and how many rows they wrote.
        self.seconds = Histogram(SECONDS_BOUNDS)
        self.rows = Histogram(ROWS_BOUNDS)
        # When the running commit began.
        self._began_s = 0.0
        # How many commits in a row the disk has answered quickly.
        self._quick_commits = 0
        # Set when no commit runs and none waits.
        self._idle = asyncio.Event()
        # Work for the thread; None ends it.
        self._work: SimpleQueue[Handover | None] = SimpleQueue()
        self._committer = threading.Thread(target=self._serve, name=f"commit-{name}", daemon=True)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle.set()
        self._committer.start()

    def request(self) -> None:
        """Have the current facts committed: at once when idle, else right after the running commit."""
        if self._requested or self._running is not None or self._loop is None:
            return
        self._requested = True
        self._idle.clear()
        self._loop.call_soon(self._turn)

    def request_if_needed(self) -> None:
        """The same, for callers that do not know whether they added anything."""
        if self._waiting():
            self.request()

    @property
    def crowded(self) -> bool:
        return self.pending_bytes > PENDING_BYTES_MAX

    @property
    def full(self) -> bool:
        """As many rows wait as one commit should write: whoever has much to add waits until it has begun."""
        facts = self.facts
        return len(facts.index) + len(facts.deletes) + len(facts.bodies) + len(facts.rows) >= COMMIT_ROWS_MAX

    async def drain(self) -> None:
        """Wait until everything asked for is on disk and answered."""
        while not self.failed and (self._requested or self._running is not None or self._answers or self._waiting()):
            self.request()
            await self._idle.wait()

    async def stop(self) -> None:
        await self.drain()
        self._work.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._committer.join)

    def _turn(self, last_answered: bool = True) -> None:
        self._requested = False
        facts = self.facts
        if self.failed or self._running is not None:
            return
        if facts.empty:
            self.facts = Facts()
            self._answer(facts)
            return
        crowded = self.crowded or self.full
        self.facts = Facts()
        self._running = facts
        self.pending_bytes = 0
        self._began_s = time.perf_counter()
        rows = len(facts.bodies) + len(facts.index) + len(facts.rows) + len(facts.deletes)
        self.rows.observe(rows)
        try:
            prepared = self._store.begin(facts)
        except StoreError as error:
            self._fail(error)
            return
        # Not while the answers of the commit before are still to be given: they come first.
        waits = last_answered and rows <= SMALL_ROWS_MAX and self._quick_commits >= QUICK_COMMITS
        self._handover = handover = Handover(prepared, waits)
        self._work.put(handover)
        if crowded and self.on_relief is not None:
            self.on_relief()
        if waits:
            handover.finished.acquire(timeout=QUICK_S)
            # In this order: the thread sets `over` before it looks whether somebody waits.
            handover.waited_for = False
            if handover.over:
                self._done(handover)

    def _serve(self) -> None:
        """The thread."""
        while self._serve_next():
            pass

    def _serve_next(self) -> bool:
        """Make the next commit and tell the loop; False at the end. Its facts are let go before the next is awaited."""
        handover = self._work.get()
        if handover is None:
            return False
        handover.commit()
        if handover.waited_for:
            handover.finished.release()
            return True
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._done, handover)
        except RuntimeError:
            return False  # the loop is gone: the process is ending
        return True

    def _done(self, handover: Handover) -> None:
        if self._handover is not handover:
            return  # the loop waited for it, and heard of it both ways
        self._handover = None
        self._quick_commits = self._quick_commits + 1 if handover.took_s < QUICK_S else 0
        facts = self._running
        self._running = None
        if handover.failure is not None:
            self._fail(handover.failure)
            return
        self.seconds.observe(time.perf_counter() - self._began_s)
        assert facts is not None
        if self.follower is not None:
            self.follower(facts)
        behind = bool(self._answers)
        self._answers.extend(facts.then)
        # The next commit starts before the answers go out, so that the disk works meanwhile.
        if self._waiting():
            self._turn(last_answered=False)
        if not behind:
            self._answer_on()

    def _answer(self, facts: Facts) -> None:
        behind = bool(self._answers)
        self._answers.extend(facts.then)
        if not behind:
            self._answer_on()

    def _answer_on(self) -> None:
        """Call what waits for durable commits, a slice in each turn of the loop."""
        answers = self._answers
        ends_s = 0.0
        while answers:
            for _ in range(min(len(answers), _ANSWERS)):
                # It stays in line until it was called: whoever adds others meanwhile must see that it is not over.
                call, argument = answers[0]
                try:
                    call(argument)
                except Exception:
                    logger.exception("answering after a commit failed")
                answers.popleft()
            now_s = time.perf_counter()
            if not ends_s:
                ends_s = now_s + SLICE_MS / 1000
            elif now_s >= ends_s and answers and self._loop is not None:
                self._loop.call_soon(self._answer_on)
                return
        self._rest()

    def _rest(self) -> None:
        if self.on_turn is not None:
            self.on_turn()
        if self._running is None and not self._requested and not self._answers:
            if self._waiting():
                self.request()
            else:
                self._idle.set()

    def _waiting(self) -> bool:
        return not self.facts.empty or bool(self.facts.then)

    def _fail(self, error: BaseException) -> None:
        self.failed = True
        self._idle.set()
        self._on_failure(error)
