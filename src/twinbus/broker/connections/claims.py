"""The claims of the tokens that a connection's peer has put, by audience: what the peer may do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.auth.claims import Claim
from twinbus.auth.policies import Right
from twinbus.entities.account import Account
from twinbus.errors import QuotaExceededError, UnauthorizedError
from twinbus.limits import LINK_OBJECT_BYTES, TOKEN_EXPIRY_GRACE_MS

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost

_GRACE_S = TOKEN_EXPIRY_GRACE_MS / 1000


class ConnectionClaims:
    """The claim of SASL PLAIN is under ''; development mode needs none."""

    __slots__ = ("_account", "_by_audience", "_host")

    def __init__(self, host: NamespaceHost, account: Account) -> None:
        self._host = host
        # Counts the memory of the tokens.
        self._account = account
        self._by_audience: dict[str, Claim] = {}

    def __len__(self) -> int:
        return len(self._by_audience)

    def __contains__(self, audience: str) -> bool:
        return audience in self._by_audience

    def add(self, audience: str, claim: Claim) -> None:
        """Add a claim, or replace the one for the same audience."""
        if audience not in self._by_audience:
            if not audience:
                # There is one per connection, and connections are limited themselves.
                self._account.hold(_bytes(audience))
            elif not self._account.take(_bytes(audience)):
                raise QuotaExceededError(
                    "The links and tokens of this connection, or of all connections, take too many bytes."
                )
        self._by_audience[audience] = claim

    def require(self, path: str, right: str) -> None:
        """Raise UnauthorizedError unless a valid claim grants `right` on `path`."""
        if self._host.dev:
            return
        now_s = self._host.clock.now_ms() / 1000
        for claim in self._by_audience.values():
            if claim.allows(path, right) and not claim.expired(now_s, _GRACE_S):
                return
        raise UnauthorizedError(
            f"Unauthorized access. '{right}' claim(s) are required to perform this operation. "
            f"Resource: 'sb://{self._host.name}/{path}'.",
            *self._lack(),
        )

    def require_some(self, path: str) -> None:
        """Raise UnauthorizedError unless a valid claim grants any right on `path` ('' for anywhere)."""
        if self._host.dev:
            return
        now_s = self._host.clock.now_ms() / 1000
        for claim in self._by_audience.values():
            covering = not path or any(claim.allows(path, right) for right in Right)
            if covering and not claim.expired(now_s, _GRACE_S):
                return
        raise UnauthorizedError(
            "Unauthorized access. A token is required to perform this operation. "
            f"Resource: 'sb://{self._host.name}/{path}'.",
            *self._lack(),
        )

    def _lack(self) -> tuple[str, str]:
        """What a peer without a right lacks, and the policies of its tokens."""
        if not self._by_audience:
            return "MissingToken", ""
        return "MissingRight", ", ".join(dict.fromkeys(claim.policy for claim in self._by_audience.values()))

    def wait_s(self) -> float | None:
        """Seconds until the first claim expires; None if none does."""
        if not self._by_audience or self._host.dev:
            return None
        first_s = min(claim.expires_s for claim in self._by_audience.values())
        return first_s - self._host.clock.now_ms() / 1000 + _GRACE_S

    def drop_expired(self) -> None:
        now_s = self._host.clock.now_ms() / 1000
        for audience in [name for name, claim in self._by_audience.items() if claim.expired(now_s, _GRACE_S)]:
            self._drop(audience)

    def close(self) -> None:
        for audience in list(self._by_audience):
            self._drop(audience)

    def _drop(self, audience: str) -> None:
        del self._by_audience[audience]
        self._account.give(_bytes(audience))


def _bytes(audience: str) -> int:
    """The memory of a token, which holds its audience twice."""
    return LINK_OBJECT_BYTES + 2 * len(audience)
