"""A syphon that lives inside an application, once for asyncio and once for threads.

Rules:
- In an asyncio application it is a task of the application's own loop, because its credentials belong there; in others
  it has a thread and a loop of its own.
- It ends with its owner; whatever it had in hand is given back.
- One that fails is told to its owner, once.
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

# Closing links and connections takes its time as well.
_END_S = SYPHON_STOP_S + 10.0

Make = Callable[[], Syphon]
Failed = Callable[[BaseException], None]


class AsyncBackgroundSyphon:
    """A syphon as a task."""

    def __init__(self, make: Make, on_failure: Failed) -> None:
        # Makes the syphon, on the loop it runs on.
        self._make = make
        self._on_failure = on_failure
        # The syphon; None before the start.
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
        """End it in good order."""
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
        """End it in good order."""
        self._syphon_run.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_END_S)
