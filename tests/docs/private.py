"""A machine for pages that change the one they are run on: namespaces of the kernel's, in which this user is root.

Rules:
- `/etc` is a copy there, and so is certifi's bundle; `/run` is empty, and the network a loopback with every port free.
  What a page does to them is gone with its last process.
- No right is needed where the kernel lets users make namespaces; where it does not, root may.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import certifi

from tests.docs.pages import ROOT

_KINDS = ["unshare", "--mount", "--net"]
_STOP_S = 30.0

# $1 is the page, $2 its folder, $3 an empty one beside it, $4 the bundle and $5 Python.
_SCRIPT = """
set -e
mkdir "$3/etc"
# What only the machine's root may read is not needed.
cp -a /etc/. "$3/etc" 2>/dev/null || true
mkdir -p "$3/etc/systemd/system"
cp "$4" "$3/bundle.pem"
mount --bind "$3/etc" /etc
# The doors to the machine's own services, systemd among them.
mount -t tmpfs tmpfs /run
mount --bind "$3/bundle.pem" "$4"
"$5" -c '
import fcntl, socket, struct
# SIOCSIFFLAGS: loopback up and running.
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh22x", b"lo", 0x41))
'
exec "$5" -m tests.docs.runner "$1" "$2"
"""


@cache
def _way() -> list[str] | str:
    """How a private machine is made, or what the kernel says."""
    said = ""
    for way in ([*_KINDS, "--map-root-user"], _KINDS):
        tried = subprocess.run([*way, "mount", "--bind", "/etc", "/etc"], capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            return way
        said = said or tried.stderr.strip()
    return said


def refusal(programs: Iterable[str]) -> str | None:
    """Why programs cannot be run as root on a private machine; None where they can."""
    absent = [each for each in ("unshare", *programs) if "/" not in each and shutil.which(each) is None]
    if absent:
        # `.ci/run` installs what is needed.
        assert os.environ.get("CI") != "true", f"not found: {absent}"
        return f"not found: {', '.join(absent)}"
    way = _way()
    return way if isinstance(way, str) else None


def run_page_as_root(page: Path, folder: Path, beside: Path) -> None:
    """A page's commands on a machine of their own; raises where the page and what happens differ."""
    way = _way()
    assert not isinstance(way, str)
    process = subprocess.Popen(
        [*way, "bash", "-c", _SCRIPT, "bash", page, folder, beside, certifi.where(), sys.executable],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        printed, _ = process.communicate()
    finally:
        process.terminate()
        process.wait(_STOP_S)
    assert process.returncode == 0, printed
