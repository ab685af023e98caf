"""The syphon on the official SDK: the same outcomes, slower."""

from __future__ import annotations

import pytest
from azure.servicebus.exceptions import (
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
from twinbus.client.envelope import pack
from twinbus.paired.syphon import Fate, Syphon, decide
from twinbus.paired.syphon.sdk_port import translated

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
