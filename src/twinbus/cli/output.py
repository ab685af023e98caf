"""Write messages before they are settled.

Rules:
- Output is flushed, and in a file also synced to disk, before it counts as written. A message whose output failed is
  not settled and will be delivered again.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from twinbus.cli.message_view import Body, block, content_of, message_fields
from twinbus.cli.view import json_line

if TYPE_CHECKING:
    from twinbus.client import ReceivedMessage


class Output:
    """Writes messages to standard output."""

    def __init__(self, *, as_json: bool, raw: bool = False, body: Body = Body.AUTO, one: bool = False) -> None:
        self._as_json = as_json
        # Write the bodies alone, unchanged.
        self._raw = raw
        # After a raw body: nothing after a single one, a newline after each of several.
        self._separator = b"" if one else b"\n"
        self._body = body
        # The binary stream below the text stream.
        self._stream = sys.stdout.buffer

    def write(self, messages: Iterable[ReceivedMessage]) -> None:
        """Write messages and flush them; raise OSError if that fails."""
        sys.stdout.flush()
        for message in messages:
            self._stream.write(self._shown(message))
        self._stream.flush()
        try:
            number = self._stream.fileno()
            if stat.S_ISREG(os.fstat(number).st_mode):
                os.fsync(number)
        except ValueError:
            pass  # not a real file, as in a test

    def _shown(self, message: ReceivedMessage) -> bytes:
        if self._as_json:
            return json_line(message_fields(message, self._body)).encode(errors="replace") + b"\n"
        if self._raw:
            content = content_of(message)
            return (content if isinstance(content, bytes) else str(content).encode()) + self._separator
        return block(message, self._body).encode(errors="replace")
