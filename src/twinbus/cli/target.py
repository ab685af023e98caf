"""The namespace that a command works with, and the options that select it.

Rules:
- A connection string identifies it: from the ready file of `twinbus serve`, a file, a named context,
  `--connection-string`, TWINBUS_CONNECTION_STRING, or the context in use. The string holds a secret and is never shown.
- Entities of a Twinbus namespace are managed over AMQP; those of Azure through the official SDK's administration
  client.
- An error about a missing name suggests the nearest existing one, as far as the key may list names.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate

import typer

from twinbus.auth.connection_string import ConnectionString as Parsed
from twinbus.cli import directory
from twinbus.cli.completion import context_names
from twinbus.cli.contexts import found_context
from twinbus.errors import (
    ConfigError,
    ConnectionForcedError,
    EntityDisabledError,
    EntityNotFoundError,
    OperationTimeoutError,
    ServiceError,
    TwinbusError,
    UnauthorizedError,
)
from twinbus.spelling import did_you_mean

if TYPE_CHECKING:
    from twinbus.client import BusClient

VARIABLE = "TWINBUS_CONNECTION_STRING"
# Time limit for finding the nearest name: the error is reported anyway.
_NEAR_S = 2.0
_SHOWN = 5
# Parts of errors that mean the other side is not a broker.
_STRANGERS = ("not a broker", "protocol header", "WRONG_VERSION", " within ")
# Domains of Azure's clouds.
_AZURE = (
    ".servicebus.windows.net",
    ".servicebus.usgovcloudapi.net",
    ".servicebus.chinacloudapi.cn",
    ".servicebus.cloudapi.de",
)

ConnectionString = Annotated[
    str | None,
    typer.Option(
        "--connection-string",
        "-c",
        metavar="TEXT",
        envvar=VARIABLE,
        show_envvar=True,
        help="Connection string of the namespace.",
    ),
]
ConnectionFile = Annotated[Path | None, typer.Option(metavar="FILE", help="File that contains the connection string.")]
ReadyFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Ready file of `twinbus serve`.")]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAME", help="Namespace in the ready file.")
]
ContextName = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        envvar="TWINBUS_CONTEXT",
        show_envvar=True,
        help="Context of `twinbus context`.",
        autocompletion=context_names,
    ),
]
CaFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="CA certificate to trust; `twinbus trust` shows the broker's.")
]

_OPTIONS = {
    "connection_string": ConnectionString,
    "connection_file": ConnectionFile,
    "ready_file": ReadyFile,
    "namespace": Namespace,
    "context": ContextName,
    "ca_file": CaFile,
}


@dataclass(frozen=True, slots=True)
class TargetNamespace:
    """A namespace to work with."""

    broker: Parsed
    # None for the system's CAs.
    ca_file: Path | None = None

    @property
    def azure(self) -> bool:
        """Whether it is Azure, which does not support our directory requests."""
        return self.broker.host.lower().endswith(_AZURE)

    def ask(
        self, operation: str, body: dict[str, Any] | None = None, *, patience_s: float | None = None
    ) -> dict[str, Any]:
        """Send a directory request: `create-queue`, `list-topics`, and so on."""
        if self.azure:
            from twinbus.cli.azure_directory import answer

            return answer(self.broker, self.ca_file, operation, body or {})
        return directory.ask(
            self.broker, f"twinbus:{operation}", body or {}, ca_file=self.ca_file, patience_s=patience_s
        )

    def client(self) -> BusClient:
        """Create a client for messages."""
        return directory.client_of(self.broker, self.ca_file, directory.PATIENCE_S)

    def names(self, patience_s: float = _NEAR_S) -> list[str]:
        """Return the names of all queues and topics."""
        queues = self.ask("list-queues", patience_s=patience_s)["queues"]
        topics = self.ask("list-topics", patience_s=patience_s)["topics"]
        return sorted(str(each["path"]) for each in (*queues, *topics))


def connected(
    command: Callable[Concatenate[TargetNamespace, ...], None], *, unless: str | None = None
) -> Callable[..., None]:
    """Turn a function into a command on a namespace: add the options that select one, and pass the target as first
    argument.

    If the option `unless` is given, the command works on something else and gets no target.
    """
    signature = inspect.signature(command, eval_str=True)

    @functools.wraps(command)
    def run(**given: Any) -> None:
        told = {name: given.pop(name) for name in _OPTIONS}
        ca_file = told.pop("ca_file")
        if ca_file is not None and not ca_file.is_file():
            raise ConfigError(f"There is no file {ca_file}: --ca-file needs a CA certificate in PEM format.")
        if unless is not None and given[unless] is not None:
            command(None, **given)  # type: ignore[arg-type]
            return
        target = found_target(ca_file=ca_file, **told)
        try:
            command(target, **given)
        except ServiceError as error:
            raise advised(error, target, given) from None

    own = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in list(signature.parameters.values())[1:]]
    own += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in _OPTIONS.items()
    ]
    run.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in own} | {"return": None}
    return run


def found_target(
    connection_string: str | None,
    connection_file: Path | None,
    ready_file: Path | None,
    namespace: str | None,
    context: str | None,
    ca_file: Path | None,
) -> TargetNamespace:
    """Return the namespace given by options and variables, or else by the context in use."""
    named = ready_file is not None or connection_file is not None or namespace is not None
    if not named and (context is not None or connection_string is None):
        found = found_context(context)
        if found is not None:
            return TargetNamespace(Parsed.parse(found[0]), ca_file or found[1])
    return TargetNamespace(directory.find(connection_string, ready_file, namespace, connection_file), ca_file)


def advised(error: ServiceError, target: TargetNamespace, given: dict[str, Any]) -> ServiceError:
    """Return the error with the next step in its text, and without details that only help with the broker's log."""
    # Keep the tracking id of an internal error, so that the operator can find it in the log.
    text = error.text if type(error) is ServiceError else _told(error)
    return type(error)(" ".join(filter(None, [text, _step(error, text, target, given)])))


