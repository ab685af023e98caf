"""Asking before something is deleted for good."""

from __future__ import annotations

import sys

import typer

from twinbus.errors import ConfigError


def confirm(question: str) -> None:
    """Go on when the answer is yes. Without a terminal nobody can answer: that needs --yes.

    An interrupt at the question ends the command as an interrupt anywhere else does.
    """
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} Nobody can be asked here: pass --yes.")
    try:
        agreed = typer.confirm(question)
    except typer.Abort:
        typer.echo(err=True)
        raise KeyboardInterrupt from None
    if not agreed:
        raise typer.Abort
