"""`twinbus context`: named connection strings, so that commands need no key on the command line.

Keys are never printed: the list shows the host, the policy's name and the CA.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from twinbus.auth.connection_string import ConnectionString
from twinbus.cli.completion import context_names
from twinbus.cli.contexts import found_context, read_contexts, write_contexts
from twinbus.cli.group import group
from twinbus.cli.settings import Json
from twinbus.cli.view import show_json, show_table
from twinbus.errors import ConfigError

contexts = group(
    """Store named connection strings. Use them with --context NAME.

\b
Example:
  twinbus context add site --ready-file ready.json
  twinbus context use site
  twinbus queue list
"""
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The context.", autocompletion=context_names)]


@contexts.command()
def add(
    name: Name,
    connection_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File that contains the connection string [standard input].")
    ] = None,
    ready_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Ready file of `twinbus serve`.")] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", metavar="NAME", help="Namespace in the ready file.")
    ] = None,
    ca_file: Annotated[Path | None, typer.Option(metavar="FILE", help="CA certificate to trust.")] = None,
    json: Json = False,
) -> None:
    """Add or replace a context. The connection string is read from a file or from standard input.

    \b
    Example:
      twinbus context add site --ready-file ready.json
      twinbus context add cloud --connection-file connection-string.txt
    """
    from twinbus.cli.directory import find

    if connection_file is None and ready_file is None:
        if sys.stdin.isatty():
            typer.echo("Paste the connection string, then Enter:", err=True)
        text = _hidden_line()
        found = ConnectionString.parse(text)
    else:
        found = find(None, ready_file, namespace, connection_file)
    if ca_file is not None and not ca_file.is_file():
        raise ConfigError(f"There is no file {ca_file}: --ca-file needs a CA certificate in PEM format.")
    kept = read_contexts()
    done = "Replaced" if name in kept["contexts"] else "Added"
    kept["contexts"][name] = {
        "connection_string": found.format(),
        "ca_file": None if ca_file is None else str(ca_file.absolute()),
    }
    first = not kept["use"]
    kept["use"] = kept["use"] or name
    write_contexts(kept)
    text = f"{done} context {name}: {found.netloc}.{' Commands now use it.' if first else ''}"
    _told(json, _shown(name, kept), text)


@contexts.command(name="list")
def list_contexts(json: Json = False) -> None:
    """List contexts: host and policy, never the key.

    \b
    Example:
      twinbus context list
    """
    kept = read_contexts()
    rows = [_shown(name, kept) for name in sorted(kept["contexts"])]
    if json:
        show_json(rows)
        return
    table = [[f"{'*' if row['in_use'] else ' '} {row['name']}", row["host"], row["policy"] or "-"] for row in rows]
    show_table(["  context", "host", "policy"], table)


@contexts.command()
def use(name: Name, json: Json = False) -> None:
    """Use a context by default.

    \b
    Example:
      twinbus context use site
    """
    found_context(name)
    kept = read_contexts()
    kept["use"] = name
    write_contexts(kept)
    _told(json, _shown(name, kept), f"Commands now use context {name}.")


@contexts.command()
def remove(name: Name, json: Json = False) -> None:
    """Remove a context and its connection string.

    \b
    Example:
      twinbus context remove site
    """
    found_context(name)
    kept = read_contexts()
    del kept["contexts"][name]
    kept["use"] = None if kept["use"] == name else kept["use"]
    write_contexts(kept)
    _told(json, {"removed": name}, f"Removed context {name}.")


def _hidden_line() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    from getpass import getpass

    return getpass("").strip()


def _shown(name: str, kept: dict[str, Any]) -> dict[str, Any]:
    found = ConnectionString.parse(kept["contexts"][name]["connection_string"])
    return {
        "name": name,
        "host": found.netloc,
        "policy": found.key_name,
        "entity": found.entity_path,
        "ca_file": kept["contexts"][name].get("ca_file"),
        "in_use": kept["use"] == name,
    }


def _told(json: bool, described: dict[str, Any], text: str) -> None:
    if json:
        show_json(described)
    else:
        typer.echo(text)
