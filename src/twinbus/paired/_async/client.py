"""The paired client: two namespaces behind the SDK's own interface.

    async with PairedServiceBusClient.from_connection_strings(primary, secondary) as client:
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("hello"))

- The constructor checks everything and connects nothing. Entering the client, or the first send, starts the search for
  the backlog queues in the background.
- Senders continue while the primary is down; receivers use only the primary.
- When neither the client nor one of its senders is referenced any more, its background work ends. Its connections, like
  the SDK's, stay open until they are closed.
- The primary of an open pair cannot be the secondary of another.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import SystemRandom
from typing import Any, NoReturn, Unpack, cast
from uuid import uuid4
from weakref import finalize

from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

from twinbus.clock import SystemClock
from twinbus.paired._async.diverter import AsyncDiverter
from twinbus.paired._async.namespaces import AsyncPairedNamespace, Credential
from twinbus.paired._async.pair import AsyncPair
from twinbus.paired._async.receiver import PairedServiceBusReceiver
from twinbus.paired._async.sender import PairedServiceBusSender
from twinbus.paired.arguments import (
    PairedClientArguments,
    ReceiverArguments,
    SenderArguments,
    SessionListArguments,
    admin_options,
    check_names,
    from_environment,
    pairing_options,
    retry_options,
    sdk_options,
    variable,
)
from twinbus.paired.classify import availability_failure
from twinbus.paired.events import Events
from twinbus.paired.journal import Journal
from twinbus.paired.options import NamespaceAddress, PairingOptions, check_pair
from twinbus.paired.registry import OPEN_PAIRS
from twinbus.paired.retries import Retries
from twinbus.paired.starvation import FairClock, async_meter
from twinbus.paired.state import EntityState
from twinbus.paired.syphon.closing import Side

_FORKED = (
    "The process was forked after this client had connected: the child cannot share its parent's connections. "
    "Make a PairedServiceBusClient in each process, after the fork."
)


class PairedServiceBusClient(ServiceBusClient):
    """A client of a primary namespace whose sends go to a secondary while the primary is down.

    A subclass so that it fits where the SDK's is asked for. All methods are its own: it has no connection, its pair
    does.

    `options` is a `PairingOptions`; each option may also be given by name. `classify` decides which errors may lead to
    a failover, `on_event` is called with every event (one callable or several, async or not), `ledger` is a folder for
    the operations ledger. The SDK's own options (`retry_total`, `http_proxy`, `connection_verify`, ...) go to the
    clients of both namespaces, `primary_options` and `secondary_options` to those of one, `admin_options` to the
    administration clients.
    """

    def __init__(
        self,
        primary_namespace: str | AsyncPairedNamespace,
        primary_credential: Credential,
        secondary_namespace: str | AsyncPairedNamespace,
        secondary_credential: Credential,
        **arguments: Unpack[PairedClientArguments],
    ) -> None:
        check_names(arguments)
        options = pairing_options(arguments)
        primary = _namespace(primary_namespace, primary_credential)
        secondary = _namespace(secondary_namespace, secondary_credential)
        check_pair(primary.address, secondary.address, OPEN_PAIRS.primaries())
        sdk = sdk_options(arguments)
        for side, namespace in (("primary", primary), ("secondary", secondary)):
            namespace.options = {**sdk, **(arguments.get(f"{side}_options") or {})}  # type: ignore[dict-item]
            namespace.admin_options = admin_options(arguments, side, options.try_timeout)
        wall_clock = SystemClock()
        on_event, ledger = arguments.get("on_event", ()), arguments.get("ledger")
        events = Events(
            options.primary_name or _name(primary.address),
            _name(secondary.address),
            clock=wall_clock,
            listeners=[on_event] if callable(on_event) else on_event,
            journal=None if ledger is None else Journal(Path(ledger), uuid4().hex, wall_clock),
        )
        if events.journal is not None:
            events.journal.waits_for_names = None in (
                options.primary_name or primary.address.label,
                secondary.address.label,
            )
        self._pair = AsyncPair(
            primary,
            secondary,
            options=options,
            retries=Retries(options, **retry_options(primary.options)),
            classify=arguments.get("classify", availability_failure),
            events=events,
            clock=FairClock(async_meter()),
            wall_clock=wall_clock,
            rng=arguments.get("rng") or SystemRandom(),
        )
        # The primary's host name.
        self.fully_qualified_namespace = self._pair.receiving.fully_qualified_namespace
        self._hosts = _host(primary.address), _host(secondary.address)
        # Senders that are not closed: closing the client closes them, also those that are not referenced any more.
        self._senders: set[PairedServiceBusSender] = set()
        OPEN_PAIRS.add(self, primary.address)
        # A syphon is a service: it runs until it is closed.
        self._forgotten = None if options.enable_syphon else finalize(self, self._pair.abandon)
        if self._forgotten is not None:
            self._forgotten.atexit = False

    @classmethod
    def from_connection_strings(
        cls, primary: str, secondary: str, **arguments: Unpack[PairedClientArguments]
    ) -> PairedServiceBusClient:
        """Create a client from two connection strings; the arguments are those of the class."""
        return cls(
            AsyncPairedNamespace.of_string(primary), None, AsyncPairedNamespace.of_string(secondary), None, **arguments
        )

    @classmethod
    def from_connection_string(cls, conn_str: str, **kwargs: Any) -> NoReturn:
        """Not for a pair, which has two connection strings: raises TypeError."""
        raise TypeError(
            "A pair has two namespaces: use PairedServiceBusClient.from_connection_strings(primary, secondary)."
        )

    @classmethod
    def from_environment(cls, **arguments: Unpack[PairedClientArguments]) -> PairedServiceBusClient:
        """Create a client from environment variables: TWINBUS_PRIMARY and TWINBUS_SECONDARY are connection strings,
        TWINBUS_PAIRING may be `responsive`, and every option of `PairingOptions` has a variable
        (TWINBUS_FAILOVER_INTERVAL). Arguments override variables."""
        told = cast(PairedClientArguments, from_environment(arguments))
        return cls.from_connection_strings(variable("PRIMARY"), variable("SECONDARY"), **told)

    # --- life -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> PairedServiceBusClient:
        self._pair.live().start()
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.close()

    async def wait_until_paired(self, timeout: float | None = None) -> None:
        """Wait for the backlog queues. Raises PairingError if none can be found or created, or not within `timeout`
        seconds.

        This is optional: the search runs in the background, and sends to a healthy primary do not need the queues.
        """
        await self._pair.live().start().pairing.wait(timeout)

    async def close(self) -> None:
        """Close both namespaces, with all senders and receivers."""
        await self._end(None)

    async def fault(self, reason: str) -> None:
        """Give up the pair: from now on every sender and receiver raises `reason`."""
        await self._end(reason)

    async def close_namespace(self, side: str, fault: str | None = None) -> None:
        """Close only the `primary` or the `secondary`; with a reason, it counts as faulted.

        If the syphon is enabled the two end together: the other is faulted unless it is closed within five seconds.
        """
        await self._pair.end_side(Side(side), fault)

    async def _end(self, reason: str | None) -> None:
        OPEN_PAIRS.remove(self)
        if self._forgotten is not None:
            self._forgotten.detach()
        if not self._pair.forked:
            await self._pair.close(reason, [sender.close for sender in list(self._senders)])

    def __repr__(self) -> str:
        primary, secondary = self._hosts
        return f"PairedServiceBusClient(primary={primary!r}, secondary={secondary!r})"

    # --- what it makes --------------------------------------------------------------------------------------------

    # Options that the SDK does not have are errors to a checker here, so the signatures are narrower than the SDK's.

    def get_queue_sender(  # type: ignore[override]
        self, queue_name: str, **kwargs: Unpack[SenderArguments]
    ) -> PairedServiceBusSender:
        """A sender to a queue, with the SDK's options."""
        pair = self._pair.live()
        return self._sender("queue", kwargs, lambda: pair.primary.get_queue_sender(queue_name, **kwargs))

    def get_topic_sender(  # type: ignore[override]
        self, topic_name: str, **kwargs: Unpack[SenderArguments]
    ) -> PairedServiceBusSender:
        """A sender to a topic, with the SDK's options."""
        pair = self._pair.live()
        return self._sender("topic", kwargs, lambda: pair.primary.get_topic_sender(topic_name, **kwargs))

    def get_queue_receiver(  # type: ignore[override]
        self, queue_name: str, **kwargs: Unpack[ReceiverArguments]
    ) -> PairedServiceBusReceiver:
        """A receiver from a queue of the primary, with the SDK's options."""
        return self._receiver(self._pair.live().receiving.get_queue_receiver(queue_name, **kwargs))

    def get_subscription_receiver(  # type: ignore[override]
        self, topic_name: str, subscription_name: str, **kwargs: Unpack[ReceiverArguments]
    ) -> PairedServiceBusReceiver:
        """A receiver from a subscription of the primary, with the SDK's options."""
        made = self._pair.live().receiving.get_subscription_receiver(topic_name, subscription_name, **kwargs)
        return self._receiver(made)

    def list_queue_sessions(self, queue_name: str, **kwargs: Unpack[SessionListArguments]) -> Any:
        """The sessions of a queue of the primary, as the SDK lists them."""
        return self._pair.live().receiving.list_queue_sessions(queue_name, **kwargs)

    def list_subscription_sessions(
        self, topic_name: str, subscription_name: str, **kwargs: Unpack[SessionListArguments]
    ) -> Any:
        """The sessions of a subscription of the primary, as the SDK lists them."""
        return self._pair.live().receiving.list_subscription_sessions(topic_name, subscription_name, **kwargs)

    # --- what it knows --------------------------------------------------------------------------------------------

    @property
    def options(self) -> PairingOptions:
        """The options of the pair."""
        return self._pair.options

    @property
    def backlog_queues(self) -> list[str]:
        """The backlog queues in use; empty until they are found."""
        found = self._pair.pairing.found
        return [] if found is None else list(found.names)

    @property
    def missing_backlog_queues(self) -> dict[str, Exception]:
        """Backlog queues that could not be found or created, with the reason."""
        found = self._pair.pairing.found
        return {} if found is None else dict(found.failures)

    @property
    def entity_states(self) -> dict[str, EntityState]:
        """The state of each entity that has, or had, a sender."""
        return {entity.path: entity.state for entity in self._pair.entities}

    # --- inside ---------------------------------------------------------------------------------------------------

    def _sender(
        self, kind: str, arguments: SenderArguments, make: Callable[[], ServiceBusSender]
    ) -> PairedServiceBusSender:
        pair = self._pair
        # The SDK checks the name, and gives the sender its identifier.
        template = make()
        entity = pair.entity(template.entity_name)
        # A sender with an identifier or a timeout of its own gets links of its own.
        links = pair.primary_links(entity, (kind, template.entity_name, repr(sorted(arguments.items()))), make)
        diverter = AsyncDiverter(
            entity.path,
            pairing=pair.pairing,
            links=pair.backlog_links,
            leave=pair.leave,
            options=pair.options,
            clock=pair.clock,
            events=pair.events,
            closing=entity.changed,
        )
        pair.diverters.add(diverter)
        sender = PairedServiceBusSender(pair, entity, links, diverter, template)
        # A sender keeps its client alive.
        sender._client = self
        sender._on_close = self._senders.discard
        self._senders.add(sender)
        return sender

    def _forked(self) -> None:
        """Called in a forked child. Connections belong to the parent; a client that never connected stays usable."""
        if not self._pair.used:
            if self._pair.events.journal is not None:
                self._pair.events.journal.renew()
            return
        self._pair.orphan(_FORKED)

    def _receiver(self, made: Any) -> PairedServiceBusReceiver:
        receiver = PairedServiceBusReceiver.of(made)
        self._pair.receivers.add(receiver)
        return receiver


def _namespace(given: str | AsyncPairedNamespace, credential: Credential) -> AsyncPairedNamespace:
    return AsyncPairedNamespace.of_credential(given, credential) if isinstance(given, str) else given


def _name(address: NamespaceAddress) -> str:
    return address.label or address.plain_name


def _host(address: NamespaceAddress) -> str:
    return address.host if address.port is None else f"{address.host}:{address.port}"
