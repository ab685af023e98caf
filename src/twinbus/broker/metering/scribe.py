"""The thread that writes the broker's ledger, one for all namespaces.

A disk that hangs blocks only this thread: the backlog is bounded, and what exceeds it is counted as lost. The thread
sleeps while there is nothing to write and no file to complete.
"""

from __future__ import annotations

import logging
import secrets
import threading
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from twinbus.clock import Clock
from twinbus.ledger.words import LedgerSource
from twinbus.ledger.writer import LedgerWriter
from twinbus.limits import LEDGER_INTERVALS_WAITING_MAX, METER_INTERVAL_MS

if TYPE_CHECKING:
    from twinbus.broker.metering.meter import Interval

logger = logging.getLogger(__name__)

# How long shutdown waits for the ledger's disk.
_CLOSE_S = 5.0


class Scribe:
    """Accepts intervals on the event loop and writes them on its own thread."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._writer = LedgerWriter(folder, LedgerSource.BROKER, secrets.token_hex(8), clock)
        # Intervals to write; None ends the thread.
        self._work: SimpleQueue[list[Interval] | None] = SimpleQueue()
        # Records dropped because too many waited.
        self._turned_away = 0
        # Whether intervals are turned away now.
        self._hangs = False
        # A daemon, because a disk that hangs must not block the process from exiting.
        self._thread = threading.Thread(target=self._serve, name="ledger", daemon=True)

    @property
    def folder(self) -> Path:
        return self._writer.folder

    @property
    def errors(self) -> int:
        """How many disk operations failed."""
        return self._writer.errors

    @property
    def lost_records(self) -> int:
        return self._writer.lost_records + self._turned_away

    def start(self) -> None:
        self._thread.start()

    def put(self, intervals: list[Interval]) -> None:
        """Queue intervals for writing."""
        if self._work.qsize() >= LEDGER_INTERVALS_WAITING_MAX:
            if not self._hangs:
                logger.error("the ledger's disk hangs: operations are not recorded until it answers")
            self._hangs = True
            self._turned_away += len(intervals)
            return
        self._hangs = False
        self._work.put(intervals)

    def close(self) -> None:
        """Write everything and complete the file; blocks, but not forever."""
        self._work.put(None)
        self._thread.join(_CLOSE_S)
        if self._thread.is_alive():
            logger.error("the ledger's disk hangs: the last of the ledger may be missing")

    def _serve(self) -> None:
        writer = self._writer
        writer.start()
        while True:
            try:
                # An open file must be completed even if nothing more happens, so wake up now and then.
                intervals = self._work.get(timeout=METER_INTERVAL_MS / 1000 if writer.file_open else None)
            except Empty:
                writer.complete_if_due()
                continue
            if intervals is None:
                break
            writer.write("".join(self._line(each) for each in intervals), len(intervals))
        writer.close()

    def _line(self, interval: Interval) -> str:
        lines, start_ms, end_ms, count, size_bytes, units = interval
        return lines.line(self._writer.next_id(), start_ms, end_ms, count, size_bytes, units)
