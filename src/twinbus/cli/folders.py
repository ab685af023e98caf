"""Where data lies: the default folder, and the namespaces in a folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from twinbus.errors import ConfigError
from twinbus.store.folder import DATA_NAME, had_store


def default_data() -> Path:
    """The user's state folder, by the desktop convention; a relative setting counts as none."""
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    return base / "twinbus"


def namespaces_in(folder: Path) -> dict[str, Path]:
    """The namespaces of a data folder by name; the folder of one namespace is taken too."""
    if _has_store(folder):
        return {folder.name: folder}
    found = {path.name: path for path in sorted(folder.glob("*")) if _has_store(path)}
    if not found:
        raise ConfigError(f"There is no data of Twinbus in {folder}.")
    return found


@contextmanager
def copies_in(folder: Path, to: Path | None) -> Iterator[dict[str, Path]]:
    """Where the copies of a data folder's namespaces go in a new folder, which is made with the folder's keys; None: no
    copies are wanted.

    The new folder goes when the block fails: half of a data folder must not look like one.
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
            # Without its keys the copy would make new ones, and every client's connection string would stop working.
            write_private(to / KEYS_FILE, keys.read_text())
        yield {name: to / name for name in namespaces}
    except BaseException:
        shutil.rmtree(to, ignore_errors=True)
        raise


def _has_store(folder: Path) -> bool:
    """One that was lost counts: whoever opens it is told."""
    return (folder / DATA_NAME).is_file() or had_store(folder)
