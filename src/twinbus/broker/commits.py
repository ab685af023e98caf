"""Group commit: what arrives while one commit runs goes into the next.

Commands add to `facts`; `request` asks for a commit. The event loop fills the write transaction, and a thread of its
own commits it without holding the interpreter lock while the disk works. The calls in `facts.then` answer clients,
always after the commit is durable.

After a small commit, such as that of a client that waits for each answer, the loop itself waits for up to QUICK_S if
the disk has been fast: being woken by the thread would take longer. A slow disk holds nobody up: the loop moves on,
the answer arrives as usual, and the loop does not wait again until the disk has been fast for a while.

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
from twinbus.limits import COMMIT_ROWS_MAX, GATHER_MS, PENDING_BYTES_MAX, SLICE_MS
from twinbus.store.facts import Facts
from twinbus.store.lmdb_store import Prepared, Store

logger = logging.getLogger(__name__)

SECONDS_BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
# Calls made after a commit between two checks of the time.
_ANSWERS = 8

ROWS_BOUNDS = (1, 4, 16, 64, 256, 1_024, 4_096, 16_384)

# The loop waits only for commits of at most this many rows, and at most this long ...
SMALL_ROWS_MAX = 8
QUICK_S = 0.001
# ... and only after this many faster commits in a row.
QUICK_COMMITS = 16

# So many clients must be behind before a commit waits for more: with few, all they may send is here already.
GATHER_CLIENTS = 4


class Handover:
    """A prepared commit on its way to the thread and back."""

    __slots__ = ("failure", "finished", "over", "prepared", "took_s", "waited_for")

    def __init__(self, prepared: Prepared, waited_for: bool) -> None:
        self.prepared = prepared
        # Whether the loop waits for `finished`; otherwise the thread schedules `_done`.
        self.waited_for = waited_for
        # Released by the thread if the loop waits; None if it does not.
        self.finished: threading.Lock | None = None
        if waited_for:
            self.finished = threading.Lock()
            self.finished.acquire()
        # The thread sets this last, when the two fields below are valid.
        self.over = False
        # Why the commit failed, or None.
        self.failure: BaseException | None = None
        self.took_s = 0.0

    def commit(self) -> None:
        """Run on the thread."""
        began_s = time.perf_counter()
        try:
            self.prepared.commit()
        except BaseException as error:
            self.failure = error
        self.took_s = time.perf_counter() - began_s
        self.over = True


class CommitLoop:
    """The only writer of a namespace's store."""

    def __init__(self, store: Store, name: str, on_failure: Callable[[BaseException], None]) -> None:
        self._store = store
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
        # Called at the end of each turn, when deadlines may have moved.
        self.on_turn: Callable[[], None] | None = None
        # How many clients have sent more than one turn of the loop can handle.
        self.behind = 0
        # Begins the commit that waits for more; None while none does.
        self._gathering: asyncio.TimerHandle | None = None
        # Called with every durable commit before anybody is answered; None while no backup runs.
        self.follower: Callable[[Facts], None] | None = None
        # The facts being committed, or None, and their handover to the thread.
        self._running: Facts | None = None
        self._handover: Handover | None = None
        # Whether a turn is already scheduled.
        self._requested = False
        # Calls that are due because their commit is durable, oldest first.
        self._answers: deque[tuple[Callable[[Any], None], Any]] = deque()
        # The store failed: no more commits.
        self.failed = False
        self.seconds = Histogram(SECONDS_BOUNDS)
        self.rows = Histogram(ROWS_BOUNDS)
        self._began_s = 0.0
        # Fast commits in a row.
        self._quick_commits = 0
        # Set while no commit runs or waits.
        self._idle = asyncio.Event()
        # Work for the thread; None ends it.
        self._work: SimpleQueue[Handover | None] = SimpleQueue()
        self._committer = threading.Thread(target=self._serve, name=f"commit-{name}", daemon=True)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle.set()
        self._committer.start()

    def request(self) -> None:
        """Commit the current facts: at once if idle, otherwise right after the running commit."""
        if self._requested or self._running is not None or self._loop is None:
            return
        self._requested = True
        self._idle.clear()
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
        """Whether as many rows wait as one commit should write; large jobs pause until that commit has begun."""
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

    def _turn(self) -> None:
        self._requested = False
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        facts = self.facts
        if self.failed or self._running is not None:
            return
        if facts.empty:
            self.facts = Facts()
            self._answer(facts)
            return
        rows = len(facts.bodies) + len(facts.index) + len(facts.rows) + len(facts.deletes)
        crowded = rows >= COMMIT_ROWS_MAX or self.pending_bytes > PENDING_BYTES_MAX
        self.facts = Facts()
        self._running = facts
        self.pending_bytes = 0
        self._began_s = time.perf_counter()
        self.rows.observe(rows)
        try:
            prepared = self._store.begin(facts)
        except StoreError as error:
            self._fail(error)
            return
        # Not while answers to the previous commit are outstanding: they come first.
        waits = not self._answers and rows <= SMALL_ROWS_MAX and self._quick_commits >= QUICK_COMMITS
        self._handover = handover = Handover(prepared, waits)
        self._work.put(handover)
        if crowded and self.on_relief is not None:
            self.on_relief()
        if handover.finished is not None:
            handover.finished.acquire(timeout=QUICK_S)
            # In this order: the thread sets `over` before it checks `waited_for`.
            handover.waited_for = False
            if handover.over:
                self._done(handover)

    def _serve(self) -> None:
        """The thread's main loop."""
        while self._serve_next():
            pass

    def _serve_next(self) -> bool:
        """Commit the next handover and tell the loop; False to stop. Returning frees the facts before the next wait."""
        handover = self._work.get()
        if handover is None:
            return False
        handover.commit()
        if handover.waited_for and handover.finished is not None:
            handover.finished.release()
            return True
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._done, handover)
        except RuntimeError:
            return False  # the event loop is closed: the process is ending
        return True

    def _done(self, handover: Handover) -> None:
        if self._handover is not handover:
            return  # already handled: the loop waited for it and was also called
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
        # Start the next commit before answering, so that the disk works meanwhile.
        if self._waiting():
            if self.behind >= GATHER_CLIENTS and not self.crowded and not self.full:
                self._gather()
            else:
                self._turn()
        if not behind:
            self._answer_on()

    def _gather(self) -> None:
        assert self._loop is not None
        self._requested = True
        self._gathering = self._loop.call_later(GATHER_MS / 1000, self._turn)

    def _answer(self, facts: Facts) -> None:
        behind = bool(self._answers)
        self._answers.extend(facts.then)
        if not behind:
            self._answer_on()

    def _answer_on(self) -> None:
        """Make the calls that waited for durable commits, one slice per turn of the loop."""
        answers = self._answers
        ends_s = 0.0
        while answers:
            for _ in range(min(len(answers), _ANSWERS)):
                # Remove it only after the call, so that others added meanwhile see that answering is still in progress.
                call, argument = answers[0]
                try:
                    call(argument)
                except Exception:
                    logger.exception("answering after a commit failed")
                answers.popleft()
            if not answers:
                break
            now_s = time.perf_counter()
            if not ends_s:
                ends_s = now_s + SLICE_MS / 1000
            elif now_s >= ends_s and self._loop is not None:
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
        facts = self.facts
        return bool(facts.then) or not facts.empty

    def _fail(self, error: BaseException) -> None:
        self.failed = True
        self._idle.set()
        self._on_failure(error)
