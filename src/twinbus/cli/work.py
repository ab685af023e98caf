"""Long-running work: it can be interrupted, and a terminal shows its progress.

Rules:
- The first Ctrl-C asks the work to end gracefully and report what was done; the second does not wait.
- Progress is shown on standard error, and only on a terminal, so piped output stays plain.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

T = TypeVar("T")

INTERRUPTED = 130


class Stop(asyncio.Event):
    """Set when the work should end early."""

    async def or_done(self, work: Awaitable[T]) -> T | None:
        """Return the result of `work`, or None if stopped before it is done; then `work` is cancelled."""
        task = asyncio.ensure_future(work)
        waiting = asyncio.ensure_future(self.wait())
        try:
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            return None
        finally:
            waiting.cancel()
            if not task.done():
                task.cancel()


def run(work: Callable[[Stop], Awaitable[T]]) -> T:
    """Run the work to its end; `Stop` tells it to end early."""

    async def running() -> T:
        stop = Stop()
        loop = asyncio.get_running_loop()

        def told() -> None:
            stop.set()
            for each in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(each)

        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, told)
        return await work(stop)

    return asyncio.run(running())


class ProgressCounter:
    """A counter on the terminal; use it with `with`."""

    def __init__(self, text: str, total: int | None = None) -> None:
        self._text = text
        # None if unknown.
        self._total = total
        self.done = 0
        # None without a terminal.
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._progress.add_task(self._text, total=self._total)
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def add(self, count: int = 1, text: str | None = None) -> None:
        """Count on; with a text, the line has another one from now on."""
        self.done += count
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=self.done, description=text)
