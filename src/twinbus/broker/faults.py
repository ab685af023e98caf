"""Injected faults, for testing how applications handle outages. Off unless the broker allows them.

| mode | a namespace | an entity |
|---|---|---|
| down | cuts connections, including new ones | detaches links and refuses attaches with an internal error |
| silent | reads every byte and answers none | accepts transfers and settlements, does nothing, answers none |
| slow | reads with a delay | works with a delay |
| refusing | refuses attaches | allows attaches; rejects transfers, fails settlements |
| lossy | does everything, but its answers are lost | stores what is sent and does not answer |

- Faults cost nothing when there are none: only the links of a faulty entity are wrapped.
- A connection that was silent or lossy is useless afterwards, so it is cut when the fault is cleared.
- Faults do not affect HTTP, which is how they are cleared.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twinbus.amqp.events import Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.states import State, state_rejected
from twinbus.broker.links.consumer import Consumer
from twinbus.broker.links.publisher import Publisher
from twinbus.broker.links.settlement import kind_of
from twinbus.broker.slices import Work
from twinbus.errors import (
    ArgumentError,
    EntityNotFoundError,
    InternalError,
    NotAllowedError,
    ServerBusyError,
    ServiceError,
)
from twinbus.ledger.words import Kind
from twinbus.limits import FAULT_DELAY_MS_MAX

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost

MODES = ("down", "silent", "slow", "refusing", "lossy")

# The errors of a refusing namespace or entity, by the name used on the command line.
REFUSALS: dict[str, type[ServiceError]] = {"server-busy": ServerBusyError, "internal-error": InternalError}


@dataclasses.dataclass(frozen=True)
class Fault:
    """One outage: of an entity, or of the namespace when `entity` is None."""

    mode: str
    entity: str | None = None
    delay_ms: int = 1_000
    refusal: str = "server-busy"

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ArgumentError(f"The fault {self.mode!r} is not known: {', '.join(MODES)}.")
        if not 0 <= self.delay_ms <= FAULT_DELAY_MS_MAX:
            raise ArgumentError(f"delay_ms {self.delay_ms} is out of range: 0 to {FAULT_DELAY_MS_MAX}.")
        if self.refusal not in REFUSALS:
            raise ArgumentError(f"The refusal {self.refusal!r} is not known: {', '.join(REFUSALS)}.")

    @property
    def error(self) -> ServiceError:
        """The error that clients get."""
        what = f"The entity '{self.entity}'" if self.entity else "The namespace"
        if self.mode == "refusing":
            return REFUSALS[self.refusal](f"{what} refuses to work: a fault was asked for.")
        return InternalError(f"{what} is unavailable: a fault was asked for.")

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


class Faults:
    """The faults of one namespace."""

    def __init__(self, host: NamespaceHost, allowed: bool) -> None:
        self._host = host
        self.allowed = allowed
        # The fault of the whole namespace; connections check it.
        self.namespace: Fault | None = None
        # By lower-case entity path.
        self.entities: dict[str, Fault] = {}

    def all(self) -> list[Fault]:
        found = [] if self.namespace is None else [self.namespace]
        return found + list(self.entities.values())

    def set(self, fault: Fault) -> None:
        if not self.allowed:
            raise NotAllowedError("Faults are not allowed here: start the broker with --allow-faults.")
        if fault.entity is None:
            self._clear_namespace()
            self.namespace = fault
            if fault.mode == "down":
                self._host.cut_connections()
            return
        queue = self._host.entities.entity(fault.entity)
        self.clear(fault.entity)
        self.entities[queue.path.lower()] = fault
        dispatcher = self._host.senders(queue)
        if fault.mode == "down":
            dispatcher.close(self._host.tracker.wire_error(fault.error, queue.path))
            return
        for owner in dispatcher.owners:
            self.wrap(owner.link)

    def clear(self, entity: str | None = None) -> None:
        """End an entity's fault, or the namespace's."""
        if entity is None:
            self._clear_namespace()
            return
        fault = self.entities.pop(entity.lower(), None)
        if fault is None:
            return
        try:
            dispatcher = self._host.senders(self._host.entities.entity(entity))
        except EntityNotFoundError:
            return  # it was deleted meanwhile, and its links with it
        for owner in dispatcher.owners:
            owner.link.context = owner
            if isinstance(owner, Consumer):
                owner.held = False
                owner.on_credit()

    def clear_all(self) -> None:
        for entity in list(self.entities):
            self.clear(entity)
        self._clear_namespace()

    def check_attach(self, path: str) -> None:
        """Raise if a fault refuses an attach to `path`."""
        fault = self.namespace
        if fault is not None and fault.mode == "refusing":
            raise fault.error
        fault = self.entities.get(path.lower())
        if fault is not None and fault.mode == "down":
            raise fault.error

    def wrap(self, link: Link) -> None:
        """Apply the fault of its entity, if any, to a newly attached link."""
        owner = link.context
        if isinstance(owner, Consumer | Publisher):
            fault = self.entities.get(owner.queue.path.lower())
            if fault is not None:
                self._wrap(link, owner, fault)

    def _wrap(self, link: Link, owner: Consumer | Publisher, fault: Fault) -> None:
        link.context = FaultyOwner(self._host, link, owner, fault)
        if isinstance(owner, Consumer):
            owner.held = fault.mode in ("silent", "refusing")

    def _clear_namespace(self) -> None:
        fault, self.namespace = self.namespace, None
        if fault is not None and fault.mode in ("silent", "lossy"):
            self._host.cut_connections()


class FaultyOwner:
    """Stands between a link and its owner while the entity has a fault."""

    __slots__ = ("_fault", "_host", "_link", "_owner")

    def __init__(self, host: NamespaceHost, link: Link, owner: Consumer | Publisher, fault: Fault) -> None:
        self._host = host
        self._link = link
        # The real owner of the link.
        self._owner = owner
        self._fault = fault

    def on_transfer(self, event: Transfer) -> Work | None:
        mode = self._fault.mode
        if mode == "lossy":
            event.settled = True  # stored, but not answered
            return self._owner.on_transfer(event)
        if mode == "slow":
            self._later(lambda: self._transfer_late(event))
        elif mode == "refusing" and not event.settled:
            error = self._host.tracker.wire_error(self._fault.error, self._owner.queue.path)
            self._host.meter.entity(self._owner.queue.path).counter(Kind.SEND, error.condition).add(event.size)
            self._link.session.settle(event.delivery_id, state_rejected(error))
        return None

    def _transfer_late(self, event: Transfer) -> None:
        work = self._owner.on_transfer(event)
        if work is not None:
            self._host.slices.start(work)

    def on_disposed(self, delivery_id: int, tag: bytes, state: State | None, settled: bool) -> None:
        mode = self._fault.mode
        if mode == "lossy":
            self._owner.on_disposed(delivery_id, tag, state, True)
        elif mode == "slow":
            self._later(lambda: self._owner.on_disposed(delivery_id, tag, state, settled))
        elif mode == "refusing" and not settled:
            error = self._host.tracker.wire_error(self._fault.error, self._owner.queue.path)
            self._host.meter.entity(self._owner.queue.path).counter(kind_of(state), error.condition).count += 1
            self._link.session.answer(delivery_id, state_rejected(error))

    def on_credit(self) -> None:
        if self._fault.mode == "slow":
            self._later(self._owner.on_credit)
        elif self._fault.mode == "lossy":
            self._owner.on_credit()

    def on_detached(self, orderly: bool) -> None:
        self._owner.on_detached(orderly)

    def _later(self, call: Callable[[], None]) -> None:
        self._host.loop.call_later(self._fault.delay_ms / 1000, call)


class FaultyStream:
    """Handles a connection's incoming bytes while its namespace has a fault."""

    __slots__ = ("_host", "_late", "_next_s", "_receive", "lost")

    def __init__(self, host: NamespaceHost, receive: Callable[[bytes], None]) -> None:
        self._host = host
        # Handles bytes normally.
        self._receive = receive
        # Whether outgoing bytes are discarded.
        self.lost = False
        # Delayed bytes keep their order: none is delivered before this loop time.
        self._next_s = 0.0
        # Delayed bytes in order, because timers due at the same moment run in no particular order.
        self._late: deque[bytes] = deque()

    @property
    def behind(self) -> bool:
        """Whether delayed bytes are outstanding; bytes read now come after them, with or without a fault."""
        return bool(self._late)

    def take(self, fault: Fault | None, data: bytes) -> None:
        """Handle bytes from the peer during a fault, or while bytes of an earlier fault are still delayed."""
        mode = None if fault is None else fault.mode
        if fault is not None and mode == "slow":
            self._delay(data, fault.delay_ms / 1000)
        elif mode == "lossy":
            self.lost = True
            self._receive_in_order(data)
        elif mode in (None, "refusing"):
            self._receive_in_order(data)

    def _receive_in_order(self, data: bytes) -> None:
        if self.behind:
            self._delay(data, 0)
        else:
            self._receive(data)

    def _delay(self, data: bytes, seconds: float) -> None:
        loop = self._host.loop
        self._next_s = max(self._next_s, loop.time() + seconds)
        self._late.append(data)
        loop.call_at(self._next_s, self._come)

    def _come(self) -> None:
        self._receive(self._late.popleft())