def _told(error: ServiceError) -> str:
    from twinbus.errors import InternalError

    if isinstance(error, InternalError):
        return error.text
    text = error.text
    for mark in (" To know more visit", " TrackingId:", " Reference:", "TrackingId:"):
        text = text.partition(mark)[0]
    text = text.rstrip(" ,;")
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _step(error: ServiceError, text: str, target: TargetNamespace, given: dict[str, Any]) -> str:
    host, port = target.broker.address
    if isinstance(error, EntityNotFoundError):
        return _nearest(target, given)
    if isinstance(error, UnauthorizedError):
        return f"Check the key and its rights for {host}: `twinbus policy list` shows a broker's policies."
    if isinstance(error, EntityDisabledError):
        return "`twinbus queue status NAME Active` enables a queue; topics and subscriptions have the same command."
    if "SessionId was not set" in text:
        return "Give --session ID."
    if "non-sessionful" in text:
        return "Give --session ID, or --any-session."
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return "Give the CA that issued it with --ca-file; `twinbus trust` shows a broker's."
    if isinstance(error, ConnectionForcedError | OperationTimeoutError):
        if target.azure:
            return "Check the host name and the network."
        if any(mark in text for mark in _STRANGERS):
            return f"Is {port} the right port? `twinbus serve` shows it."
        if "No connection" in text:
            return "Is it running? Start it with `twinbus serve`, or check host and port in the connection string."
    return ""


def _nearest(target: TargetNamespace, given: dict[str, Any]) -> str:
    try:
        names = target.names()
    except (TwinbusError, OSError):
        return ""  # the key may not list names
    known = {name.lower() for name in names}
    # If a topic is given, the name is that of a subscription.
    said = [given[name] for name in ("entity", "topic", "to") if given.get(name)] or [given.get("name") or ""]
    asked = next((each for each in said if str(each).lower() not in known), said[0])
    if any(name.lower() == str(asked).lower() for name in names):
        return _nearest_subscription(target, str(asked), str(given.get("subscription") or given.get("name") or ""))
    if not names:
        return "The namespace has no queues and topics yet: `twinbus queue create NAME` creates one."
    return did_you_mean(str(asked), names, _some(names)).lstrip()


def _nearest_subscription(target: TargetNamespace, topic: str, asked: str) -> str:
    try:
        found = target.ask("list-subscriptions", {"topic": topic}, patience_s=_NEAR_S)["subscriptions"]
    except (TwinbusError, OSError):
        return ""  # not a topic: something else is missing
    names = sorted(str(each["name"]) for each in found)
    if not names:
        return f"{topic} has no subscriptions yet: `twinbus subscription create {topic} NAME` creates one."
    if any(name.lower() == asked.lower() for name in names):
        return ""  # a rule is missing
    return did_you_mean(asked, names, _some(names)).lstrip()


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"Existing: {', '.join(names[:_SHOWN])}{more}."
