"""The syphon on the official SDK: the same outcomes, slower."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from tests.paired.test_classify import refused_token
from twinbus.client import Message
from twinbus.client.envelope import pack, wrap
from twinbus.errors import InternalError, ServerBusyError
from twinbus.paired.syphon import Fate, Syphon, decide
from twinbus.paired.syphon.port import Held
from twinbus.paired.syphon.sdk_port import SdkDestination, SdkPort, SdkSource, translated

from .conftest import Pair
from .test_syphon import numbered


@pytest.mark.parametrize(
    ("error", "fate", "everywhere"),
    [
        (MessagingEntityNotFoundError(), Fate.DEAD_LETTER, False),
        (MessagingEntityDisabledError(), Fate.DEAD_LETTER, False),
        (ServiceBusAuthorizationError(), Fate.LEAVE, False),
        (ServiceBusQuotaExceededError(), Fate.LEAVE, False),
        (ServiceBusServerBusyError(), Fate.LEAVE, False),
        (ServiceBusConnectionError(), Fate.LEAVE, True),
        (refused_token(404), Fate.DEAD_LETTER, False),
        (refused_token(404, "gateway:443"), Fate.DEAD_LETTER, False),
        (refused_token(401, "gateway:443"), Fate.LEAVE, False),
        (ServiceBusError("?"), Fate.LEAVE, True),
        (ConnectionRefusedError("no"), Fate.LEAVE, True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_errors_are_ours(error: Exception, fate: Fate, everywhere: bool) -> None:
    decision = decide(translated(error), "orders")
    assert (decision.fate, decision.everywhere) == (fate, everywhere)


async def test_everything_comes_home(pair: Pair) -> None:
    path, sessions = pair.destination(), pair.destination(requires_session=True)
    await pair.divert(path, [Message(b"x" * 100_000, message_id="large", application_properties={"n": 2**40})])
    await pair.divert(path, numbered(30))
    await pair.divert(sessions, [Message(b"s", message_id="s", session_id="red")])
    await pair.put([pack([message.encode() for message in numbered(5, "p")], path)], queue=1)
    await pair.divert("nowhere", [Message(b"x", message_id="lost")])
    syphon = Syphon.from_connection_strings(
        pair.primary.connection_string(),
        pair.secondary.connection_string(),
        primary_name=pair.name,
        backlog_queue_count=2,
        transport="sdk",
    )
    report = await syphon.run(once=True, patience_s=10)
    assert report.undrained == ()
    assert (report.total.syphoned, report.total.dead_lettered) == (37, 1)
    found = await pair.taken(path, 36)
    assert [m.message_id for m in found if str(m.message_id).startswith("m")] == [f"m{n}" for n in range(30)]
    large = next(m for m in found if m.message_id == "large")
    assert large.application_properties == {"n": 2**40}
    assert len(large.body) == 100_000
    (dead,) = await pair.dead(1)
    assert dead.application_properties["DeadLetterReason"] == "DestinationNotFound"


class _Receiver:
    """An SDK receiver that refuses every second message."""

    def __init__(self) -> None:
        self.settled: list[Any] = []

    async def complete_message(self, message: int) -> None:
        self.settled.append(message)
        if message % 2:
            raise MessageLockLostError(message="late")

    abandon_message = renew_message_lock = complete_message


async def test_each_message_has_its_outcome() -> None:
    receiver: Any = _Receiver()
    source = SdkSource(receiver)
    held = [Held(b"", handle, 1_000, 0) for handle in range(4)]
    outcomes = await source.complete(held)
    assert [type(error).__name__ for error in outcomes] == ["NoneType", "MessageLockLostError"] * 2
    await source.release(held)
    assert receiver.settled == [0, 1, 2, 3] * 2, "all, whatever becomes of one"
    receiver.settled.clear()
    await source.renew(held[:1])
    assert receiver.settled == [0]
    assert held[0].expires_ms > 0


@pytest.mark.parametrize("since", [None, datetime(2026, 1, 2, tzinfo=UTC)], ids=["empty", "one"])
async def test_the_age_of_a_queue_is_that_of_its_first_message(since: datetime | None) -> None:
    class Peeking:
        closed = 0

        async def __aenter__(self) -> None:
            pass

        async def peek_messages(self, count: int) -> list[Any]:
            return [] if since is None else [SimpleNamespace(enqueued_time_utc=since)]

        async def close(self) -> None:
            self.closed += 1

    receiver = Peeking()
    port = SdkPort(SimpleNamespace(get_queue_receiver=lambda path: receiver))  # type: ignore[arg-type]
    assert await port.oldest_ms("q") == (None if since is None else 1_767_312_000_000)
    assert receiver.closed == 1


async def test_what_is_too_large_is_not_sent() -> None:
    sent: list[int] = []

    class Sender:
        async def create_message_batch(self) -> ServiceBusMessageBatch:
            return ServiceBusMessageBatch(1000)

        async def send_messages(self, batch: ServiceBusMessageBatch) -> None:
            sent.append(batch.size_in_bytes)

    sender: Any = Sender()
    destination = SdkDestination(sender)
    empty = ServiceBusMessageBatch(1000).size_in_bytes
    room = 1000 - empty - 8
    accepted: list[int] = []
    fits, large, two = (b"x" * room,), (b"x" * (room + 1),), (b"x" * 10, b"x" * 20)
    outcomes = await destination.send([fits, large, two], accepted.append)
    assert [type(error).__name__ for error in outcomes] == ["NoneType", "MessageTooLargeError", "NoneType"]
    assert accepted == [0, 2]
    assert sent == [1000, empty + 46]
    destination.abandon(ServerBusyError())
    assert not destination.usable
    assert [type(error) for error in await destination.send([two], accepted.append)] == [ServerBusyError]


async def test_a_send_that_hangs_has_the_reason_it_was_given_up_for() -> None:
    class Sender:
        async def create_message_batch(self) -> ServiceBusMessageBatch:
            await asyncio.sleep(60)
            raise AssertionError

    sender: Any = Sender()
    destination = SdkDestination(sender)
    sending = asyncio.create_task(destination.send([(b"x",), (b"y",)], pytest.fail))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    destination.abandon(ServerBusyError())
    assert [type(error) for error in await sending] == [ServerBusyError] * 2


async def test_a_receive_waits_as_long_as_it_may() -> None:
    waits: list[float] = []

    class Receiver:
        async def _open(self) -> None:
            pass

        async def receive_messages(self, *, max_message_count: int, max_wait_time: float) -> list[Any]:
            waits.append(max_wait_time)
            await asyncio.sleep(0.01)
            return []

    receiver: Any = Receiver()
    assert await SdkSource(receiver).receive(5, 0.05) == []
    assert len(waits) > 1
    assert set(waits) == {0.05}
    waits.clear()
    task = asyncio.create_task(SdkSource(receiver).receive(5, 900))
    while not waits:
        await asyncio.sleep(0)
    task.cancel()
    assert waits[0] == 1.0, "settling waits for a receive, so each is short"


@pytest.mark.parametrize("size", [10, 200_000], ids=["one frame", "several frames"])
async def test_a_message_that_the_sdk_cannot_decode_goes_home_as_well(pair: Pair, size: int) -> None:
    # A decimal128 with an exponent: the SDK's decoder overflows, and its connection ends.
    decimal = b"\x94\x30\x40" + bytes(13) + b"\x01"
    entries = bytes([2]) + b"\xa1\x01d" + decimal
    odd = Message(b"x" * size, message_id="odd").encode()
    at = odd.index(b"\x00\x53\x75")
    odd = odd[:at] + b"\x00\x53\x74\xc1" + bytes([len(entries)]) + entries + odd[at:]
    path = pair.destination()
    await pair.divert(path, [Message(b"a", message_id="a")])
    await pair.put([wrap(odd, path)])
    await pair.divert(path, [Message(b"b", message_id="b")])
    syphon = Syphon.from_connection_strings(
        pair.primary.connection_string(),
        pair.secondary.connection_string(),
        primary_name=pair.name,
        backlog_queue_count=2,
        transport="sdk",
    )
    report = await syphon.run(once=True, patience_s=15)
    assert (report.total.syphoned, report.undrained) == (3, ())
    found = {message.message_id: message for message in await pair.taken(path, 3)}
    assert set(found) == {"a", "odd", "b"}
    assert decimal in found["odd"].payload


async def test_whatever_the_sdk_raises_is_one_of_our_errors() -> None:
    class Receiver:
        async def peek_messages(self, count: int) -> list[Any]:
            raise KeyError("constructor 0x99")

        async def renew_message_lock(self, message: Any) -> None:
            raise AttributeError("gone")

    receiver: Any = Receiver()
    source = SdkSource(receiver)
    assert not await source.is_empty(), "a message that cannot be decoded is a message"
    with pytest.raises(InternalError, match="gone"):
        await source.renew([Held(b"", object(), 1_000, 0)])


async def test_patience_holds_even_if_a_receive_ignores_its_end(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinbus.paired.syphon.syphon.SYPHON_STOP_S", 0.2)
    ended = asyncio.Event()

    async def receive(self: SdkSource, max_count: int, wait_s: float) -> list[Held]:
        while not ended.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await ended.wait()
        return []

    monkeypatch.setattr(SdkSource, "receive", receive)
    await pair.divert(pair.destination(), [Message(b"a", message_id="a")])
    syphon = Syphon.from_connection_strings(
        pair.primary.connection_string(),
        pair.secondary.connection_string(),
        primary_name=pair.name,
        backlog_queue_count=1,
        transport="sdk",
    )
    report = await syphon.run(once=True, patience_s=0.5)
    ended.set()
    assert report.undrained == tuple(pair.queues)
