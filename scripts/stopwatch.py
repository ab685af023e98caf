"""Run a command on a terminal and log each line with its second: `python3 scripts/stopwatch.py LOG COMMAND...`.

At its end: how long the command took, and the longest time in which it showed nothing. Needs only Python.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import time

SIZE = (40, 120)
CONTROL = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|[\x00-\x08\x0b\x0c\x0e-\x1f]")
# Pictures that renew themselves several times a second: one of each second is enough for a reader.
RENEWED_S = 1.0


class Log:
    """Lines with their seconds, as a reader of the terminal saw them."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "w", encoding="utf-8")  # noqa: SIM115 - open until the command ends
        self._rest = b""
        # Line -> when it was written last.
        self._known: dict[str, float] = {}

    def take(self, at_s: float, data: bytes) -> None:
        *lines, self._rest = re.split(rb"[\r\n]+", self._rest + data)
        for line in lines:
            self._write(at_s, CONTROL.sub(b"", line).decode(errors="replace").rstrip())

    def _write(self, at_s: float, text: str) -> None:
        # The figures of a bar change all the time, and so does a spinner; the words of the line do not.
        shape = re.sub(r"[^A-Za-z/]+", " ", text)
        if not text.strip() or at_s - self._known.get(shape, -RENEWED_S) < RENEWED_S:
            return
        self._known[shape] = at_s
        self.say(f"{at_s:7.1f}  {text}")

    def say(self, text: str) -> None:
        print(text, file=self._file, flush=True)


def main(path: str, *command: str) -> int:
    log = Log(path)
    log.say(f"         $ {' '.join(command)}")
    begun = last = time.monotonic()
    silence_s, silent_at_s = 0.0, 0.0
    pid, handle = pty.fork()
    if pid == 0:
        os.execvp(command[0], command)
    fcntl.ioctl(handle, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
    while True:
        try:
            data = os.read(handle, 65536)
        except OSError:  # Linux says so when the last process has closed the terminal
            data = b""
        now = time.monotonic()
        if now - last > silence_s:
            silence_s, silent_at_s = now - last, last - begun
        if not data:
            break
        last = now
        log.take(now - begun, data)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    log.take(time.monotonic() - begun, b"\n")
    summary = (
        f"exit {code} after {time.monotonic() - begun:.1f} s; the longest silence was {silence_s:.1f} s, "
        f"from {silent_at_s:.1f} s on"
    )
    log.say(summary)
    print(summary)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
