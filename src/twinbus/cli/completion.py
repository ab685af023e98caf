"""Names for the shell's completion, asked of the namespace that TWINBUS_CONNECTION_STRING names.

Rules:
- A person waits for it with a finger on the tab key: a short time, then nothing.
- Nothing is said, whatever goes wrong: a shell shows it in the middle of the line.
- Azure is not asked: its administration client alone takes longer to load than anybody waits.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Any

from typer import Context

_PATIENCE_S = 1.0


def entity_names(incomplete: str) -> list[str]:
    """Queues and topics."""
    return _starting([*_found("queues", "path"), *_found("topics", "path")], incomplete)


def queue_names(incomplete: str) -> list[str]:
    return _starting(_found("queues", "path"), incomplete)


def topic_names(incomplete: str) -> list[str]:
    return _starting(_found("topics", "path"), incomplete)


def subscription_names(ctx: Context, incomplete: str) -> list[str]:
    """Subscriptions of the topic that the line names."""
    topic = ctx.params.get("topic") or ctx.params.get("entity") or _first_word(str(ctx.info_name))
    return _starting(_found("subscriptions", "name", topic=topic), incomplete) if topic else []


def policy_names(incomplete: str) -> list[str]:
    return _starting(_found("policies", "name"), incomplete)


def _first_word(command: str) -> str | None:
    """What stands behind a command on the line: while an option has no value yet, its arguments are not parsed."""
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    words = line.split()
    behind = words[words.index(command) + 1 :] if command in words else []
    return next((word for word in behind if not word.startswith("-")), None)


def _starting(names: list[str], incomplete: str) -> list[str]:
    return sorted({name for name in names if name.lower().startswith(incomplete.lower())})


def _found(kind: str, field: str, **body: Any) -> list[str]:
    answers: list[str] = []

    def look() -> None:
        # Whatever it is, the completion is not the place to tell it.
        with contextlib.suppress(Exception):
            answers.extend(str(each[field]) for each in _asked(kind, body))

    asking = threading.Thread(target=look, daemon=True)
    asking.start()
    asking.join(_patience_s())
    return [] if asking.is_alive() else answers


def _patience_s() -> float:
    """A second, unless a slow line needs more."""
    try:
        return float(os.environ.get("TWINBUS_COMPLETION_S", _PATIENCE_S))
    except ValueError:
        return _PATIENCE_S


def _asked(kind: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    from twinbus.auth.connection_string import ConnectionString
    from twinbus.cli.target import VARIABLE, TargetNamespace

    target = TargetNamespace(ConnectionString.parse(os.environ[VARIABLE]))
    if target.azure:
        return []
    answer: list[dict[str, Any]] = target.ask(f"list-{kind}", body, patience_s=_patience_s())[kind]
    return answer
