"""`twinbus doctor`: find what is wrong with this installation and its data folder, and say what to do.

Rules:
- It changes nothing, creates nothing and connects to nobody; a running broker is not disturbed.
- Every finding that is not fine ends with the next step. Only a problem makes the exit code 1; a note does not.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import shutil
import socket
import stat
import sys
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from twinbus import __version__
from twinbus.build import build
from twinbus.cli.settings import Json
from twinbus.cli.view import counted, show_json, show_table, time_text
from twinbus.clock import SystemClock
from twinbus.errors import ConfigError

_GIB = 1024**3
# Below the first, sends are soon refused; below the second, it is time to look.
_DISK_BYTES_MIN, _DISK_BYTES_LOW = _GIB // 4, 2 * _GIB
# Files for as many connections as a namespace takes, and some.
_OPEN_FILES = 6_000
_DAY_MS = 86_400_000
_CERTIFICATE_DAYS_LOW = 21
# A clock that was set back leaves files from the future; this much may be rounding or another machine's clock.
_FUTURE_MS = 120_000
# Their locks or memory maps cannot be relied on.
_REMOTE_FILE_SYSTEMS = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "afs", "ceph", "gluster")
_USUAL_PORTS = (5672, 5671, 5300)


class Health(StrEnum):
    FINE = "fine"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One finding, and the next step unless it is fine."""

    subject: str
    health: Health
    finding: str
    next_step: str | None = None


