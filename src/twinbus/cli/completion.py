"""Shell completion of names from the namespace that the line, the variables or the context in use name.

Rules:
- The user is waiting at the tab key, so the lookup gives up after a short time.
- Errors are never printed: the shell would show them in the middle of the line.
- Azure is not asked: loading its administration client alone takes too long.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Any

from typer import Context

_PATIENCE_S = 1.0


def entity_names(incomplete: str) -> list[str]:
    """Complete queues and topics."""
    return _starting([*_found("queues", "path"), *_found("topics", "path")], incomplete)


def queue_names(incomplete: str) -> list[str]:
    return _starting(_found("queues", "path"), incomplete)


def topic_names(incomplete: str) -> list[str]:
    return _starting(_found("topics", "path"), incomplete)


def subscription_names(ctx: Context, incomplete: str) -> list[str]:
    """Complete subscriptions of the topic on the command line."""
    topic = ctx.params.get("topic") or ctx.params.get("entity") or _first_word(str(ctx.info_name))
    return _starting(_found("subscriptions", "name", topic=topic), incomplete) if topic else []


def policy_names(incomplete: str) -> list[str]:
    return _starting(_found("policies", "name"), incomplete)


def context_names(incomplete: str) -> list[str]:
    from twinbus.cli.contexts import read_contexts

    with contextlib.suppress(Exception):
        return _starting(list(read_contexts()["contexts"]), incomplete)
    return []


def _words() -> list[str]:
    """Return the line so far. Click has not parsed it while an option still lacks its value."""
    return (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or "").split()


def _behind(word: str) -> list[str]:
    words = _words()
    return words[words.index(word) + 1 :] if word in words else []


def _first_word(command: str) -> str | None:
    """Return the first argument after a command."""
    return next((word for word in _behind(command) if not word.startswith("-")), None)


def _starting(names: list[str], incomplete: str) -> list[str]:
    return sorted({name for name in names if name.lower().startswith(incomplete.lower())})


def _found(kind: str, field: str, **body: Any) -> list[str]:
    answers: list[str] = []

    def look() -> None:
        # Completion must stay silent whatever goes wrong.
        with contextlib.suppress(Exception):
            answers.extend(str(each[field]) for each in _asked(kind, body))

    asking = threading.Thread(target=look, daemon=True)
    asking.start()
    asking.join(_patience_s())
    return [] if asking.is_alive() else answers


def _patience_s() -> float:
    """One second, unless TWINBUS_COMPLETION_S allows more for a slow connection."""
    try:
        return float(os.environ.get("TWINBUS_COMPLETION_S", _PATIENCE_S))
    except ValueError:
        return _PATIENCE_S


def _asked(kind: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    from twinbus.cli.target import VARIABLE, found_target

    named = next(iter(_behind("--context")), os.environ.get("TWINBUS_CONTEXT"))
    target = found_target(os.environ.get(VARIABLE) or None, None, None, None, named, None)
    if target.azure:
        return []
    answer: list[dict[str, Any]] = target.ask(f"list-{kind}", body, patience_s=_patience_s())[kind]
    return answer
