"""Adapt the credentials of the official SDK to token sources.

Three rules. Credentials are recognised by their attributes, not their class, so azure-core is not imported. A blocking
`get_token` runs on a thread, because it may call a server. A signature is read for each token, as its owner may change
it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, cast

from twinbus.client.tokens import JWT, SAS, KeyTokens, Token, TokenSource
from twinbus.errors import ConnectionForcedError, UnauthorizedError

SCOPE = "https://servicebus.azure.net//.default"


def credential_tokens(credential: Any) -> TokenSource:
    """Return the token source for a credential; raise TypeError if it is not a credential."""
    if callable(getattr(credential, "get_token", None)):
        return CredentialTokens(credential)
    if isinstance(getattr(credential, "signature", None), str):
        return SasCredentialTokens(credential)
    if getattr(credential, "named_key", None) is not None:
        return NamedKeyTokens(credential)
    raise TypeError(
        f"{type(credential).__name__} is not a credential: pass one with get_token, an AzureSasCredential or an "
        "AzureNamedKeyCredential."
    )


class CredentialTokens:
    """Tokens of a token credential, blocking or asyncio."""

    __slots__ = ("_credential",)

    def __init__(self, credential: Any) -> None:
        self._credential = credential

    async def token(self, audience: str, now_ms: int) -> Token:
        get_token = cast(Callable[..., Any], self._credential.get_token)
        try:
            if inspect.iscoroutinefunction(get_token):
                found = await cast(Awaitable[Any], get_token(SCOPE))
            else:
                found = await asyncio.to_thread(get_token, SCOPE)
                if inspect.isawaitable(found):
                    found = await found
        except OSError as error:
            raise ConnectionForcedError(f"The credential could not be asked for a token: {error}") from error
        except Exception as error:
            # Whatever a credential raises, the caller could not authenticate.
            raise UnauthorizedError(f"The credential gave no token ({type(error).__name__}).") from error
        return Token(found.token, JWT, int(found.expires_on) * 1000)


class SasCredentialTokens:
    """The current signature of an AzureSasCredential."""

    __slots__ = ("_credential",)

    def __init__(self, credential: Any) -> None:
        self._credential = credential

    async def token(self, audience: str, now_ms: int) -> Token:
        return Token(self._credential.signature, SAS, None)


class NamedKeyTokens:
    """Signs with the current name and key of an AzureNamedKeyCredential."""

    __slots__ = ("_credential",)

    def __init__(self, credential: Any) -> None:
        self._credential = credential

    async def token(self, audience: str, now_ms: int) -> Token:
        name, key = self._credential.named_key
        return await KeyTokens(name, key).token(audience, now_ms)
