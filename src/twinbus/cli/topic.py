"""`twinbus topic create|list|show|update|status|delete`: manage the topics of a namespace."""

from __future__ import annotations

from typing import Annotated

import typer

from twinbus.cli.completion import topic_names
from twinbus.cli.entity_group import DURATIONS, EntityGroup
from twinbus.entities.setting import TOPIC

topics = EntityGroup(
    kind=TOPIC,
    arguments={"name": Annotated[str, typer.Argument(metavar="NAME", help="The topic.", autocompletion=topic_names)]},
    new_name=Annotated[str, typer.Argument(metavar="NAME", help="The topic.")],
    title="path",
    counts={"subscriptions": "subscriptions", "scheduled": "scheduled_messages", "bytes": "size_bytes"},
    owned="subscription",
    owned_counts=("subscriptions",),
    statuses="Active, Disabled or SendDisabled",
    notes={"create": DURATIONS},
    examples={
        "": ("twinbus topic create news", "twinbus subscription create news all"),
        "create": (
            "twinbus topic create news",
            "twinbus topic create news --requires-duplicate-detection --duplicate-window 1h",
        ),
        "list": ("twinbus topic list", "twinbus topic list --filter news"),
        "show": ("twinbus topic show news",),
        "update": ("twinbus topic update news --default-ttl 7d",),
        "status": ("twinbus topic status news SendDisabled",),
        "delete": ("twinbus topic delete news --yes",),
    },
).commands()
