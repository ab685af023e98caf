"""Token sources for `$cbs`.

Two rules. A source is asked each time a token is needed, with its audience, and may be anything that returns a `Token`.
Secrets never appear in a repr.
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
    """A token, its kind and its expiry; `expires_ms` is None if unknown."""

    text: str = field(repr=False)
    kind: str
    expires_ms: int | None


class TokenSource(Protocol):
    """Provides tokens, whether from a key or from an Azure credential."""

    async def token(self, audience: str, now_ms: int) -> Token:
        """Return a token for `audience` that is valid at `now_ms` and for some time after."""
        ...


class KeyTokens:
    """Signs a token for every audience."""

    __slots__ = ("_key", "_key_name", "_lifetime_ms")

    def __init__(self, key_name: str, key: str, *, lifetime_ms: int = TOKEN_LIFETIME_MS) -> None:
        self._key_name = key_name
        self._key = key
        self._lifetime_ms = lifetime_ms

    async def token(self, audience: str, now_ms: int) -> Token:
        expires_ms = now_ms + self._lifetime_ms
        return Token(sign(audience, self._key_name, self._key, expires_ms // 1000), SAS, expires_ms)


class SignatureTokens:
    """Returns the signature from a connection string for every audience."""

    __slots__ = ("_signature",)

    def __init__(self, signature: str) -> None:
        self._signature = signature

    async def token(self, audience: str, now_ms: int) -> Token:
        return Token(self._signature, SAS, None)


def tokens_of(connection_string: ConnectionString) -> TokenSource:
    """Return the token source for a connection string."""
    if connection_string.signature is not None:
        return SignatureTokens(connection_string.signature)
    return KeyTokens(connection_string.key_name or "", connection_string.key or "")
