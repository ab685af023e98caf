"""`twinbus`: assemble the commands, and turn our errors into one line and an exit code.

Exit codes: 0 success; 1 the service, the disk or a check failed; 2 invalid command line or configuration file; 130
interrupted.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from copy import copy as shallow
from typing import Annotated, Any, NoReturn

import typer

from twinbus import __version__
from twinbus.build import build
from twinbus.cli.adopt import adopt
from twinbus.cli.apply import apply
from twinbus.cli.backlog import backlogs
from twinbus.cli.backup import backup
from twinbus.cli.check import check
from twinbus.cli.compact import compact
from twinbus.cli.connections import connections
from twinbus.cli.context import contexts
from twinbus.cli.demo import demo
from twinbus.cli.doctor import doctor
from twinbus.cli.export import export
from twinbus.cli.fault import faults
from twinbus.cli.group import BROKER, ENTITIES, MESSAGES, PAIRING, PIPELINE, Group
from twinbus.cli.ledger import ledgers
from twinbus.cli.move import copy, move
from twinbus.cli.pair import pairs
from twinbus.cli.peek import peek
from twinbus.cli.plan import plan
from twinbus.cli.policy import policies
from twinbus.cli.purge import purge
from twinbus.cli.queue import queues
from twinbus.cli.receive import receive
from twinbus.cli.release import release
from twinbus.cli.report import report
from twinbus.cli.restore import restore
from twinbus.cli.resubmit import resubmit
from twinbus.cli.rule import rules
from twinbus.cli.send import send
from twinbus.cli.serve import serve
from twinbus.cli.subscription import subscriptions
from twinbus.cli.syphon import syphon
from twinbus.cli.top import top
from twinbus.cli.topic import topics
from twinbus.cli.trust import trust
from twinbus.cli.view import one_line, redacted
from twinbus.errors import ConfigError, TwinbusError

app = typer.Typer(
    name="twinbus",
    cls=Group,
    help="""A durable Service Bus broker that the official SDKs talk to, paired namespaces, and a pipeline on Spark.

\b
Example:
  twinbus serve --dev --namespace contoso:5672
  export TWINBUS_CONNECTION_STRING=...        (as `twinbus serve` shows it)
  twinbus queue create orders
  twinbus send orders 'hello'
  twinbus receive orders
""",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(rich_help_panel=BROKER)(demo)
app.command(rich_help_panel=BROKER)(serve)
app.command(rich_help_panel=BROKER)(trust)
app.command(rich_help_panel=BROKER)(doctor)
app.command(rich_help_panel=BROKER)(check)
app.command(rich_help_panel=BROKER)(compact)
app.command(rich_help_panel=BROKER)(backup)
app.command(rich_help_panel=BROKER)(restore)
app.command(rich_help_panel=BROKER)(top)
app.add_typer(connections, name="connections", rich_help_panel=BROKER)
app.add_typer(contexts, name="context", rich_help_panel=BROKER)
app.add_typer(faults, name="fault", rich_help_panel=BROKER)

app.add_typer(queues, name="queue", rich_help_panel=ENTITIES)
app.add_typer(topics, name="topic", rich_help_panel=ENTITIES)
app.add_typer(subscriptions, name="subscription", rich_help_panel=ENTITIES)
app.add_typer(rules, name="rule", rich_help_panel=ENTITIES)
app.add_typer(policies, name="policy", rich_help_panel=ENTITIES)
app.command(rich_help_panel=ENTITIES)(export)
app.command(rich_help_panel=ENTITIES)(apply)

app.command(rich_help_panel=MESSAGES)(send)
app.command(rich_help_panel=MESSAGES)(receive)
app.command(rich_help_panel=MESSAGES)(peek)
app.command(rich_help_panel=MESSAGES)(purge)
app.command(rich_help_panel=MESSAGES)(resubmit)
app.command(rich_help_panel=MESSAGES)(move)
app.command(rich_help_panel=MESSAGES)(copy)

app.add_typer(pairs, name="pair", rich_help_panel=PAIRING)
backlogs.command()(adopt)
app.add_typer(backlogs, name="backlog", rich_help_panel=PAIRING)
app.command(rich_help_panel=PAIRING)(syphon)

app.add_typer(ledgers, name="ledger", rich_help_panel=PIPELINE)
app.command(rich_help_panel=PIPELINE)(report)
app.command(rich_help_panel=PIPELINE)(plan)
app.command(rich_help_panel=PIPELINE)(release)


# Options that take a connection string.
_HOLDERS = ("-c", "--connection-string", "--primary", "--secondary")
# The base class of command-line errors, found through typer, which bundles its own copy of click.
_MISUSE: type[Any] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
_INTERRUPTED = 130


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"twinbus {__version__} ({build()})")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def _check_secrets(arguments: Sequence[str]) -> None:
    """Reject a misplaced connection string, because the error about it would quote it, including the key."""
    for before, each in zip(("", *arguments), arguments, strict=False):
        named = before in _HOLDERS or each.startswith(tuple(f"{holder}=" for holder in _HOLDERS))
        if any(f"sharedaccess{secret}=" in each.lower() for secret in ("key", "signature")) and not named:
            raise ConfigError("The connection string is misplaced: write --connection-string TEXT.")


def run(arguments: Sequence[str] | None = None) -> NoReturn:
    """The entry point. Exits the process with the exit code."""
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        _check_secrets(given)
        code = _built(*given[:2])(args=given, prog_name="twinbus", standalone_mode=False)
        # Flush here, because buffered output must not fail after success was reported.
        sys.stdout.flush()
    except TwinbusError as error:
        _say(str(error))
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except typer.Abort:
        _say("Nothing was changed.")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output is gone, as with `head`.
        _drop_output()
        sys.exit(1)
    except OSError as error:
        _say(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}.")
        _drop_output()
        sys.exit(1)
    except _MISUSE as error:
        _misused(error)
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)


@functools.cache
def _built(*words: str) -> Any:
    """Build all commands, or only the named one: building the others takes longer than most of them run."""
    return typer.main.get_command(named(app, words))


def named(commands: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """Return the group reduced to the command that the words name; the whole group if they name none."""
    name = words[0] if words else ""
    leaves = [each for each in commands.registered_commands if (each.name or each.callback.__name__) == name]  # type: ignore[union-attr]
    groups = [shallow(each) for each in commands.registered_groups if each.name == name]
    if len(leaves) + len(groups) != 1:
        return commands
    found = shallow(commands)
    found.registered_commands, found.registered_groups = leaves, groups
    for each in groups:
        if each.typer_instance is not None:
            each.typer_instance = named(each.typer_instance, words[1:])
    return found


def _drop_output() -> None:
    """Discard buffered output: Python would try to write it at exit, complain, and exit with 120."""
    # A caller in the same process may have replaced stdout with an object without a file.
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(text: str) -> None:
    typer.echo(one_line(f"twinbus: {' '.join(redacted(text).split())}"), err=True)


def _misused(error: Any) -> None:
    """Print one line that says what is wrong with the command line and where to find its help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "twinbus"
    text = str(error.message) if getattr(error, "possibilities", None) else error.format_message()
    near = " or ".join(sorted(getattr(error, "possibilities", None) or []))
    _say(
        f"{text.rstrip('.?')}{'?' if text.endswith('?') else '.'}{f' Did you mean {near}?' if near else ''}"
        f" See `{path} --help`."
    )
