"""Which broker a command talks to, and one question to its directory, the namespace's own `$management` node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twinbus.auth.connection_string import ConnectionString
from twinbus.cli.conversation import Conversation
from twinbus.errors import ConfigError

_NODE = "$management"


def find(connection_string: str | None, ready_file: Path | None, namespace: str | None) -> ConnectionString:
    """The broker to ask; a ready file wins over a string from the environment."""
    if ready_file is not None:
        return ConnectionString.parse(_from_ready_file(ready_file, namespace))
    if namespace is not None:
        raise ConfigError("--namespace chooses from a ready file: give --ready-file too.")
    if connection_string is None:
        raise ConfigError(
            "Which broker? Give --connection-string, set TWINBUS_CONNECTION_STRING, or give --ready-file FILE."
        )
    return ConnectionString.parse(connection_string)


def ask(broker: ConnectionString, operation: str, body: dict[str, Any]) -> dict[str, Any]:
    """One request; ServiceError when the broker refuses it."""
    with Conversation(broker) as conversation:
        conversation.log_in(_NODE)
        return conversation.ask(_NODE, operation, body)


def _from_ready_file(path: Path, namespace: str | None) -> str:
    try:
        namespaces = json.loads(path.read_text())["namespaces"]
        strings = {name: str(each["connection_string"]) for name, each in namespaces.items()}
    except OSError as error:
        raise ConfigError(f"The ready file {path} cannot be read: {error.strerror}. Is the broker running?") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"{path} is not a ready file of `twinbus serve`.") from None
    names = ", ".join(sorted(strings))
    if namespace is None:
        if len(strings) != 1:
            raise ConfigError(f"The ready file {path} has several namespaces: choose one with --namespace ({names}).")
        return next(iter(strings.values()))
    for name, text in strings.items():
        if name.lower() == namespace.lower():
            return text
    raise ConfigError(f"The ready file {path} has no namespace {namespace!r}; it has {names}.")
