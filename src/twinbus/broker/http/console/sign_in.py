"""Signing in with an account of an identity provider: the authorization-code flow of OpenID Connect, with PKCE.

- A sign-in that has begun is in memory only, bounded in number and time, and finished once, in the browser that began
  it: the browser has a cookie whose value neither the provider nor any other browser knows.
- The broker calls nobody but the configured token endpoint, a few times at once, and only for such a browser.
- Rights come from the roles of the access token, verified like any other token of the namespace.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from twinbus.broker.configuration.config import is_loopback, is_name
from twinbus.broker.http.console.answers import Refused
from twinbus.broker.http.console.exchange import SignInFailed, challenge, exchange, provider_error, provider_text
from twinbus.broker.http.console.logins import AccountLogin
from twinbus.clock import Clock
from twinbus.errors import UnauthorizedError
from twinbus.limits import (
    CONSOLE_EXCHANGES_MAX,
    CONSOLE_EXCHANGES_PER_ADDRESS_MAX,
    CONSOLE_SIGN_IN_MS_MAX,
    CONSOLE_SIGN_INS_MAX,
    CONSOLE_SIGN_INS_PER_ADDRESS_MAX,
    TOKEN_EXPIRY_GRACE_MS,
)

if TYPE_CHECKING:
    from twinbus.auth.jwt import JwtVerifier
    from twinbus.broker.host import NamespaceHost
    from twinbus.broker.http.console.exchange import ProviderTokens
    from twinbus.broker.security.identity_provider import IdentityProvider

logger = logging.getLogger(__name__)

# Registered at the provider. Without a dollar sign, which Entra ID does not accept in a redirect URI.
SIGNED_IN_PATH: Final = "/console/signed-in"

# The sentence for each reason why a verified answer opens nothing; {0} is the provider, {1} the namespace.
_REASONS: Final = {
    "InvalidRoles": "Your account has no role that grants a right on the namespace '{1}'. Ask its operator for a role.",
    "InvalidAudience": "The token of {0} is for another audience. Ask the operator to check 'audience' and 'scope'.",
    "InvalidIssuer": "The token of {0} has another issuer. Ask the operator to check 'issuer'.",
    "InvalidSignature": "The token of {0} matches no configured key. Ask the operator to update the file of keys.",
    "InvalidNonce": "The token of {0} answers another sign-in. Sign in again.",
    "ExpiredToken": "The token of {0} has expired already. Ask the operator to check the broker's clock.",
}
_UNUSABLE: Final = "The token of {0} cannot be used. Ask the operator to check 'scope' and 'audience'."


class PendingSignIn(NamedTuple):
    """A sign-in that has begun."""

    namespace: str
    # The value of the cookie that only the browser has.
    binding: str
    # The PKCE verifier, which proves to the provider that whoever began also ends.
    verifier: str
    # Repeated in the ID token, so that a token of another sign-in is noticed.
    nonce: str
    redirect_uri: str
    # On the steady clock.
    begun_ms: int
    address: str
    # The cookie of the login that began it, if any: what that has opened stays open.
    login: str


class SignIns:
    """The sign-ins of the process that have begun, and sentences about those that failed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By state, oldest first.
        self._pending: OrderedDict[str, PendingSignIn] = OrderedDict()
        self._by_address: Counter[str] = Counter()
        # Exchanges that are under way, by address.
        self._exchanging: Counter[str] = Counter()
        # The namespace and the sentence, by the browser's cookie, oldest first; told once.
        self._notices: OrderedDict[str, tuple[str, str]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pending)

    # --- beginning --------------------------------------------------------------------------------------------------

    def begin(self, host: NamespaceHost, origin: str, address: str, login: str) -> tuple[str, PendingSignIn]:
        """Remember a new sign-in; returns its state."""
        now_ms = self._clock.steady_ms()
        while self._pending:
            oldest = next(iter(self._pending))
            if now_ms - self._pending[oldest].begun_ms < CONSOLE_SIGN_IN_MS_MAX:
                break
            self._forget(oldest)
        if self._by_address[address] >= CONSOLE_SIGN_INS_PER_ADDRESS_MAX:
            self._forget(next(state for state, each in self._pending.items() if each.address == address))
        elif len(self._pending) >= CONSOLE_SIGN_INS_MAX:
            self._forget(next(iter(self._pending)))
        state = secrets.token_urlsafe(32)
        pending = PendingSignIn(
            namespace=host.name,
            binding=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(48),
            nonce=secrets.token_urlsafe(32),
            redirect_uri=origin + SIGNED_IN_PATH,
            begun_ms=now_ms,
            address=address,
            login=login,
        )
        self._pending[state] = pending
        self._by_address[address] += 1
        return state, pending

    def _forget(self, state: str) -> None:
        address = self._pending.pop(state).address
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def take(self, state: str, binding: str) -> PendingSignIn:
        """End a sign-in that this browser began; raises SignInFailed if it did not, or long ago."""
        pending = self._pending.get(state)
        if pending is None or not hmac.compare_digest(
            pending.binding.encode(), binding.encode("utf-8", "surrogateescape")
        ):
            raise SignInFailed("This sign-in is over, or another browser began it. Sign in again.")
        self._forget(state)
        if self._clock.steady_ms() - pending.begun_ms >= CONSOLE_SIGN_IN_MS_MAX:
            minutes = CONSOLE_SIGN_IN_MS_MAX // 60_000
            raise SignInFailed(f"The sign-in took longer than {minutes} minutes. Sign in again.")
        return pending

    # --- finishing --------------------------------------------------------------------------------------------------

    async def finish(
        self, host: NamespaceHost, here: NamespaceHost, pending: PendingSignIn, query: Mapping[str, str], address: str
    ) -> AccountLogin:
        """What a sign-in opens; raises SignInFailed. `here` is the namespace on whose port the browser is."""
        provider, verifier = host.sign_in, host.jwt
        if provider is None or verifier is None:
            raise SignInFailed(f"The namespace '{host.name}' has no sign-in with an account. Log in with a key.")
        name = provider.title
        if "error" in query:
            said = provider_error(dict(query))
            raise SignInFailed(f"{name} did not sign you in{said}. Sign in again, or log in with a key.")
        if query.get("iss", provider.issuer) != provider.issuer:
            raise SignInFailed(f"The answer is not from {name}. Sign in again.")
        code = query.get("code", "")
        if not code:
            raise SignInFailed(f"{name} answered without a code. Sign in again, or log in with a key.")
        with self._slot(address):
            try:
                tokens = await exchange(provider, code, pending.verifier, pending.redirect_uri)
                return _account(provider, verifier, tokens, pending, host)
            except SignInFailed as error:
                failed = error
        # As for a wrong key. Others need the place meanwhile.
        await asyncio.sleep(here.wrong_keys.pause_ms(address) / 1000)
        raise failed

    @contextmanager
    def _slot(self, address: str) -> Iterator[None]:
        """One of the few places for asking a provider."""
        busy = self._exchanging
        if busy.total() >= CONSOLE_EXCHANGES_MAX or busy[address] >= CONSOLE_EXCHANGES_PER_ADDRESS_MAX:
            raise SignInFailed("Too many people are signing in at this moment. Sign in again in a few seconds.")
        busy[address] += 1
        try:
            yield
        finally:
            busy[address] -= 1
            if not busy[address]:
                del busy[address]

    # --- telling ----------------------------------------------------------------------------------------------------

    def note(self, namespace: str, text: str) -> str:
        """Keep a sentence for a browser's next page; returns the value of its cookie."""
        while len(self._notices) >= CONSOLE_SIGN_INS_MAX:
            self._notices.popitem(last=False)
        cookie = secrets.token_urlsafe(16)
        self._notices[cookie] = (namespace, text)
        return cookie

    def noted(self, cookie: str) -> tuple[str, str] | None:
        """The namespace and the sentence; only once."""
        return self._notices.pop(cookie, None)