def doctor(
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Data folder of the broker [the user's own].")
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Configuration file of the broker.")] = None,
    json: Json = False,
) -> None:
    """Find problems of this installation, its data folder, certificate, clock, ports and Java.

    \b
    Example:
      twinbus doctor
      twinbus doctor --config twinbus.toml --json | jq '.[] | select(.health == "problem")'
    """
    found = list(diagnoses(data, config))
    if json:
        show_json([asdict(each) for each in found])
    else:
        show_table(
            ["subject", "state", "finding"],
            [
                [each.subject, each.health.value, " ".join(filter(None, (each.finding, each.next_step)))]
                for each in found
            ],
        )
    problems = sum(each.health is Health.PROBLEM for each in found)
    if not json:
        typer.echo(f"\n{counted(problems, 'problem')} found." if problems else "\nNo problems found.")
    if problems:
        raise typer.Exit(1)


def diagnoses(data: Path | None, config: Path | None) -> Iterator[Diagnosis]:
    """Look at everything, one subject after the other."""
    from twinbus.broker.configuration.file import load_config
    from twinbus.broker.configuration.toml import TomlConfig
    from twinbus.cli.folders import default_data

    file = TomlConfig()
    if config is not None:
        try:
            file = load_config(config)
        except ConfigError as error:
            yield _problem("configuration", str(error), f"Correct {config}.")
            return
        yield _fine("configuration", f"{config} has {counted(len(file.namespaces), 'namespace')}.")
    yield from _installation()
    folder = (data or file.data or default_data()).expanduser().absolute()
    holder = yield from _data(folder)
    certificate = file.tls_certificate
    yield from _certificate(certificate if certificate is not None else folder / "server.pem", certificate is not None)
    ports = [port for namespace in file.namespaces for port in namespace.ports if port] or list(_USUAL_PORTS)
    yield from _ports(file.host or "127.0.0.1", ports, holder)
    yield from _open_files()
    yield from _java()


# --- subjects -------------------------------------------------------------------------------------------------------


def _installation() -> Iterator[Diagnosis]:
    python = ".".join(map(str, sys.version_info[:3]))
    yield _fine("installation", f"Twinbus {__version__} ({build()}) on Python {python}.")
    if _version("uvloop") is None:
        yield _note("event loop", "uvloop is not installed: the broker is slower.", "Install the extra fast.")
    sdk = _version("azure-servicebus")
    if sdk is None:
        yield _note(
            "official SDK", "azure-servicebus is not installed: no pairing.", "Install the extra paired if you need it."
        )
    elif not (7, 15) <= _numbers(sdk) < (8,):
        yield _problem(
            "official SDK", f"azure-servicebus {sdk} is not supported.", "pip install 'azure-servicebus>=7.15,<8'"
        )
    else:
        yield _fine("official SDK", f"azure-servicebus {sdk}.")


def _data(folder: Path) -> Generator[Diagnosis, None, str | None]:
    """Look at the data folder; returns the process that holds one of its namespaces, or None."""
    from twinbus.cli.folders import namespaces_in

    subject = "data folder"
    if not folder.exists():
        yield _note(subject, f"{folder} does not exist.", "The first start of the broker creates it.")
        yield from _disk(_parent(folder))
        return None
    if not folder.is_dir():
        yield _problem(subject, f"{folder} is not a folder.", "Choose another one with --data.")
        return None
    status = folder.stat()
    if status.st_uid != os.geteuid():
        yield _problem(
            subject, f"{folder} belongs to another user (id {status.st_uid}).", "Run this as the user of the broker."
        )
    elif stat.S_IMODE(status.st_mode) & 0o077:
        yield _note(subject, f"Other users can look into {folder}, which has keys and messages.", f"chmod 700 {folder}")
    yield from _file_system(folder)
    yield from _disk(folder)
    yield from _clock(folder)
    holder = None
    try:
        namespaces = namespaces_in(folder)
    except (ConfigError, OSError) as error:
        yield _note(subject, str(error), "The first start of the broker creates a namespace.")
        return None
    for name, path in namespaces.items():
        process, lost = _holder(path)
        holder = holder or process
        if lost:
            yield _problem(f"namespace {name}", f"The store of {path} is missing.", "Restore it from a backup.")
        elif process is not None:
            yield _fine(f"namespace {name}", f"Served by {process}.")
        else:
            yield _fine(f"namespace {name}", "Not served by a broker now. `twinbus check` verifies its records.")
    return holder


def _file_system(folder: Path) -> Iterator[Diagnosis]:
    kind = _mounted_as(folder)
    if kind is not None and kind.startswith(_REMOTE_FILE_SYSTEMS):
        yield _problem(
            "file system",
            f"{folder} is on {kind}, where locks and memory maps cannot be relied on.",
            "Move the data folder to a local disk.",
        )


def _disk(folder: Path) -> Iterator[Diagnosis]:
    free = shutil.disk_usage(folder).free
    text = f"{free / _GIB:.1f} GiB are free for {folder}."
    if free < _DISK_BYTES_MIN:
        yield _problem("disk", text, "Free some space: sends are refused when the disk is full.")
    elif free < _DISK_BYTES_LOW:
        yield _note("disk", text, "Free some space soon.")
    else:
        yield _fine("disk", text)


def _clock(folder: Path) -> Iterator[Diagnosis]:
    now_ms = SystemClock().now_ms()
    newest_ms = max((_changed_ms(path) for path in (folder, *folder.glob("*/*"))), default=0)
    if newest_ms > now_ms + _FUTURE_MS:
        yield _problem(
            "clock",
            f"It is {time_text(now_ms)}, but a file of the data folder is from {time_text(newest_ms)}.",
            "Set the clock: tokens expire and messages are scheduled by it.",
        )
    else:
        yield _fine("clock", f"{time_text(now_ms)}.")


def _certificate(path: Path, own: bool) -> Iterator[Diagnosis]:
    from cryptography import x509

    subject = "certificate"
    if not path.exists():
        if own:
            yield _problem(subject, f"{path} does not exist.", "Correct tls_certificate in the configuration file.")
        else:
            yield _fine(subject, "The development CA issues one to the first TLS client.")
        return
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())[0]
    except (OSError, ValueError) as error:
        step = "It must be PEM, readable by the broker." if own else "Remove it: the next start makes a new one."
        yield _problem(subject, f"{path} cannot be read: {error}.", step)
        return
    until_ms = int(found.not_valid_after_utc.timestamp() * 1000)
    left_days = (until_ms - SystemClock().now_ms()) // _DAY_MS
    text = f"{path} is valid until {time_text(until_ms)}."
    if not own:
        yield _fine(subject, f"{text} The broker renews it by itself; `twinbus trust` shows how clients trust it.")
    elif left_days < 0:
        yield _problem(subject, f"{path} expired {time_text(until_ms)}: TLS clients refuse it.", "Renew it.")
    elif left_days < _CERTIFICATE_DAYS_LOW:
        yield _note(subject, text, "Renew it; the broker reads the new file within a minute.")
    else:
        yield _fine(subject, text)


