"""`twinbus queue create|list|show|update|status|delete`: manage the queues of a namespace."""

from __future__ import annotations

from typing import Annotated

import typer

from twinbus.cli.completion import queue_names
from twinbus.cli.entity_group import DURATIONS, MESSAGE_COUNTS, EntityGroup
from twinbus.entities.setting import QUEUE

queues = EntityGroup(
    kind=QUEUE,
    arguments={"name": Annotated[str, typer.Argument(metavar="NAME", help="The queue.", autocompletion=queue_names)]},
    new_name=Annotated[str, typer.Argument(metavar="NAME", help="The queue.")],
    title="path",
    counts=MESSAGE_COUNTS | {"bytes": "size_bytes"},
    owned="message",
    owned_counts=tuple(MESSAGE_COUNTS.values()),
    statuses="Active, Disabled, SendDisabled or ReceiveDisabled",
    notes={"create": DURATIONS},
    examples={
        "": ("twinbus queue create orders --lock-duration 30s --max-delivery-count 5", "twinbus queue list"),
        "create": (
            "twinbus queue create orders",
            "twinbus queue create orders --requires-session --default-ttl 14d --dead-letter-on-expiry",
        ),
        "list": (
            "twinbus queue list",
            "twinbus queue list --json | jq '.[] | select(.dead_letter_messages > 0) | .path'",
        ),
        "show": ("twinbus queue show orders", "twinbus queue show orders --json | jq .active_messages"),
        "update": (
            "twinbus queue update orders --lock-duration 2m --max-delivery-count 20",
            "twinbus queue update orders --forward-to ''",
        ),
        "status": ("twinbus queue status orders", "twinbus queue status orders ReceiveDisabled"),
        "delete": ("twinbus queue delete orders", "twinbus queue delete orders --yes"),
    },
).commands()
