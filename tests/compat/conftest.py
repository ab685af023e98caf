"""What several of the compatibility tests need."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "node"


@pytest.fixture(scope="session")
def node() -> str:
    """The Node executable, with the client installed."""
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    if missing:
        reason = f"{' and '.join(missing)} not found: the JavaScript client cannot be run"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    lock = FOLDER / "package-lock.json"
    stamp = FOLDER / "node_modules" / ".twinbus-lock.json"
    # One process at a time: an installation begins by removing the one that others may be using.
    with (FOLDER / "package.json").open() as door:
        fcntl.flock(door, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_bytes() != lock.read_bytes():
            subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--silent"], cwd=FOLDER, check=True)
            shutil.copyfile(lock, stamp)
    return "node"
