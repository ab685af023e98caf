"""Logins to the console, and the keys and accounts behind them.

- A login is in memory only: a random cookie, a second token against forged requests, and for each namespace the policy
  and a digest of the key, never the key itself; or an account's rights and expiry, never its token.
- Rights are looked up for each request: rotating a key or deleting a policy revokes what it opened, and those of an
  account end with its token.
- Logins are bounded. No cleanup runs: an expired login is removed when it is used or when room is needed.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from twinbus.auth.claims import EVERYTHING, Claim, decide_key
from twinbus.clock import Clock
from twinbus.limits import (
    CONSOLE_LOGIN_IDLE_MS,
    CONSOLE_LOGIN_MS_MAX,
    CONSOLE_LOGINS_MAX,
    TOKEN_EXPIRY_GRACE_MS,
)

if TYPE_CHECKING:
    from twinbus.auth.policies import Policy, Right
    from twinbus.broker.host import NamespaceHost
    from twinbus.broker.http.console.receiving import HeldMessage


class OpenedLogin(NamedTuple):
    """What opened a namespace: the policy, its scope and a digest of the key."""

    policy: str
    scope: str
    digest: bytes


class AccountLogin(NamedTuple):
    """What opened a namespace: an account of an identity provider, with the rights of its roles."""

    account: str
    rights: frozenset[Right]
    expires_s: int

    def claim(self, host: NamespaceHost) -> Claim | None:
        """Its claim on the whole namespace, until the token expires."""
        expired = host.clock.now_ms() > self.expires_s * 1000 + TOKEN_EXPIRY_GRACE_MS
        return None if expired or host.sign_in is None else Claim("", self.rights, self.expires_s)


class Login:
    """The login of one browser."""

    __slots__ = ("created_ms", "held", "opened", "token", "used_ms")

    def __init__(self, now_ms: int) -> None:
        # Required with every command; other sites cannot know it.
        self.token = secrets.token_urlsafe(24)
        # On the steady clock.
        self.created_ms = now_ms
        self.used_ms = now_ms
        # By lower-case namespace name.
        self.opened: dict[str, OpenedLogin | AccountLogin] = {}
        # Messages it has received and not settled yet, by a random handle.
        self.held: dict[str, HeldMessage] = {}

    def claim(self, host: NamespaceHost) -> Claim | None:
        """Its current claim on a namespace, if any."""
        if host.dev:
            return EVERYTHING
        opened = self.opened.get(host.name.lower())
        if isinstance(opened, AccountLogin):
            return opened.claim(host)
        known = self.known(host)
        return None if known is None else Claim(known[0].scope, known[0].rights)

    def known(self, host: NamespaceHost) -> tuple[Policy, str] | None:
        """The policy and the one of its keys that logged in; in development mode, which asks for no key, the first
        policy."""
        if host.dev:
            first = next(iter(host.policies), None)
            return None if first is None else (first, first.primary_key)
        opened = self.opened.get(host.name.lower())
        if not isinstance(opened, OpenedLogin):
            return None
        for policy in host.policies.named(opened.policy):
            for key in policy.keys if policy.scope == opened.scope else ():
                if hmac.compare_digest(opened.digest, _digest(key)):
                    return policy, key
        return None

    def policy(self, host: NamespaceHost) -> str | None:
        """The name of the policy it used there."""
        opened = self.opened.get(host.name.lower())
        return opened.policy if isinstance(opened, OpenedLogin) else None

    def account(self, host: NamespaceHost) -> str | None:
        """The account that signed in there."""
        opened = self.opened.get(host.name.lower())
        return opened.account if isinstance(opened, AccountLogin) else None

    def over(self, now_ms: int) -> bool:
        return now_ms - self.used_ms >= CONSOLE_LOGIN_IDLE_MS or now_ms - self.created_ms >= CONSOLE_LOGIN_MS_MAX


class Logins:
    """All logins of the process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By cookie, longest idle first.
        self._logins: OrderedDict[str, Login] = OrderedDict()

    def __len__(self) -> int:
        return len(self._logins)

    def find(self, cookie: str, *, use: bool = True) -> Login | None:
        """The login of a cookie unless it has expired; `use` resets its idle time."""
        login = self._logins.get(cookie)
        now_ms = self._clock.steady_ms()
        if login is None or login.over(now_ms):
            self._logins.pop(cookie, None)
            return None
        if use:
            login.used_ms = now_ms
            self._logins.move_to_end(cookie)
        return login

    def open(self, before: str = "") -> tuple[str, Login]:
        """Create a login and its cookie. It takes over what the login of the cookie `before` has, and ends that one."""
        last = self.find(before)
        self.close(before)
        while len(self._logins) >= CONSOLE_LOGINS_MAX:
            self._logins.popitem(last=False)
        cookie = secrets.token_urlsafe(32)
        login = self._logins[cookie] = Login(self._clock.steady_ms())
        if last is not None:
            login.opened, login.held = dict(last.opened), last.held
        return cookie, login

    def close(self, cookie: str) -> None:
        self._logins.pop(cookie, None)

    def enter(self, host: NamespaceHost, policy: str, key: str) -> OpenedLogin:
        """Check a key; raises UnauthorizedError if it is wrong."""
        claim = decide_key(policy, key, host.policies)
        return OpenedLogin(policy, claim.path, _digest(key))


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogatepass")).digest()
