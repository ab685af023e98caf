"""Where tokens for `$cbs` come from.

Two rules. A source is asked for a token each time one is needed, with the audience it is for; it may be anything that
returns a `Token`. Secrets never show in a repr.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from twinbus.auth.connection_string import ConnectionString
from twinbus.auth.sas import sign
from twinbus.limits import TOKEN_LIFETIME_MS

SAS = "servicebus.windows.net:sastoken"
JWT = "jwt"


@dataclass(frozen=True, slots=True)
class Token:
    """A token, its kind, and when it ends; `expires_ms` None for one whose end we do not know."""

    text: str = field(repr=False)
    kind: str
    expires_ms: int | None


class TokenSource(Protocol):
    """Gives tokens; an Azure credential behind it works as well as a key."""

    async def token(self, audience: str, now_ms: int) -> Token:
        """A token for `audience`, good for a while from `now_ms` on."""
        ...


class KeyTokens:
    """Signs a token of its own for every audience."""

    __slots__ = ("_key", "_key_name", "_lifetime_ms")

    def __init__(self, key_name: str, key: str, *, lifetime_ms: int = TOKEN_LIFETIME_MS) -> None:
        self._key_name = key_name
        self._key = key
        self._lifetime_ms = lifetime_ms

    async def token(self, audience: str, now_ms: int) -> Token:
        expires_ms = now_ms + self._lifetime_ms
        return Token(sign(audience, self._key_name, self._key, expires_ms // 1000), SAS, expires_ms)


class SignatureTokens:
    """Gives the one signature out of a connection string, for every audience."""

    __slots__ = ("_signature",)

    def __init__(self, signature: str) -> None:
        self._signature = signature

    async def token(self, audience: str, now_ms: int) -> Token:
        return Token(self._signature, SAS, None)


def tokens_of(connection_string: ConnectionString) -> TokenSource:
    """The source that a connection string asks for."""
    if connection_string.signature is not None:
        return SignatureTokens(connection_string.signature)
    return KeyTokens(connection_string.key_name or "", connection_string.key or "")
