"""`twinbus subscription create|list|show|update|status|delete`: manage the subscriptions of a topic."""

from __future__ import annotations

from typing import Annotated

import typer

from twinbus.cli.completion import subscription_names, topic_names
from twinbus.cli.entity_group import MESSAGE_COUNTS, EntityGroup
from twinbus.entities.setting import SUBSCRIPTION

subscriptions = EntityGroup(
    kind=SUBSCRIPTION,
    arguments={
        "topic": Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", autocompletion=topic_names)],
        "name": Annotated[
            str, typer.Argument(metavar="NAME", help="The subscription.", autocompletion=subscription_names)
        ],
    },
    new_name=Annotated[str, typer.Argument(metavar="NAME", help="The subscription.")],
    title="name",
    counts=MESSAGE_COUNTS | {"bytes": "size_bytes"},
    owned="message",
    owned_counts=tuple(MESSAGE_COUNTS.values()),
    statuses="Active, Disabled or ReceiveDisabled",
    notes={"create": "Its first rule, $Default, selects every message; `twinbus rule create --only` replaces it."},
    examples={
        "": ("twinbus subscription create news all", "twinbus subscription list news"),
        "create": (
            "twinbus subscription create news all",
            "twinbus subscription create news audit --forward-to audit-queue",
        ),
        "list": ("twinbus subscription list news", "twinbus subscription list news --sort active"),
        "show": ("twinbus subscription show news all",),
        "update": ("twinbus subscription update news all --max-delivery-count 3",),
        "status": ("twinbus subscription status news all ReceiveDisabled",),
        "delete": ("twinbus subscription delete news all --yes",),
    },
).commands()
