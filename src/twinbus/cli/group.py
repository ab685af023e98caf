"""Command groups and their help: grouped by purpose, in plain text.

Rules:
- A command is listed in the panel it was registered with, or under "Commands".
- The first sentence of a command's help is shown in full.
- `\\b` before an example preserves its line breaks.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

# The panels of the help, in order.
BROKER = "Broker"
ENTITIES = "Entities"
MESSAGES = "Messages"
PAIRING = "Paired namespaces"
PIPELINE = "Pipeline and costs"
_PANELS = (BROKER, ENTITIES, MESSAGES, PAIRING, PIPELINE)
_REST = "Commands"
# Commands in the order in which users first need them; all others follow.
_ORDER = (
    *(
        "demo",
        "serve",
        "trust",
        "doctor",
        "check",
        "compact",
        "backup",
        "restore",
        "top",
        "connections",
        "context",
        "fault",
    ),
    *("queue", "topic", "subscription", "rule", "policy", "export", "apply"),
    *("send", "receive", "peek", "purge", "resubmit", "move", "copy"),
    *("pair", "syphon", "backlog"),
    *("ledger", "report", "plan", "release"),
)


class Group(TyperGroup):
    """A group whose help lists its commands by panel."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx) if ctx.parent is not None else sorted(self.list_commands(ctx), key=_place):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                panel = getattr(command, "rich_help_panel", None)
                panels.setdefault(panel if isinstance(panel, str) else _REST, []).append((name, sentence(command)))
        longest = max((len(name) for rows in panels.values() for name, _ in rows), default=0)
        for panel in (*_PANELS, *(one for one in panels if one not in _PANELS)):
            if panel in panels:
                with formatter.section(panel):
                    # Align the second columns of all panels.
                    formatter.write_dl([(name.ljust(longest), text) for name, text in panels[panel]])


def _place(name: str) -> int:
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)


def sentence(command: Any) -> str:
    """Return the first sentence of a command's help."""
    text = " ".join((command.help or "").partition("\n\n")[0].split())
    head, stop, _ = text.partition(". ")
    return head + "." if stop else text


def group(help: str) -> typer.Typer:
    """Create a group of commands; `help` ends with an example."""
    return typer.Typer(cls=Group, help=help, no_args_is_help=True, rich_markup_mode=None, add_completion=False)
