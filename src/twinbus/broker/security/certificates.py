"""The broker's TLS certificate: yours, or one signed by its own development CA.

- Nothing is generated, and `cryptography` is not imported, until the first TLS client or `twinbus trust` needs it.
- `ca.pem` in the data folder is public; the keys beside it have mode 0600. The server's key and certificate share one
  file, so that they always match.
- A generated certificate is renewed 30 days before it expires, when a name is added, and when the CA changes.
- Your own certificate is reloaded when its file changes, so renewing it needs no restart. It is used even if it has
  expired, because not every client comes with TLS, but not without a warning.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import os
import socket
import ssl
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twinbus.broker.configuration.config import is_name
from twinbus.broker.security.keys import locked, write_private
from twinbus.clock import Clock, SystemClock
from twinbus.errors import ConfigError

logger = logging.getLogger(__name__)

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
_CA, _CA_KEY, _SERVER = "ca.pem", "ca-key.pem", "server.pem"
_BUNDLE = "ca-bundle.pem"
# Files that a copy of the data folder needs, so that clients keep trusting it.
PRIVATE_FILES = (_CA, _CA_KEY, _SERVER)
_DAY_MS = 86_400_000
_RENEW_BEFORE_MS = 30 * _DAY_MS
# How often your own certificate files are checked.
_LOOK_AGAIN_MS = 60_000
# How long before it expires your own certificate is warned of.
_WARN_BEFORE_MS = 14 * _DAY_MS


class Certificates:
    """The TLS side of one broker. `load` may take a while and belongs on a thread; `ready` never blocks."""

    def __init__(
        self,
        data: Path,
        names: Iterable[str] = (),
        *,
        certificate: Path | None = None,
        key: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._folder = data
        # Names in the certificate.
        self.names = served_names(names)
        # Your own certificate; None uses the development CA's.
        self._certificate = certificate
        # Its key; None if it is in the same file.
        self._key = key
        # Clients check certificates by real time, so a broker with a stepped clock uses real time here too.
        self._clock: Clock = clock if clock is not None else SystemClock()
        # One thread at a time reads or generates files.
        self._lock = threading.Lock()
        # The current context; None until the first load.
        self._context: ssl.SSLContext | None = None
        # When it must be checked again, by date ...
        self._until_ms = 0
        # ... and on the steady clock, which does not depend on the date.
        self._look_ms = 0
        # Modification times and inodes of your own files when last read.
        self._seen: tuple[tuple[int, int], ...] = ()
        # From when until when your own certificate is valid.
        self._valid_ms = (0, 0)
        # What is wrong with its dates, for the operator; empty if nothing is.
        self.warning = ""

    @property
    def own(self) -> bool:
        """Whether a certificate was given."""
        return self._certificate is not None

    def ready(self) -> ssl.SSLContext | None:
        """The context; None if `load` must be called first."""
        fresh = self._clock.now_ms() < self._until_ms and self._clock.steady_ms() < self._look_ms
        return self._context if fresh else None

    def load(self) -> ssl.SSLContext:
        """Load the context, generating what is missing; raises ConfigError if that fails."""
        with self._lock:
            context = self.ready()
            if context is None:
                context = self._read_own() if self._certificate is not None else self._read_development()
                self._context = context
            return context

    @property
    def has_ca(self) -> bool:
        """Whether the development CA's certificate exists."""
        return (self._folder / _CA).exists()

    def ca_file(self) -> Path:
        """The development CA's certificate, generated if missing."""
        return ensure_ca(self._folder, self._clock)

    def _read_own(self) -> ssl.SSLContext:
        assert self._certificate is not None
        files = [self._certificate, self._key or self._certificate]
        try:
            seen = tuple((stat.st_mtime_ns, stat.st_ino) for stat in map(os.stat, files))
            context = self._context
            if context is None or seen != self._seen:
                context = _context(self._certificate, self._key)
                self._valid_ms = _validity_ms(self._certificate)
        except (OSError, ValueError) as error:
            if self._context is None:
                raise ConfigError(
                    f"The certificate {files[0]} with the key {files[1]} cannot be used: {_reason(error)}. "
                    "Both must be PEM, the key without a password."
                ) from None
            # A renewal may be half done; keep the current certificate.
            logger.warning("the certificate %s cannot be read again: %s", files[0], _reason(error))
            context, seen = self._context, self._seen
        self._seen = seen
        self._check_dates(self._certificate)
        self._until_ms = self._clock.now_ms() + _LOOK_AGAIN_MS
        self._look_ms = self._clock.steady_ms() + _LOOK_AGAIN_MS
        return context

    def _check_dates(self, certificate: Path) -> None:
        """Warn once of a certificate that clients refuse, or soon will."""
        now_ms = self._clock.now_ms()
        from_ms, until_ms = self._valid_ms
        text = ""
        if now_ms < from_ms:
            text = f"The certificate {certificate} is not valid before {_day(from_ms)}: TLS clients refuse it."
        elif now_ms >= until_ms:
            text = (
                f"The certificate {certificate} expired on {_day(until_ms)}: TLS clients refuse it. Replace the file; "
                "the broker notices within a minute."
            )
        elif now_ms >= until_ms - _WARN_BEFORE_MS:
            text = f"The certificate {certificate} expires on {_day(until_ms)}: replace the file before that day."
        if text and text != self.warning:
            logger.warning("%s", text)
        self.warning = text

    def _read_development(self) -> ssl.SSLContext:
        path = self._folder / _SERVER
        until_ms = self._fit_until_ms(path)
        if not until_ms:
            ca = ensure_ca(self._folder, self._clock)
            with locked(self._folder):
                until_ms = self._fit_until_ms(path) or self._make_server(path, ca)
        try:
            context = _context(path, None)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} cannot be used: {_reason(error)}. Remove it: a new one is made then.") from None
        # Check once a day: the names never change while the broker runs, but the CA file may.
        self._until_ms = min(until_ms, self._clock.now_ms() + _DAY_MS)
        self._look_ms = self._clock.steady_ms() + _DAY_MS
        return context

    def _fit_until_ms(self, path: Path) -> int:
        """When the stored certificate must be replaced; 0 means now."""
        told = _label(path)
        try:
            fits = set(self.names) <= set(told["names"]) and told["ca"] == _fingerprint(self._folder / _CA)
            until_ms = int(told["until_ms"])
        except (KeyError, TypeError, ValueError, OSError):
            return 0
        return until_ms if fits and self._clock.now_ms() < until_ms else 0

    def _make_server(self, path: Path, ca: Path) -> int:
        from twinbus.broker.security import authority

        now_ms = self._clock.now_ms()
        key = authority.make_key()
        made = authority.make_server(ca.read_text(), (self._folder / _CA_KEY).read_text(), key, now_ms, self.names)
        until_ms = now_ms + authority.SERVER_DAYS * _DAY_MS - _RENEW_BEFORE_MS
        label = {"names": list(self.names), "ca": _fingerprint(ca), "until_ms": until_ms}
        # TLS libraries skip text before the first PEM block, so the label can go there.
        write_private(path, f"{json.dumps(label)}\n{key}{made}")
        return until_ms