def _ports(host: str, ports: list[int], holder: str | None) -> Iterator[Diagnosis]:
    for port in dict.fromkeys(ports):
        refused = _bind_error(host, port)
        subject = f"port {port}"
        if refused is None:
            yield _fine(subject, "Free.")
        elif refused.errno == errno.EADDRINUSE and holder is not None:
            yield _fine(subject, f"In use; {holder} serves this data folder.")
        elif refused.errno == errno.EADDRINUSE:
            yield _note(
                subject, "In use by another program.", "Stop it, or choose another port: --namespace NAME:PORT."
            )
        else:
            yield _note(
                subject,
                f"Cannot be used: {refused.strerror}.",
                "Choose another address or port, or start the broker with the rights it needs.",
            )


def _open_files() -> Iterator[Diagnosis]:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if limit != resource.RLIM_INFINITY and limit < _OPEN_FILES:
        yield _note(
            "open files",
            f"A process may open {limit:,} files, which is fewer than the 5,000 connections a namespace accepts.",
            f"Raise it: `ulimit -n {_OPEN_FILES}`, or LimitNOFILE= in the systemd unit.",
        )


def _java() -> Iterator[Diagnosis]:
    if _version("pyspark") is None:
        yield _note("Spark", "pyspark is not installed: no pipeline.", "Install the extra spark if you need it.")
        return
    from twinbus.spark.java import find_java

    try:
        java = find_java()
    except ConfigError as error:
        yield _problem("Java", str(error), "Then run `twinbus doctor` again.")
        return
    yield _fine("Java", f"Java {java.version} in {java.home} for Spark {_version('pyspark')}.")


# --- facts ----------------------------------------------------------------------------------------------------------


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _parent(folder: Path) -> Path:
    """The nearest folder above that exists."""
    return next(each for each in folder.parents if each.exists())


def _holder(folder: Path) -> tuple[str | None, bool]:
    """Which process holds a namespace's folder, if any, and whether its store is lost. Takes no lock for itself."""
    from twinbus.store.folder import DATA_NAME, LOCK_NAME, had_store

    data = folder / DATA_NAME
    if not data.is_file() or not data.stat().st_size:
        return None, had_store(folder)
    try:
        with open(folder / LOCK_NAME, "rb") as file:
            # A shared lock is refused while a broker has its own, and is given back at once.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = (folder / LOCK_NAME).read_text(errors="replace").split()
        return f"process {holder[0]}" if holder else "another process", False
    except OSError:
        pass  # No lock file: nobody has served it since it was copied.
    return None, False


def _mounted_as(folder: Path) -> str | None:
    """The type of the file system of a folder; None where the system does not say."""
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return None
    best: tuple[int, str] | None = None
    for line in lines:
        _, place, kind, *_ = line.split(" ")
        # Spaces in a path are written as \040.
        point = Path(place.encode().decode("unicode_escape"))
        if folder.is_relative_to(point) and (best is None or len(point.parts) >= best[0]):
            best = len(point.parts), kind
    return None if best is None else best[1]


def _changed_ms(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except OSError:
        return 0


def _bind_error(host: str, port: int) -> OSError | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
        except OSError as error:
            return error
    return None


def _fine(subject: str, finding: str) -> Diagnosis:
    return Diagnosis(subject, Health.FINE, finding)


def _note(subject: str, finding: str, next_step: str) -> Diagnosis:
    return Diagnosis(subject, Health.NOTE, finding, next_step)


def _problem(subject: str, finding: str, next_step: str) -> Diagnosis:
    return Diagnosis(subject, Health.PROBLEM, finding, next_step)
