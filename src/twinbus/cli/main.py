"""`twinbus`: puts the commands together, and turns our errors into one line and an exit code.

Exit codes: 0 done, 1 the service, the disk or a check says no, 2 the command line or a configuration file is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from twinbus import __version__
from twinbus.cli.backlog import backlogs
from twinbus.cli.check import check
from twinbus.cli.compact import compact
from twinbus.cli.export import export
from twinbus.cli.fault import faults
from twinbus.cli.ledger import ledgers
from twinbus.cli.pair import pairs
from twinbus.cli.policy import policies
from twinbus.cli.queue import queues
from twinbus.cli.serve import serve
from twinbus.cli.syphon import syphon
from twinbus.cli.trust import trust
from twinbus.errors import ConfigError, TwinbusError

app = typer.Typer(
    name="twinbus",
    help="A durable Service Bus broker that the official SDKs talk to.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serve)
app.command()(trust)
app.add_typer(queues, name="queue")
app.add_typer(policies, name="policy")
app.add_typer(faults, name="fault")
app.add_typer(ledgers, name="ledger")
app.command()(syphon)
app.add_typer(pairs, name="pair")
app.add_typer(backlogs, name="backlog")
app.command()(export)
app.command()(check)
app.command()(compact)


# Options that take a connection string.
_HOLDERS = ("-c", "--connection-string", "--primary", "--secondary")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"twinbus {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def _check_secrets(arguments: Sequence[str]) -> None:
    """Refuse a connection string in the wrong place: the complaint about it would quote it, key and all."""
    for before, each in zip(("", *arguments), arguments, strict=False):
        named = before in _HOLDERS or each.startswith(tuple(f"{holder}=" for holder in _HOLDERS))
        if any(f"sharedaccess{secret}=" in each.lower() for secret in ("key", "signature")) and not named:
            raise ConfigError("A connection string stands where none belongs: write --connection-string TEXT.")


def run(arguments: Sequence[str] | None = None) -> NoReturn:
    """The entry point. Ends the process with the exit code."""
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        _check_secrets(given)
        app(args=given, prog_name="twinbus")
    except TwinbusError as error:
        typer.echo(f"twinbus: {error}", err=True)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except BrokenPipeError:
        # The reader of our output went away, as `head` does: nobody is left to tell.
        sys.stderr.close()
        sys.exit(1)
    sys.exit(0)
