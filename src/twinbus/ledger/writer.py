"""Append records to the ledger's files.

Rules:
- A file is completed when it is large or old enough, and when the writer is closed.
- Writes do not wait for the disk; a file is synced only when it is completed.
- Disk errors are counted and logged once; they never reach the caller. Lines are kept and retried, up to a limit.
- Use it from one thread at a time; a caller that must not block gives it its own thread.
"""

from __future__ import annotations

import logging
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from twinbus.clock import Clock
from twinbus.ledger import files
from twinbus.ledger.words import LedgerSource
from twinbus.limits import (
    LEDGER_FILE_BYTES_MAX,
    LEDGER_FILE_MS_MAX,
    LEDGER_TOTAL_BYTES_MAX,
    LEDGER_WAITING_BYTES_MAX,
)

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)


class LedgerWriter:
    """Writes one source's records into a folder. `run_id` must be unique per writer, because it makes records
    unique."""

    def __init__(
        self,
        folder: Path,
        source: LedgerSource,
        run_id: str,
        clock: Clock,
        *,
        file_bytes_max: int = LEDGER_FILE_BYTES_MAX,
        file_ms_max: int = LEDGER_FILE_MS_MAX,
        total_bytes_max: int = LEDGER_TOTAL_BYTES_MAX,
        waiting_bytes_max: int = LEDGER_WAITING_BYTES_MAX,
    ) -> None:
        self.folder = folder
        self._source = source
        self._run_id = run_id
        self._clock = clock
        self._file_bytes_max = file_bytes_max
        self._file_ms_max = file_ms_max
        # Maximum size of the folder's files; 0 for no limit.
        self._total_bytes_max = total_bytes_max
        self._waiting_bytes_max = waiting_bytes_max
        self._file: files.OpenFile | None = None
        self._opened_ms = 0
        # Number of files and records so far, used in names and ids.
        self._file_count = 0
        self._record_count = 0
        # Lines that the disk has refused, with the number of records in each piece.
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._waiting_bytes = 0
        # Whether the last disk operation failed; the log is written when this changes.
        self._refused = False
        self.errors = 0
        self.lost_records = 0

    @property
    def file_open(self) -> bool:
        """Whether there is a file that must be completed at some time."""
        return self._file is not None

    def start(self) -> None:
        """Create the folder and complete files left by a crash."""
        try:
            files.prepare(self.folder)
            recovered = files.recover(self.folder)
        except OSError as error:
            self._refuse(error)
            return
        if recovered:
            logger.info("recovered %d incomplete ledger files", len(recovered))

    def next_id(self) -> str:
        """Return the id for a new record."""
        self._record_count += 1
        return f"{self._run_id}-{self._record_count:x}"

    def write(self, text: str, records: int) -> None:
        """Append complete lines."""
        data = text.encode()
        self._waiting.append((data, records))
        self._waiting_bytes += len(data)
        self.complete_if_due()
        self._push()
        while self._waiting_bytes > self._waiting_bytes_max:
            lost, count = self._waiting.popleft()
            self._waiting_bytes -= len(lost)
            self.lost_records += count

    def complete_if_due(self) -> None:
        """Complete the file if it is large or old enough; a clock that was set back also makes it old."""
        file = self._file
        if file is None:
            return
        age_ms = self._clock.now_ms() - self._opened_ms
        if file.size_bytes >= self._file_bytes_max or not 0 <= age_ms < self._file_ms_max:
            self._complete()

    def close(self) -> None:
        """Write queued lines and complete the file."""
        self._push()
        self._complete()

    def _push(self) -> None:
        if not self._waiting:
            return
        data = b"".join(piece for piece, _ in self._waiting)
        try:
            if self._file is None:
                self._open()
            assert self._file is not None
            self._file.append(data)
        except OSError as error:
            self._refuse(error)
            if self._file is not None and self._file.spoiled:
                self._file.give_up()
                self._file = None
            return
        self._waiting.clear()
        self._waiting_bytes = 0
        if self._refused:
            self._refused = False
            logger.warning("the ledger is writable again; %d records were lost", self.lost_records)

    def _open(self) -> None:
        now_ms = self._clock.now_ms()
        stamp = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        self._file_count += 1
        stem = f"{self._source}-{stamp}-{self._run_id}-{self._file_count:06d}"
        self._file = files.OpenFile(self.folder, stem)
        self._opened_ms = now_ms

    def _complete(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        try:
            file.complete()
            if self._total_bytes_max:
                for path in files.remove_oldest(self.folder, f"{self._source}-", self._total_bytes_max):
                    logger.warning("the ledger exceeds %d bytes: removed %s", self._total_bytes_max, path.name)
        except OSError as error:
            self._refuse(error)

    def _refuse(self, error: OSError) -> None:
        """Count a disk error, and log it if it is the first."""
        self.errors += 1
        if not self._refused:
            self._refused = True
            logger.error("the ledger cannot be written; the broker carries on: %s", error.strerror)
