"""A PostgreSQL server of Debian's package in a temporary folder, on a Unix socket."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


def programs() -> Path | None:
    """Where its programs are; None if it is not installed."""
    found = [*Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), *filter(None, [shutil.which("pg_ctl")])]
    return Path(found[-1]).resolve().parent if found else None


@contextmanager
def postgresql() -> Iterator[str]:
    """The address of a running server's database."""
    place = programs()
    assert place is not None
    # It refuses to run as root; its package brings a user.
    owner = pwd.getpwnam("postgres") if os.getuid() == 0 else pwd.getpwuid(os.getuid())
    with TemporaryDirectory(prefix="pg-") as folder:
        if os.getuid() == 0:
            os.chown(folder, owner.pw_uid, owner.pw_gid)

        def call(*command: str) -> None:
            as_owner = {"user": owner.pw_uid, "group": owner.pw_gid} if os.getuid() == 0 else {}
            subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, **as_owner)  # type: ignore[call-overload]

        data = f"{folder}/data"
        call(str(place / "initdb"), "-D", data, "-U", "shop", "-A", "trust", "--no-sync")
        options = f"-c listen_addresses='' -k {folder} -c fsync=off"
        call(str(place / "pg_ctl"), "-D", data, "-w", "-l", f"{folder}/log", "-o", options, "start")
        try:
            yield f"postgresql://shop@/postgres?host={folder}"
        finally:
            call(str(place / "pg_ctl"), "-D", data, "-m", "immediate", "stop")
