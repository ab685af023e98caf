"""The namespace's own management node: making, listing and deleting entities over AMQP.

Requests go to `$management` at the root, need the Manage right, and take and give the fields of `QueueSettings`.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from twinbus.amqp.types import Int
from twinbus.broker.requests import Request
from twinbus.entities.queue import Queue
from twinbus.entities.settings import QueueSettings
from twinbus.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost

_FIELDS = tuple(QueueSettings.__dataclass_fields__)


class Directory:
    """Answers requests about a namespace's entities."""

    __slots__ = ("_host",)

    def __init__(self, host: NamespaceHost) -> None:
        # The namespace.
        self._host = host

    def handle(self, request: Request) -> None:
        operation = request.operation.removeprefix("twinbus:")
        if operation == "create-queue":
            queue = self._host.create_queue(settings_of(request.arguments))
            self._host.commits.facts.then.append((_answer, (request, {"queue": description(queue)})))
        elif operation == "update-queue":
            queue = self._host.update_queue(settings_of(request.arguments))
            self._host.commits.facts.then.append((_answer, (request, {"queue": description(queue)})))
        elif operation == "delete-queue":
            self._host.delete_queue(_name(request))
            self._host.commits.facts.then.append((_answer, (request, {})))
        elif operation == "get-queue":
            request.answer_management(200, "OK", {"queue": description(self._host.entities.queue(_name(request)))})
        elif operation == "list-queues":
            queues = [description(queue) for queue in self._host.entities.queues()]
            request.answer_management(200, "OK", {"queues": queues})
        else:
            raise UnsupportedError(
                f"The operation '{request.operation[:64]}' is not known to the namespace. Known: twinbus:create-queue, "
                "twinbus:update-queue, twinbus:delete-queue, twinbus:get-queue, twinbus:list-queues."
            )


def settings_of(fields: dict[Any, Any]) -> QueueSettings:
    """Settings from a request's map; an unknown field is an error that names the nearest known one."""
    for name in fields:
        if name not in _FIELDS:
            near = difflib.get_close_matches(str(name), _FIELDS, 1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise ArgumentError(f"A queue has no setting '{str(name)[:64]}'.{hint}")
    plain = {str(name): _plain(value) for name, value in fields.items() if value is not None}
    if "path" not in plain:
        raise ArgumentError("A queue needs its 'path'.")
    return QueueSettings.from_json(plain)


def description(queue: Queue) -> dict[str, Any]:
    """A queue's settings and numbers."""
    counts = queue.counts
    return {
        **queue.settings.to_json(),
        "created_ms": queue.created_ms,
        "updated_ms": queue.updated_ms,
        "accessed_ms": queue.accessed_ms,
        "size_bytes": queue.size_bytes,
        "active_messages": Int(counts.active),
        "scheduled_messages": Int(counts.scheduled),
        "deferred_messages": Int(counts.deferred),
        "dead_letter_messages": Int(counts.dead_letter),
    }


def _plain(value: Any) -> Any:
    """AMQP numbers and symbols as the settings want them."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    return str(value) if isinstance(value, str) else value


def _name(request: Request) -> str:
    name = request.arguments.get("name")
    if not isinstance(name, str) or not name:
        raise ArgumentError("The request needs the queue's 'name'.")
    return name


def _answer(answer: tuple[Request, dict[str, Any]]) -> None:
    request, body = answer
    request.answer_management(200, "OK", body)
