"""A shell that runs the commands of one page as its reader would, one after the other.

Rules:
- One bash for a page: exported variables, folders and background jobs last from one block to the next.
- `twinbus serve`, and what else goes on until it is told to stop, runs in the background; the next command starts when
  clients can connect, or when it has printed what the page shows. A second broker on the same port or folder ends the
  first, as a reader would.
- Everything that was started is stopped at the end, by its process id.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.docs.pages import agrees

_READY_S = 30.0
_TOLD_S = 90.0
_MOMENT_S = 1.5
_STOP_S = 15.0


@dataclass
class Service:
    """A command that goes on in the background."""

    process: subprocess.Popen[bytes]
    # Its words.
    words: list[str]
    # Where its output goes.
    output: Path
    # The ready file of a broker; None for others.
    ready: Path | None


class Shell:
    """Runs commands in a folder. `environment` is the first command's."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        # Where commands begin; they may leave it.
        self.folder = folder
        # Where commands, outputs and ready files are kept.
        self._notes = folder / ".notes"
        self._notes.mkdir()
        # How many commands there were.
        self._count = 0
        # What runs in the background, oldest first.
        self._services: list[Service] = []
        # The shell itself.
        self._bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Shell:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for service in reversed(self._services):
            self._end(service, signal.SIGTERM)
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        with contextlib.suppress(ProcessLookupError):
            # The whole session: jobs that a page left in the background are in it.
            os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.stdin.close()
        self._bash.stdout.close()
        self._bash.wait()

    # --- commands -----------------------------------------------------------------------------------------------------

    def run(self, command: str, shown: Sequence[str] = ()) -> tuple[int, str]:
        """The exit code of a command and what it printed, errors included. What goes on is left when it has printed
        the lines `shown`."""
        words = _words(command)
        if _goes_on(words):
            return self._start(command, words, list(shown))
        output = self._note("output")
        return self._told(command, output), output.read_text(errors="replace")

    def interrupt(self) -> tuple[int, str]:
        """Ctrl-C for the newest service: its exit code, and what it printed."""
        service = self._services.pop()
        self._end(service, signal.SIGINT)
        return service.process.returncode, service.output.read_text(errors="replace")

    def connection_string(self, port: int) -> str | None:
        """That of the namespace which a broker of this page serves on a port."""
        for service in reversed(self._services):
            if service.ready is not None and service.ready.exists():
                for each in json.loads(service.ready.read_text())["namespaces"].values():
                    if each["port"] == port:
                        return str(each["connection_string"])
        return None

    # --- inside -------------------------------------------------------------------------------------------------------

    def _note(self, ending: str) -> Path:
        self._count += 1
        return self._notes / f"{self._count:03}.{ending}"

    def _told(self, command: str, output: Path) -> int:
        """Have the shell run a command in itself, and wait for its exit code."""
        script = self._note("sh")
        script.write_text(command + "\n")
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f". {script} >{output} 2>&1 </dev/null\necho $?\n")
        self._bash.stdin.flush()
        answer = self._bash.stdout.readline()
        if not answer:
            raise AssertionError(f"the shell ended with: {command}\n{output.read_text()}")
        return int(answer)

    def _start(self, command: str, words: list[str], shown: list[str]) -> tuple[int, str]:
        broker = words[:2] == ["twinbus", "serve"]
        given = words.index("--ready-file") + 1 if "--ready-file" in words else None
        ready = None
        if broker:
            ready = self._cwd() / words[given] if given else self._note("ready")
            if not given:
                command = f"{_uncommented(command)} --ready-file {ready}"
                words = [*words, "--ready-file", str(ready)]
        # The shell's own variables and folder, at this moment.
        environment, output = self._note("environment"), self._note("output")
        assert self._told('export -p && echo cd $(printf %q "$PWD")', environment) == 0
        for other in [each for each in self._services if broker and each.ready]:
            if _claims(other.words) & _claims(words):
                self._services.remove(other)
                self._end(other, signal.SIGTERM)
        script = environment.read_text() + f"exec {_uncommented(command)}\n"
        with output.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "--norc", "--noprofile", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        service = Service(process, words, output, ready)
        self._services.append(service)
        self._await(service, shown)
        return process.poll() or 0, output.read_text(errors="replace")

    def _await(self, service: Service, shown: list[str]) -> None:
        """Until clients can connect. A service without a ready file must have printed what the page shows, or, where
        that is nothing, still be there after a moment."""
        told = service.ready is None and any(line.strip() not in ("", "...") for line in shown)
        moment = _READY_S if service.ready is not None else _TOLD_S if told else _MOMENT_S
        deadline = time.monotonic() + moment
        while service.process.poll() is None and time.monotonic() < deadline:
            if told and agrees(shown, service.output.read_text(errors="replace")) is None:
                return
            # A broker prints its addresses right after its ready file.
            said = service.output.stat().st_size or ">" in service.words
            if service.ready is not None and service.ready.exists() and said:
                return
            time.sleep(0.01)
        if service.ready is not None and service.process.poll() is None:
            raise AssertionError(f"it is not ready after {moment:.0f} s: {' '.join(service.words)}")

    def _cwd(self) -> Path:
        output = self._note("folder")
        assert self._told("pwd", output) == 0
        return Path(output.read_text().strip())

    def _end(self, service: Service, number: signal.Signals) -> None:
        if service.process.poll() == -signal.SIGKILL:
            # The page has killed it.
            return
        if service.process.poll() is None:
            # A terminal interrupts all that a command has started; others tell the command alone.
            (os.killpg if number == signal.SIGINT else os.kill)(service.process.pid, number)
            try:
                service.process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(service.process.pid, signal.SIGKILL)
                service.process.wait()
                raise AssertionError(f"it did not stop: {' '.join(service.words)}") from None
        assert service.process.returncode == 0, f"{' '.join(service.words)}\n{service.output.read_text()}"


def _uncommented(command: str) -> str:
    return re.sub(r"\s+#\s.*$", "", command.replace("\\\n", " "), flags=re.MULTILINE).strip().removesuffix("&").strip()


def _words(command: str) -> list[str]:
    command = command.replace("\\\n", " ").removeprefix(".venv/bin/")
    try:
        return shlex.split(command, comments=True)
    except ValueError:
        return command.split()


def _claims(words: list[str]) -> set[str]:
    """What no second broker can have: its ports, its data folder."""
    text = " ".join(words)
    data = re.search(r"--data[ =](\S+)", text)
    return {*re.findall(r"(?::|-port[ =])(\d+)", text), data[1] if data else "the default folder"}


def _goes_on(words: list[str]) -> bool:
    """Whether a command goes on until it is told to stop."""
    if words[:2] == ["twinbus", "serve"]:
        return not {"--help", "-h"} & set(words)
    if words[:3] == ["twinbus", "ledger", "run"]:
        return "--follow" in words
    return words[:2] == ["twinbus", "syphon"] and not {"--once", "--help", "-h"} & set(words)
