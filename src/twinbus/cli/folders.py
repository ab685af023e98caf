"""Find data: the default folder, and the namespaces in a folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from twinbus.errors import ConfigError
from twinbus.store.folder import DATA_NAME, had_store


def default_data() -> Path:
    """Return the user's state folder by the XDG convention; a relative XDG_STATE_HOME is ignored."""
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    return base / "twinbus"


def namespaces_in(folder: Path) -> dict[str, Path]:
    """Return the namespaces of a data folder by name; the folder of a single namespace works too."""
    if _has_store(folder):
        return {folder.name: folder}
    found = {path.name: path for path in sorted(folder.glob("*")) if _has_store(path)}
    if not found:
        raise ConfigError(f"There is no Twinbus data in {folder}.")
    return found


@contextmanager
def copies_in(folder: Path, to: Path | None) -> Iterator[dict[str, Path]]:
    """Create a new folder with the original's keys and yield the path of each namespace's copy in it; yield nothing if
    `to` is None.

    If the block fails, the new folder is removed: half a data folder must not look like one.
    """
    from twinbus.broker.security.keys import KEYS_FILE, write_private

    if to is None:
        yield {}
        return
    namespaces = namespaces_in(folder)
    if to.exists():
        raise ConfigError(f"{to} exists already: give the name of a new folder.")
    if list(namespaces.values()) == [folder]:
        yield {folder.name: to}
        return
    to.mkdir(mode=0o700, parents=True)
    try:
        keys = folder / KEYS_FILE
        if keys.is_file():
            # Without these the copy would get new keys, and every client's connection string would stop working.
            write_private(to / KEYS_FILE, keys.read_text())
        yield {name: to / name for name in namespaces}
    except BaseException:
        shutil.rmtree(to, ignore_errors=True)
        raise


def _has_store(folder: Path) -> bool:
    """A lost store counts too, so that opening it reports the loss."""
    return (folder / DATA_NAME).is_file() or had_store(folder)
