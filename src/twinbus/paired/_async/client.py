"""The paired client: two namespaces behind the SDK's own names.

    async with PairedServiceBusClient.from_connection_strings(primary, secondary) as client:
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("hello"))

Rules:
- Making one checks everything and connects nothing; entering it, or the first send, starts the search for the backlog
  queues, which nobody waits for.
- Senders go on while the primary is down; receivers are the primary's own.
- A namespace that is the primary of an open pair cannot be another's secondary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from random import Random, SystemRandom
from types import TracebackType
from typing import Any
from uuid import uuid4
from weakref import WeakSet

from azure.servicebus.aio import ServiceBusSender

from twinbus.clock import MonotonicClock, SystemClock
from twinbus.limits import (
    BACKLOG_QUEUE_PAUSE_S,
    BACKLOG_QUEUES_DEFAULT,
    FAILOVER_INTERVAL_S_DEFAULT,
    PING_INTERVAL_S_DEFAULT,
    SENDS_IN_FLIGHT_DEFAULT,
    TRY_TIMEOUT_S_DEFAULT,
)
from twinbus.paired._async.channel import AsyncChannel
from twinbus.paired._async.diverter import AsyncDiverter
from twinbus.paired._async.namespaces import AsyncNamespace
from twinbus.paired._async.pair import AsyncPair
from twinbus.paired._async.receiver import PairedServiceBusReceiver
from twinbus.paired._async.sender import PairedServiceBusSender
from twinbus.paired.classify import Policy, availability_failure
from twinbus.paired.events import Events, Listener
from twinbus.paired.journal import Journal
from twinbus.paired.options import Address, PairedOptions, check_pair
from twinbus.paired.registry import OPEN_PAIRS
from twinbus.paired.retries import Retries
from twinbus.paired.state import State
from twinbus.paired.synchronization import AsyncPool
from twinbus.paired.syphon.bond import Side

_FORKED = (
    "The process was forked after this client had connected: the child cannot share its parent's connections. "
    "Make a PairedServiceBusClient in each process, after the fork."
)


class PairedServiceBusClient:
    """A client of a primary namespace whose sends go on, into a secondary, while the primary is down.

    The options are those of `PairedOptions`. `classify` decides which errors may lead to a failover, `on_event` is
    called with every event (one callable or several), `ledger` is a folder for the operations ledger. `admin_options`
    go to the administration clients that look for the backlog queues, `primary_options` and `secondary_options` to the
    SDK's clients of one namespace, and all other keywords to both.
    """

    def __init__(
        self,
        primary_namespace: str | AsyncNamespace,
        primary_credential: Any,
        secondary_namespace: str | AsyncNamespace,
        secondary_credential: Any,
        *,
        backlog_queue_count: int = BACKLOG_QUEUES_DEFAULT,
        failover_interval: float = FAILOVER_INTERVAL_S_DEFAULT,
        ping_primary_interval: float = PING_INTERVAL_S_DEFAULT,
        enable_syphon: bool = False,
        primary_name: str | None = None,
        hold_sends: bool = True,
        session_order: bool = False,
        max_in_flight: int = SENDS_IN_FLIGHT_DEFAULT,
        try_timeout: float = TRY_TIMEOUT_S_DEFAULT,
        backlog_pause: float = BACKLOG_QUEUE_PAUSE_S,
        create_backlog_queues: bool = True,
        classify: Policy = availability_failure,
        on_event: Listener | Iterable[Listener] = (),
        ledger: Path | str | None = None,
        admin_options: Mapping[str, Any] | None = None,
        primary_options: Mapping[str, Any] | None = None,
        secondary_options: Mapping[str, Any] | None = None,
        rng: Random | None = None,
        retry_total: int = 3,
        retry_backoff_factor: float = 0.8,
        retry_backoff_max: float = 120,
        retry_mode: str = "exponential",
        **kwargs: Any,
    ) -> None:
        options = PairedOptions(
            backlog_queue_count=backlog_queue_count,
            failover_interval=failover_interval,
            ping_primary_interval=ping_primary_interval,
            enable_syphon=enable_syphon,
            primary_name=primary_name,
            hold_sends=hold_sends,
            session_order=session_order,
            max_in_flight=max_in_flight,
            try_timeout=try_timeout,
            backlog_pause=backlog_pause,
            create_backlog_queues=create_backlog_queues,
        )
        if kwargs.get("uamqp_transport"):
            raise ValueError("uamqp_transport is True: the paired client works with the SDK's own transport only.")
        primary = _namespace(primary_namespace, primary_credential)
        secondary = _namespace(secondary_namespace, secondary_credential)
        check_pair(primary.address, secondary.address, OPEN_PAIRS.primaries())
        retry = {
            "retry_total": retry_total,
            "retry_backoff_factor": retry_backoff_factor,
            "retry_backoff_max": retry_backoff_max,
            "retry_mode": retry_mode,
        }
        wall_clock = SystemClock()
        events = Events(
            primary_name or _name(primary.address),
            _name(secondary.address),
            clock=wall_clock,
            listeners=[on_event] if callable(on_event) else on_event,
            journal=None if ledger is None else Journal(Path(ledger), uuid4().hex, wall_clock),
        )
        # What its senders share.
        self._pair = AsyncPair(
            primary,
            secondary,
            options=options,
            retries=Retries(options, **retry),  # type: ignore[arg-type]
            classify=classify,
            events=events,
            clock=MonotonicClock(),
            wall_clock=wall_clock,
            rng=rng or SystemRandom(),
            primary_options={**retry, **kwargs, **(primary_options or {})},
            secondary_options={**retry, **kwargs, **(secondary_options or {})},
            admin_options={
                "connection_timeout": options.try_timeout,
                "read_timeout": options.try_timeout,
                # The search for the backlog queues is repeated as a whole.
                "retry_total": 0,
                **(admin_options or {}),
            },
        )
        # Senders that somebody still holds.
        self._senders: WeakSet[PairedServiceBusSender] = WeakSet()
        OPEN_PAIRS.add(self, primary.address)

    @classmethod
    def from_connection_strings(
        cls,
        primary: str,
        secondary: str,
        *,
        backlog_queue_count: int = BACKLOG_QUEUES_DEFAULT,
        failover_interval: float = FAILOVER_INTERVAL_S_DEFAULT,
        ping_primary_interval: float = PING_INTERVAL_S_DEFAULT,
        enable_syphon: bool = False,
        **options: Any,
    ) -> PairedServiceBusClient:
        """A client of two namespaces given by their connection strings; `options` are the class's own."""
        return cls(
            AsyncNamespace.of_string(primary),
            None,
            AsyncNamespace.of_string(secondary),
            None,
            backlog_queue_count=backlog_queue_count,
            failover_interval=failover_interval,
            ping_primary_interval=ping_primary_interval,
            enable_syphon=enable_syphon,
            **options,
        )

    # --- life -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> PairedServiceBusClient:
        self._pair.live().start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def wait_until_paired(self, timeout: float | None = None) -> None:
        """Wait for the backlog queues; PairingError when none can be found or created, or not within `timeout` seconds.

        Nobody has to: they are looked for in the background, and sends to a healthy primary do not need them.
        """
        await self._pair.live().start().pairing.wait(timeout)

    async def close(self) -> None:
        """Close both namespaces with everything that was made here."""
        await self._end(None)

    async def fault(self, reason: str) -> None:
        """Give the pair up: every sender and receiver says `reason` from now on."""
        await self._end(reason)

    async def close_namespace(self, side: str, fault: str | None = None) -> None:
        """Close the `primary` or the `secondary` alone; with a reason, it counts as faulted.

        Where the syphon is enabled the two end together: the other is faulted when it is not closed in five seconds.
        """
        await self._pair.end_side(Side(side), fault)

    async def _end(self, reason: str | None) -> None:
        OPEN_PAIRS.remove(self)
        if not self._pair.forked:
            await self._pair.close(reason, [sender.close for sender in self._senders])

    # --- what it makes --------------------------------------------------------------------------------------------

    def get_queue_sender(self, queue_name: str, **kwargs: Any) -> PairedServiceBusSender:
        """A sender to a queue, with the SDK's options."""
        pair = self._pair.live()
        return self._sender(queue_name, lambda: pair.primary.get_queue_sender(queue_name, **kwargs))

    def get_topic_sender(self, topic_name: str, **kwargs: Any) -> PairedServiceBusSender:
        """A sender to a topic, with the SDK's options."""
        pair = self._pair.live()
        return self._sender(topic_name, lambda: pair.primary.get_topic_sender(topic_name, **kwargs))

    def get_queue_receiver(self, queue_name: str, **kwargs: Any) -> PairedServiceBusReceiver:
        """A receiver from a queue of the primary, with the SDK's options."""
        return self._receiver(self._pair.live().receiving.get_queue_receiver(queue_name, **kwargs))

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, **kwargs: Any
    ) -> PairedServiceBusReceiver:
        """A receiver from a subscription of the primary, with the SDK's options."""
        made = self._pair.live().receiving.get_subscription_receiver(topic_name, subscription_name, **kwargs)
        return self._receiver(made)

    def list_queue_sessions(self, queue_name: str, **kwargs: Any) -> Any:
        """The sessions of a queue of the primary, as the SDK lists them."""
        return self._pair.live().receiving.list_queue_sessions(queue_name, **kwargs)

    def list_subscription_sessions(self, topic_name: str, subscription_name: str, **kwargs: Any) -> Any:
        """The sessions of a subscription of the primary, as the SDK lists them."""
        return self._pair.live().receiving.list_subscription_sessions(topic_name, subscription_name, **kwargs)

    # --- what it knows --------------------------------------------------------------------------------------------

    @property
    def fully_qualified_namespace(self) -> str:
        """The primary's host name."""
        return self._pair.receiving.fully_qualified_namespace

    @property
    def options(self) -> PairedOptions:
        """The options of the pair."""
        return self._pair.options

    @property
    def backlog_queues(self) -> list[str]:
        """The backlog queues in use; none before the pair is made."""
        found = self._pair.pairing.found
        return [] if found is None else list(found.names)

    @property
    def missing_backlog_queues(self) -> dict[str, Exception]:
        """Backlog queues that could not be found or created, with the reason."""
        found = self._pair.pairing.found
        return {} if found is None else dict(found.failures)

    @property
    def entity_states(self) -> dict[str, State]:
        """The state of each entity that has, or had, a sender."""
        return {entity.path: entity.state for entity in self._pair.entities}

    # --- inside ---------------------------------------------------------------------------------------------------

    def _sender(self, path: str, make: Callable[[], ServiceBusSender]) -> PairedServiceBusSender:
        pair = self._pair
        channels = AsyncPool(lambda: AsyncChannel(make, pair.tasks), pair.options.max_in_flight)
        entity = pair.entity(path)
        diverter = AsyncDiverter(
            entity.path,
            pairing=pair.pairing,
            channel=pair.backlog_channel,
            options=pair.options,
            clock=pair.clock,
            events=pair.events,
            closing=entity.changed,
        )
        sender = PairedServiceBusSender(pair, entity, channels, diverter)
        self._senders.add(sender)
        return sender

    def _forked(self) -> None:
        """This is a forked child. What was connected is the parent's; what was not can be used."""
        if not self._pair.used:
            if self._pair.events.journal is not None:
                self._pair.events.journal.renew()
            return
        self._pair.orphan(_FORKED)

    def _receiver(self, made: Any) -> PairedServiceBusReceiver:
        receiver = PairedServiceBusReceiver.of(made)
        self._pair.receivers.add(receiver)
        return receiver


def _namespace(given: str | AsyncNamespace, credential: Any) -> AsyncNamespace:
    return AsyncNamespace.of_credential(given, credential) if isinstance(given, str) else given


def _name(address: Address) -> str:
    return address.label or address.plain_name
