"""The entity that a message command works on, as arguments and as a path.

A subscription is `TOPIC --subscription NAME`, or its path `TOPIC/Subscriptions/NAME`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from twinbus.cli.completion import entity_names, subscription_names
from twinbus.errors import ConfigError

SUBSCRIPTIONS = "/Subscriptions/"
DEAD_LETTERS = "/$DeadLetterQueue"

Entity = Annotated[
    str, typer.Argument(metavar="ENTITY", help="Queue, or topic with --subscription.", autocompletion=entity_names)
]
Destination = Annotated[str, typer.Argument(metavar="ENTITY", help="Queue or topic.", autocompletion=entity_names)]
Subscription = Annotated[
    str | None,
    typer.Option(
        "--subscription", "-s", metavar="NAME", help="Subscription of the topic.", autocompletion=subscription_names
    ),
]
Dead = Annotated[bool, typer.Option("--dead", help="Use its dead-letter queue.")]


def path_of(entity: str, subscription: str | None, *, dead: bool = False) -> str:
    """Return the path to receive from."""
    if subscription is not None:
        if SUBSCRIPTIONS.lower() in entity.lower():
            raise ConfigError(f"{entity} is a subscription already: leave --subscription out, or give the topic alone.")
        entity = f"{entity}{SUBSCRIPTIONS}{subscription}"
    return f"{entity}{DEAD_LETTERS}" if dead else entity


def source_of(path: str) -> str:
    """Return the queue or topic to which the messages of a path were sent."""
    at = path.lower().find(SUBSCRIPTIONS.lower())
    return path if at < 0 else path[:at]
