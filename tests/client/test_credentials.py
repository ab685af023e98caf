"""Credentials of the official SDK as token sources."""

from __future__ import annotations

import threading

import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential

from twinbus.auth.sas import parse, sign
from twinbus.client import BusClient, Message, credential_tokens
from twinbus.client.credentials import SCOPE
from twinbus.clock import SystemClock
from twinbus.errors import ConnectionForcedError, UnauthorizedError
from twinbus.testing import Broker


class Blocking:
    def __init__(self) -> None:
        self.asked: list[tuple[tuple[str, ...], int]] = []

    def get_token(self, *scopes: str, **_: object) -> AccessToken:
        self.asked.append((scopes, threading.get_ident()))
        return AccessToken("a.b.c", 2_000)


class Waiting:
    async def get_token(self, *scopes: str, **_: object) -> AccessToken:
        return AccessToken("a.b.c", 2_000)


class Failing:
    def __init__(self, error: Exception) -> None:
        self.error = error

    async def get_token(self, *scopes: str, **_: object) -> AccessToken:
        raise self.error


async def test_a_blocking_credential_is_asked_on_a_thread() -> None:
    credential = Blocking()
    token = await credential_tokens(credential).token("sb://h/q", 0)
    assert (token.text, token.kind, token.expires_ms) == ("a.b.c", "jwt", 2_000_000)
    ((scopes, thread),) = credential.asked
    assert scopes == (SCOPE,)
    assert thread != threading.get_ident()


async def test_an_asyncio_credential() -> None:
    token = await credential_tokens(Waiting()).token("sb://h/q", 0)
    assert (token.text, token.kind) == ("a.b.c", "jwt")


async def test_a_signature_is_read_each_time() -> None:
    credential = AzureSasCredential("SharedAccessSignature first")
    source = credential_tokens(credential)
    assert (await source.token("sb://h/q", 0)).text == "SharedAccessSignature first"
    credential.update("SharedAccessSignature second")
    assert (await source.token("sb://h/q", 0)).text == "SharedAccessSignature second"


async def test_a_named_key_signs() -> None:
    token = await credential_tokens(AzureNamedKeyCredential("root", "secret")).token("sb://h/q", 1_000_000)
    assert parse(token.text).path == "q"


async def test_what_a_credential_raises() -> None:
    with pytest.raises(UnauthorizedError, match="KeyError"):
        await credential_tokens(Failing(KeyError("secret"))).token("sb://h/q", 0)
    with pytest.raises(ConnectionForcedError):
        await credential_tokens(Failing(ConnectionRefusedError("no"))).token("sb://h/q", 0)


def test_what_is_no_credential() -> None:
    with pytest.raises(TypeError, match="object is not a credential"):
        credential_tokens(object())


async def test_against_a_broker(broker: Broker, queue: str) -> None:
    port = broker.endpoint().port
    expiry_s = SystemClock().now_ms() // 1000 + 60
    signature = sign(f"sb://localhost:{port}/", "root", "any", expiry_s)
    client = BusClient.with_credential(f"localhost:{port}", AzureSasCredential(signature), tls=False)
    async with client:
        await (await client.sender(queue)).send(Message(b"x"))
    with pytest.raises(ValueError, match="no host"):
        BusClient.with_credential("", Blocking())
