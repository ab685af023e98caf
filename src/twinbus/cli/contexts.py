"""The file that holds the contexts: named connection strings.

Rules:
- It is `contexts.json` in the user's configuration folder, mode 0600 in a folder of mode 0700, replaced atomically.
- A file that others can read is refused, because it holds keys.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from twinbus.auth.connection_string import ConnectionString
from twinbus.errors import ConfigError
from twinbus.spelling import did_you_mean


def contexts_file() -> Path:
    """Return the path by the XDG convention; a relative XDG_CONFIG_HOME is ignored."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if os.path.isabs(base) else Path.home() / ".config"
    return folder / "twinbus" / "contexts.json"


def found_context(name: str | None) -> tuple[str, Path | None] | None:
    """Return the connection string and CA file of a context, or of the one in use; None if there is none."""
    if name is None and not contexts_file().exists():
        return None
    kept = read_contexts()
    wanted = kept["use"] if name is None else name
    if wanted is None:
        return None
    try:
        entry = kept["contexts"][wanted]
    except KeyError:
        near = did_you_mean(wanted, tuple(kept["contexts"]), " `twinbus context add` adds one.")
        raise ConfigError(f"There is no context {wanted!r}.{near}") from None
    return entry["connection_string"], Path(entry["ca_file"]) if entry.get("ca_file") else None


def read_contexts() -> dict[str, Any]:
    path = contexts_file()
    try:
        with path.open() as opened:
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
            if mode & 0o077:
                raise ConfigError(f"{path} contains keys and others can read it (mode {mode:o}): run chmod 600 on it.")
            kept = json.load(opened)
        for entry in kept["contexts"].values():
            ConnectionString.parse(entry["connection_string"])
        kept.setdefault("use", None)
    except FileNotFoundError:
        return {"use": None, "contexts": {}}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(
            f"{path} is not a valid contexts file: repair it, or move it away and add the contexts again."
        ) from None
    found: dict[str, Any] = kept
    return found


def write_contexts(kept: dict[str, Any]) -> None:
    from twinbus.broker.security.keys import write_private

    path = contexts_file()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, json.dumps(kept, indent=2) + "\n")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from None
