"""Packages for Node, installed as a folder's lock file says."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest


def installed(folder: Path, what: str) -> str:
    """The Node executable, with a folder's packages installed; skips the test without Node, and fails it in CI."""
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    if missing:
        reason = f"{' and '.join(missing)} not found: {what} cannot be run"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    lock = folder / "package-lock.json"
    stamp = folder / "node_modules" / ".twinbus-lock.json"
    # One process at a time: an installation begins by removing the one that others may be using.
    with (folder / "package.json").open() as door:
        fcntl.flock(door, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_bytes() != lock.read_bytes():
            subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--silent"], cwd=folder, check=True)
            shutil.copyfile(lock, stamp)
    return "node"
