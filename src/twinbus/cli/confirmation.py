"""Ask before deleting for good."""

from __future__ import annotations

import sys

import typer

from twinbus.errors import ConfigError


def confirm(question: str) -> None:
    """Continue only if the answer is yes. Without a terminal nobody can answer, so --yes is required.

    An interrupt at the prompt ends the command like an interrupt anywhere else.
    """
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} There is no terminal to ask on: pass --yes.")
    try:
        agreed = typer.confirm(question)
    except typer.Abort:
        typer.echo(err=True)
        raise KeyboardInterrupt from None
    if not agreed:
        raise typer.Abort