def ensure_ca(folder: Path, clock: Clock | None = None) -> Path:
    """The development CA's certificate in a data folder: created if missing, renewed in time."""
    now_ms = (clock if clock is not None else SystemClock()).now_ms()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca, key = folder / _CA, folder / _CA_KEY
    from twinbus.broker.security import authority

    try:
        with locked(folder):
            if not key.exists():
                write_private(key, authority.make_key())
            key_pem = key.read_text()
            # It must outlive every certificate it signs.
            needed_ms = now_ms + authority.SERVER_DAYS * _DAY_MS
            if not ca.exists() or authority.lasts_ms(ca.read_text(), key_pem) < needed_ms:
                name = f"Twinbus development CA ({socket.gethostname()})"
                write_private(ca, authority.make_ca(key_pem, now_ms, name), mode=0o644)
    except OSError as error:
        raise ConfigError(f"The development CA in {folder} cannot be made: {_reason(error)}.") from None
    return ca


def ensure_bundle(folder: Path) -> Path:
    """A file with the machine's CAs and the development CA, for clients that can be given only one file."""
    own = ensure_ca(folder).read_text()
    bundle = folder / _BUNDLE
    try:
        known = _machine_cas()
        # The variable that names the machine's CAs may already name a bundle of ours.
        write_private(bundle, known if own in known else f"{known}{own}", mode=0o644)
    except OSError as error:
        raise ConfigError(f"The bundle of CAs {bundle} cannot be written: {_reason(error)}.") from None
    return bundle


def _machine_cas() -> str:
    path = ssl.get_default_verify_paths().cafile
    if not path:
        # Python from an installer brings no CAs; certifi, where it is installed, does.
        try:
            path = importlib.import_module("certifi").where()
        except ImportError:
            return ""
    return Path(path).read_text(encoding="utf-8").rstrip() + "\n"


def served_names(names: Iterable[str]) -> tuple[str, ...]:
    """This machine's names and the given ones, without duplicates and names that no certificate can contain."""
    found = dict.fromkeys(
        name.strip("[]").lower() for name in (*LOCAL_NAMES, socket.gethostname(), *names) if is_name(name)
    )
    return tuple(found)


def _context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Without a password OpenSSL would prompt on the terminal.
    context.load_cert_chain(certificate, key, password=lambda: "")
    return context


def _validity_ms(certificate: Path) -> tuple[int, int]:
    from twinbus.broker.security import authority

    return authority.validity_ms(certificate.read_bytes())


def _day(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _label(path: Path) -> dict[str, Any]:
    try:
        with path.open() as file:
            label = json.loads(file.readline())
    except (OSError, ValueError):
        return {}
    return label if isinstance(label, dict) else {}


def _fingerprint(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
