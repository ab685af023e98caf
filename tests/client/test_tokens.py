"""Token sources, and when tokens are put and renewed."""

from __future__ import annotations

import asyncio

import pytest

from twinbus.amqp import AmqpEvent, AmqpMessage, Int, Symbol, Transfer
from twinbus.auth.connection_string import ConnectionString
from twinbus.auth.sas import parse
from twinbus.client import KeyTokens, SignatureTokens, Token
from twinbus.client.tokens import tokens_of
from twinbus.clock import SteppedClock
from twinbus.errors import UnauthorizedError
from twinbus.limits import TOKEN_LIFETIME_MS

from .script import Conversation, Script


async def test_a_key_signs_for_each_audience() -> None:
    token = await KeyTokens("root", "secret").token("sb://h/q", 1_000_000)
    parts = parse(token.text)
    assert parts.path == "q"
    assert parts.expiry_s == (1_000_000 + TOKEN_LIFETIME_MS) // 1000
    assert token.expires_ms == 1_000_000 + TOKEN_LIFETIME_MS
    assert "sig=" not in repr(token)


async def test_a_signature_is_used_as_it_is() -> None:
    text = "Endpoint=sb://h/;SharedAccessSignature=SharedAccessSignature sr=h&sig=x&se=1&skn=y"
    source = tokens_of(ConnectionString.parse(text))
    assert isinstance(source, SignatureTokens)
    token = await source.token("sb://h/q", 0)
    assert token.text.startswith("SharedAccessSignature sr=h")
    assert token.expires_ms is None


class Counted:
    """A source of numbered tokens, each valid for a hundred seconds."""

    def __init__(self) -> None:
        self.count = 0

    async def token(self, audience: str, now_ms: int) -> Token:
        self.count += 1
        return Token(f"token {self.count} for {audience}", "jwt", now_ms + 100_000)


def puts(server: Script) -> list[AmqpMessage]:
    requests = [AmqpMessage.decode(event.payload or b"") for event in server.events if isinstance(event, Transfer)]
    return [request for request in requests if (request.application_properties or {}).get("operation") == "put-token"]


async def test_one_token_for_each_entity() -> None:
    async with Script() as server, server.client(tokens=Counted()) as client:
        await asyncio.gather(client.sender("a"), client.sender("a"), client.sender("b"))
        await client.receiver("a")
        (first, second) = puts(server)
        assert {str(put.value) for put in (first, second)} == {
            "token 1 for sb://127.0.0.1/a",
            "token 2 for sb://127.0.0.1/b",
        }
        properties = first.application_properties or {}
        assert properties["type"] == "jwt"
        assert properties["name"] == "sb://127.0.0.1/a"


async def test_tokens_are_renewed_before_they_end() -> None:
    clock = SteppedClock()
    async with Script() as server, server.client(tokens=Counted(), clock=clock) as client:
        await client.sender("a")
        connection = await client.connection()
        due_ms = await connection.renew_due_tokens()
        assert due_ms == clock.steady_ms() + 90_000
        clock.step(ms=89_999)
        clock.jump(seconds=86_400)
        clock.follow()
        await connection.renew_due_tokens()
        assert len(puts(server)) == 1
        clock.jump(seconds=-2 * 86_400)
        clock.follow()
        clock.step(ms=1)
        await connection.renew_due_tokens()
        assert [str(put.value)[:7] for put in puts(server)] == ["token 1", "token 2"]


async def test_a_renewal_that_fails_is_tried_again() -> None:
    clock = SteppedClock()
    refuse = False

    def on_event(conversation: Conversation, event: AmqpEvent) -> bool:
        if refuse and isinstance(event, Transfer):
            conversation.respond(event, {"status-code": Int(500), "status-description": "busy"})
            return True
        return False

    async with Script(on_event) as server, server.client(tokens=Counted(), clock=clock) as client:
        sender = await client.sender("a")
        connection = await client.connection()
        refuse = True
        clock.step(seconds=95)
        due_ms = await connection.renew_due_tokens()
        assert due_ms == clock.steady_ms() + 5_000
        assert sender.error is None
        refuse = False
        clock.step(seconds=5)
        await connection.renew_due_tokens()
        assert len(puts(server)) == 3


async def test_a_refused_token_raises() -> None:
    def on_event(conversation: Conversation, event: AmqpEvent) -> bool:
        if isinstance(event, Transfer):
            conversation.respond(
                event,
                {
                    "status-code": Int(401),
                    "status-description": "InvalidSignature",
                    "error-condition": Symbol("amqp:unauthorized-access"),
                },
            )
            return True
        return False

    async with Script(on_event) as server, server.client(tokens=Counted()) as client:
        for _ in range(2):
            with pytest.raises(UnauthorizedError, match="InvalidSignature"):
                await client.sender("a")
        assert len(puts(server)) == 2


async def test_no_tokens_no_cbs() -> None:
    async with Script() as server, server.client() as client:
        await client.sender("a")
        assert [link.target.address for link in server.links()] == ["a"]  # type: ignore[union-attr]
