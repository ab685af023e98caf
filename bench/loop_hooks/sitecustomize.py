"""Times the event loop of a broker that `bench/bystander.py --turns` starts.

It writes a line to the file named by LOOP_TURNS for each callback and each turn of the loop that used much CPU:
milliseconds and name. A turn is everything between two polls of the sockets, and a client that sends something waits
for all of it. It measures the CPU of the loop's thread, because other work on the machine does not change that.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.base_events import BaseEventLoop
from asyncio.events import Handle

# uvloop's callbacks cannot be watched.
sys.modules["uvloop"] = None  # type: ignore[assignment]

_FLOOR_MS = 4.0
TURN = "one turn of the loop"

_file = open(os.environ["LOOP_TURNS"], "a", buffering=1)  # noqa: SIM115
_run = Handle._run
_run_once = BaseEventLoop._run_once  # type: ignore[attr-defined]


def _named(callback: object) -> str:
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return getattr(owner.get_coro(), "__qualname__", "task")
    return getattr(callback, "__qualname__", repr(callback))


def _timed(self: Handle) -> None:
    callback = self._callback  # type: ignore[attr-defined]
    started = time.thread_time()
    _run(self)
    used_ms = (time.thread_time() - started) * 1000
    if used_ms > _FLOOR_MS:
        _file.write(f"{used_ms:.1f} {_named(callback)}\n")


def _timed_once(self: BaseEventLoop) -> None:
    started = time.thread_time()
    _run_once(self)
    used_ms = (time.thread_time() - started) * 1000
    if used_ms > _FLOOR_MS:
        _file.write(f"{used_ms:.1f} {TURN}\n")


Handle._run = _timed  # type: ignore[method-assign]
BaseEventLoop._run_once = _timed_once  # type: ignore[attr-defined]
