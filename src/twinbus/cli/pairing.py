"""How commands find the two namespaces of a pair: options, environment variables or files.

Rules:
- A connection string holds a secret: it comes from an option, a variable or a file, and is never shown.
- The primary's name in the names of the backlog queues is `--primary-name`, or else the namespace's own name, which
  the primary says, or said earlier.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.auth.connection_string import ConnectionString
from twinbus.errors import ConfigError
from twinbus.limits import CONFIG_FILE_BYTES_MAX

if TYPE_CHECKING:
    import ssl

    from twinbus.paired.homes import Home

# How long a namespace may take to answer.
REACH_MS = 5_000

Primary = Annotated[
    str | None,
    typer.Option(metavar="TEXT", envvar="TWINBUS_PRIMARY", show_envvar=True, help="Connection string of the primary."),
]
PrimaryFile = Annotated[Path | None, typer.Option(metavar="FILE", help="File that contains it.")]
Secondary = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", envvar="TWINBUS_SECONDARY", show_envvar=True, help="Connection string of the secondary."
    ),
]
SecondaryFile = Annotated[Path | None, typer.Option(metavar="FILE", help="File that contains it.")]
PrimaryName = Annotated[
    str | None, typer.Option(metavar="NAME", help="Name of the primary in the names of backlog queues.")
]
CaFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="CA certificate to trust; `twinbus trust` shows the broker's.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def connection_string(which: str, text: str | None, file: Path | None) -> str:
    """Return the connection string of the primary or secondary; raise ConfigError if it is missing or invalid."""
    if file is not None:
        try:
            with file.open() as opened:
                text = opened.read(CONFIG_FILE_BYTES_MAX).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"The file of the {which}'s connection string cannot be read: {error}.") from None
    if not text:
        variable = f"TWINBUS_{which.upper()}"
        raise ConfigError(f"No {which} given: pass --{which} or --{which}-file FILE, or set {variable}.")
    ConnectionString.parse(text)
    return text


def need_sdk() -> None:
    """Check that the official SDK is installed, which paired namespaces need."""
    try:
        import azure.servicebus  # noqa: F401
    except ImportError:
        raise ConfigError("This command needs the official SDK: pip install azure-servicebus.") from None


def tls_of(text: str, ca_file: Path | None) -> ssl.SSLContext | None:
    """Return the TLS context for a connection string; None lets the client choose."""
    from twinbus.client import tls_context

    if ca_file is None or ConnectionString.parse(text).emulator:
        return None
    return tls_context(ca_file)


def admin_options(ca_file: Path | None) -> dict[str, Any]:
    """Return options for the SDK's administration clients."""
    return {} if ca_file is None else {"connection_verify": str(ca_file)}


def home_of_primary(given: str | None, primary: str, ca_file: Path | None) -> Home:
    """Ask the primary who it is, like the paired client does."""
    from twinbus.client import BusClient
    from twinbus.paired.options import check_name
    from twinbus.paired.syphon.survey import known_home

    def client() -> BusClient:
        return BusClient.from_connection_string(primary, tls=tls_of(primary, ca_file), timeout_ms=REACH_MS)

    try:
        if given is not None:
            check_name(given)
        return asyncio.run(known_home(primary, given, client, ca_file, timeout_s=REACH_MS / 1000)())
    except ValueError as error:
        raise ConfigError(str(error)) from None


def name_in_ledger(text: str, ca_file: Path | None) -> str:
    """Return a namespace's name as the broker's own ledger has it, so that nothing is charged twice."""
    return home_of_primary(None, text, ca_file).name
