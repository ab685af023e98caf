"""The SDK's source distribution and the environment its tests run in, fetched once into `compliance/.cache`.

The tests are never copied into the repository: the harness downloads the published sdist and runs them as they are.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

SDK = "azure-servicebus"
SDK_VERSION = "7.15.0"
HERE = Path(__file__).resolve().parent
CACHE = HERE / ".cache"
REQUIREMENTS = HERE / "requirements.txt"


def tests_folder() -> Path:
    """The folder `tests/` of the unpacked sdist; downloads it on first use."""
    unpacked = CACHE / f"{SDK.replace('-', '_')}-{SDK_VERSION}"
    if not (unpacked / "tests").is_dir():
        CACHE.mkdir(exist_ok=True)
        wanted = [SDK, SDK_VERSION]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*command, "--dest", str(CACHE), "==".join(wanted)], check=True)
        with tarfile.open(CACHE / f"{unpacked.name}.tar.gz") as archive:
            archive.extractall(CACHE, filter="data")
    return unpacked / "tests"


def python() -> Path:
    """The interpreter of the tests' own environment; built anew when requirements.txt changed."""
    folder = CACHE / "venv"
    executable = folder / "bin" / "python"
    stamp = folder / "requirements.sha256"
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    if not (executable.exists() and stamp.exists() and stamp.read_text() == digest):
        print("Setting up the SDK's test environment (once) ...", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        install = [str(executable), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "-r", str(REQUIREMENTS)], check=True)
        stamp.write_text(digest)
    return executable