def authorization_address(provider: IdentityProvider, state: str, pending: PendingSignIn) -> str:
    """Where the browser goes to sign in."""
    config = provider.config
    query = urlencode(
        {
            "response_type": "code",
            "client_id": config.client_id,
            "redirect_uri": pending.redirect_uri,
            "scope": config.scope,
            "state": state,
            "nonce": pending.nonce,
            "code_challenge": challenge(pending.verifier),
            "code_challenge_method": "S256",
        }
    )
    parts = urlsplit(config.authorization_endpoint)
    return parts._replace(query=f"{parts.query}&{query}" if parts.query else query).geturl()


def origin_of(scheme: str, host: str, ours: Collection[str]) -> str:
    """The console's own address as the browser knows it; raises if the Host header is not one of our names and
    addresses: the provider would send the browser there, with the code."""
    try:
        parts = urlsplit(f"//{host}")
        name, _ = parts.hostname or "", parts.port
    except ValueError:
        name = ""
    if not is_name(name) or name.startswith("*") or parts.netloc != host or "@" in host:
        raise Refused(400, "The request has no usable Host header.")
    if not (is_loopback(name) or name.endswith(".localhost") or name in ours):
        raise Refused(
            400,
            f"'{name}' is not a name of this broker, so nobody can sign in here. Open the console by a name that the "
            "broker knows, or ask the operator to give this one with --tls-name.",
        )
    return f"{scheme}://{host}"


def _account(
    provider: IdentityProvider,
    verifier: JwtVerifier,
    tokens: ProviderTokens,
    pending: PendingSignIn,
    host: NamespaceHost,
) -> AccountLogin:
    now_s, skew_s = host.clock.now_ms() / 1000, TOKEN_EXPIRY_GRACE_MS / 1000
    try:
        client_id = provider.config.client_id
        name = verifier.verify_identity(tokens.identity, client_id, pending.nonce, now_s, skew_s)
        rights, expires_s = verifier.verify(tokens.access, now_s, skew_s)
    except UnauthorizedError as error:
        reason = _REASONS.get(error.reason, _UNUSABLE)
        raise SignInFailed(reason.format(provider.title, host.name)) from None
    return AccountLogin(provider_text(name) or provider.title, rights, expires_s)
