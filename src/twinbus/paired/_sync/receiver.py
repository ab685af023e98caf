"""Written by scripts/unasync.py from _async/receiver.py: read and change that file, not this one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage, ServiceBusReceiver

from twinbus.clock import MonotonicClock
from twinbus.paired.errors import PairFaultedError
from twinbus.paired.receiving import is_ping
from twinbus.paired.sdk_internals import deletes


class PairedServiceBusReceiver(ServiceBusReceiver):
    """A receiver of the primary."""

    _fault: str | None = None
    _forked = False

    @classmethod
    def of(cls, receiver: ServiceBusReceiver) -> PairedServiceBusReceiver:
        """Turn an SDK receiver into one of ours."""
        receiver.__class__ = cls
        assert isinstance(receiver, PairedServiceBusReceiver)
        return receiver

    def _check_live(self) -> None:
        if self._fault is not None:
            raise PairFaultedError(self._fault)
        super()._check_live()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Close the receiver. A forked child leaves its parent's connection alone."""
        if not self._forked:
            super().close()

    def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Receive a batch of messages, as the SDK does."""
        clock = MonotonicClock()
        started_ms = clock.now_ms()
        wait_s = max_wait_time
        while True:
            received = super().receive_messages(max_message_count, wait_s)
            messages = [message for message in received if not is_ping(message)]
            for message in received:
                if is_ping(message):
                    self._drop(message)
            if messages or not received:
                return messages
            if max_wait_time is not None:
                wait_s = max_wait_time - (clock.now_ms() - started_ms) / 1000
                if wait_s <= 0:
                    return []

    def __iter__(self) -> Iterator[ServiceBusReceivedMessage]:
        return self._without_pings(super().__iter__())

    def __next__(self) -> ServiceBusReceivedMessage:
        while True:
            message = super().__next__()
            if not is_ping(message):
                return message
            self._drop(message)

    def _without_pings(self, messages: Any) -> Iterator[ServiceBusReceivedMessage]:
        for message in messages:
            if is_ping(message):
                self._drop(message)
            else:
                yield message

    def _drop(self, message: ServiceBusReceivedMessage) -> None:
        if not deletes(self):
            self.complete_message(message)
