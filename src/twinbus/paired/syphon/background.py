"""A syphon inside an application, as a task for asyncio and as a thread otherwise.

- In an asyncio application it is a task on the application's own loop, because its credentials belong there. Otherwise
  it has its own thread and loop.
- It ends with its owner and releases the messages it holds.
- A failure is reported to its owner, once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from twinbus.limits import SYPHON_STOP_S
from twinbus.paired.syphon.bounds import UNBOUNDED
from twinbus.paired.syphon.drain import SyphonRun
from twinbus.paired.syphon.shared import logger
from twinbus.paired.syphon.syphon import Syphon

# Includes the time to close links and connections.
_END_S = SYPHON_STOP_S + 10.0

Make = Callable[[], Syphon]
Failed = Callable[[BaseException], None]


class AsyncBackgroundSyphon:
    """A syphon as a task."""

    def __init__(self, make: Make, on_failure: Failed) -> None:
        # Creates the syphon, on the loop it runs on.
        self._make = make
        self._on_failure = on_failure
        # None before the start.
        self.syphon: Syphon | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self.syphon = self._make()
            self._task = asyncio.get_running_loop().create_task(self._run(self.syphon))

    async def _run(self, syphon: Syphon) -> None:
        try:
            await syphon.run()
        except Exception as error:
            logger.exception("the syphon failed")
            self._on_failure(error)

    async def stop(self) -> None:
        """Stop it in an orderly way."""
        if self._task is None or self.syphon is None:
            return
        self.syphon.stop()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._task, _END_S)


class BackgroundSyphon:
    """A syphon in a thread."""

    def __init__(self, make: Make, on_failure: Failed) -> None:
        self._syphon_run = SyphonRun(make)
        self._on_failure = on_failure
        # None before the start.
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="twinbus-syphon", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            self._syphon_run.run(bounds=UNBOUNDED)
        except Exception as error:
            logger.exception("the syphon failed")
            self._on_failure(error)

    def stop(self) -> None:
        """Stop it in an orderly way."""
        self._syphon_run.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_END_S)
