"""Settings of entities as options, the same for every kind of entity, and how settings are shown.

Rules:
- A setting that is not given is the service's to choose; its refusal is shown as it is.
- An update reads what is there, changes what is given, and leaves the rest. An empty text takes a setting away.
- Durations are written PT30S, P14D, or 30s, 5m, 14d; `never` is the longest.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from twinbus.errors import ConfigError
from twinbus.limits import UNLIMITED_MS

# What a description has besides settings.
NUMBERS = frozenset(
    {
        "created_ms",
        "updated_ms",
        "accessed_ms",
        "size_bytes",
        "active_messages",
        "scheduled_messages",
        "deferred_messages",
        "dead_letter_messages",
        "transfer_dead_letter_messages",
        "subscriptions",
    }
)
STATUSES = ("Active", "Disabled", "SendDisabled", "ReceiveDisabled")
_TIMES = ("created_ms", "updated_ms", "accessed_ms")


def statuses(incomplete: str) -> list[str]:
    """For the shell's completion."""
    return [each for each in STATUSES if each.lower().startswith(incomplete.lower())]


def _duration(help: str) -> Any:
    return typer.Option(metavar="DURATION", help=help)


LockDuration = Annotated[str | None, _duration("How long a lock lasts [1m].")]
DefaultTtl = Annotated[str | None, _duration("Time to live [never].")]
DeadLetterOnExpiry = Annotated[
    bool | None, typer.Option("--dead-letter-on-expiry/--drop-on-expiry", help="Where expired messages go [drop].")
]
DeadLetterOnFilterError = Annotated[
    bool | None,
    typer.Option(
        "--dead-letter-on-filter-error/--drop-on-filter-error",
        help="Where messages go whose rules fail on them [dead-letter].",
    ),
]
MaxDeliveryCount = Annotated[
    int | None, typer.Option(metavar="N", help="Deliveries before the dead-letter queue [10].")
]
RequiresSession = Annotated[bool | None, typer.Option(help="Every message belongs to a session.")]
RequiresDuplicateDetection = Annotated[bool | None, typer.Option(help="Drop messages with a known id.")]
DuplicateWindow = Annotated[str | None, _duration("How long ids are remembered [10m].")]
MaxMegabytes = Annotated[int | None, typer.Option(metavar="N", help="The size at which sends are refused [1024].")]
MaxMessageBytes = Annotated[int | None, typer.Option(metavar="N", help="The largest message [262144].")]
StatusOption = Annotated[
    str | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        help=f"{', '.join(STATUSES[:-1])} or {STATUSES[-1]} [Active].",
        autocompletion=statuses,
    ),
]
NewStatus = Annotated[
    str | None, typer.Argument(metavar="STATUS", help="What it is to be.", autocompletion=statuses, show_default=False)
]
AutoDeleteOnIdle = Annotated[str | None, _duration("Delete it after that much idleness [never].")]
ForwardTo = Annotated[str | None, typer.Option(metavar="ENTITY", help="Where messages are forwarded.")]
ForwardDeadLettersTo = Annotated[
    str | None, typer.Option(metavar="ENTITY", help="Where dead-lettered messages are forwarded.")
]
EnableBatchedOperations = Annotated[bool | None, typer.Option(help="Kept for the service's sake.")]
EnablePartitioning = Annotated[bool | None, typer.Option(help="Kept for the service's sake.")]
EnableExpress = Annotated[bool | None, typer.Option(help="Kept for the service's sake.")]
SupportOrdering = Annotated[bool | None, typer.Option(help="Kept for the service's sake.")]
FilterBeforePublishing = Annotated[bool | None, typer.Option(help="Kept for the service's sake.")]
UserMetadata = Annotated[str | None, typer.Option(metavar="TEXT", help="A note of your own.")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The settings that were given, as the directory takes them. Durations are the options that its fields call
    `..._ms`."""
    from twinbus.durations import parse_ms

    durations = ("lock_duration", "default_ttl", "duplicate_window", "auto_delete_on_idle")
    found: dict[str, Any] = {}
    for name, value in options.items():
        if value is None:
            continue
        if name in durations:
            found[f"{name}_ms"] = parse_ms(value)
        else:
            found[name] = _status(value) if name == "status" else value
    return found


def _status(text: str) -> str:
    """A status as the service writes it."""
    for each in STATUSES:
        if each.lower() == text.lower():
            return each
    raise ConfigError(f"status {text!r} is not one of {', '.join(STATUSES)}.")


def changed(before: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Settings as they are with the given ones in their place; an empty text takes one away."""
    settings = {name: value for name, value in before.items() if name not in NUMBERS}
    settings |= {name: None if value == "" else value for name, value in given(options).items()}
    return {name: value for name, value in settings.items() if value is not None}


def rows(described: dict[str, Any]) -> list[list[str]]:
    """A description as rows of a table."""
    return [_row(field, value) for field, value in described.items()]


def _row(field: str, value: Any) -> list[str]:
    from twinbus.durations import format_ms

    if field in _TIMES:
        return [field.removesuffix("_ms"), time_text(value)]
    if value is None:
        return [field.removesuffix("_ms").replace("_", "-"), "-"]
    if field.endswith("_ms"):
        return [field.removesuffix("_ms").replace("_", "-"), "never" if value >= UNLIMITED_MS else format_ms(value)]
    if isinstance(value, bool):
        shown = "yes" if value else "no"
    else:
        shown = f"{value:,}" if isinstance(value, int) else str(value)
    return [field.replace("_", "-"), shown]


def time_text(ms: int | None) -> str:
    """A time for people."""
    if not ms:
        return "-"
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
