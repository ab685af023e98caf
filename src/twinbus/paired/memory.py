"""Remembers on this machine what namespaces have said about themselves, for a start while one of them is away.

    ~/.local/state/twinbus-client/namespaces/<digest>.json    {"address": ..., "name": ..., "identity": ...}

- `TWINBUS_STATE_DIR` names another folder, `TWINBUS_STATE_DIR=` (empty) none. Folder 0700, files 0600.
- One small file for each address and credential: another key is probably another namespace at the same address. The
  credential is only in the digest, which is keyed with it.
- A file is replaced as a whole, so any number of processes may read and write. Nothing depends on it: whatever cannot
  be read or written is not remembered.
"""

from __future__ import annotations

import hmac
import json
import os
import stat
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final
from uuid import uuid4

from twinbus.paired.homes import NamespaceAnswer
from twinbus.paired.options import NamespaceAddress, check_name

VARIABLE: Final = "TWINBUS_STATE_DIR"
_FILE_BYTES_MAX: Final = 4096
_IDENTITY_CHARS_MAX: Final = 128


class NamespaceMemory:
    """What one namespace has said, by its address and the credential for it."""

    def __init__(self, address: NamespaceAddress, secret: str, folder: Path | None) -> None:
        self._address = address
        digest = hmac.new(secret.encode(), "\0".join(map(str, address.key)).encode(), sha256).hexdigest()[:32]
        # None if nothing is to be remembered.
        self._path = None if folder is None else folder / "namespaces" / f"{digest}.json"

    def recall(self) -> NamespaceAnswer | None:
        """What it said last; None if that is not known."""
        if self._path is None:
            return None
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                    # Somebody else's file must not choose where messages go.
                    return None
                read = json.loads(file.read(_FILE_BYTES_MAX))
            name, identity = read["name"], read["identity"]
            if not isinstance(identity, str | None) or len(identity or "") > _IDENTITY_CHARS_MAX:
                return None
            return NamespaceAnswer(check_name(name), identity)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def remember(self, told: NamespaceAnswer) -> None:
        """Keep it; a machine that cannot keep it asks again next time."""
        path = self._path
        if path is None or told.name is None or self.recall() == told:
            return
        text = json.dumps({"address": self._address.place, "name": told.name, "identity": told.identity})
        temporary = path.with_name(f".{path.stem}-{uuid4().hex[:12]}")
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with os.fdopen(os.open(temporary, flags, 0o600), "w") as file:
                    file.write(text + "\n")
                temporary.replace(path)
            except OSError:
                temporary.unlink(missing_ok=True)
                raise


def state_folder() -> Path | None:
    """The folder of this user's state; None for none."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        return Path(given) if given else None
    base = os.environ.get("XDG_STATE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".local" / "state") / "twinbus-client"
    except RuntimeError:
        # No home directory.
        return None
