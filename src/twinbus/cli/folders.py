"""Where data lies: the default folder, and the namespaces in a folder."""

from __future__ import annotations

import os
from pathlib import Path

from twinbus.errors import ConfigError
from twinbus.store.folder import DATA_NAME


def default_data() -> Path:
    """The user's state folder, by the desktop convention; a relative setting counts as none."""
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    return base / "twinbus"


def namespaces_in(folder: Path) -> dict[str, Path]:
    """The namespaces of a data folder by name; the folder of one namespace is taken too."""
    if (folder / DATA_NAME).is_file():
        return {folder.name: folder}
    found = {path.parent.name: path.parent for path in sorted(folder.glob(f"*/{DATA_NAME}"))}
    if not found:
        raise ConfigError(f"There is no data of Twinbus in {folder}.")
    return found
