"""Asks an identity provider for the tokens of a sign-in: one POST to the address that the operator configured.

- The answer is bounded in bytes and time, never decompressed, and no redirect is followed: it would take the code and
  our secret to an address that nobody configured.
- What the provider says about an error is cut to one short line, without the secrets that we sent.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

import aiohttp

from twinbus.broker.http.console.answers import Refused
from twinbus.broker.http.console.shown import cut
from twinbus.broker.http.json_in import read_json
from twinbus.broker.security.identity_provider import IdentityProvider
from twinbus.limits import (
    CONSOLE_EXCHANGE_BYTES_MAX,
    CONSOLE_EXCHANGE_TIMEOUT_MS,
    CONSOLE_PROVIDER_TEXT_CHARS_MAX,
    TOKEN_BYTES_MAX,
)

logger = logging.getLogger(__name__)

_LATER = "Try again later, or log in with a key."


class SignInFailed(Refused):
    """A sign-in that ended without a login; the text is for the person who tried."""

    def __init__(self, text: str) -> None:
        super().__init__(401, text)


class ProviderTokens(NamedTuple):
    """What a provider issued: one token for the broker, one that says who signed in."""

    access: str
    identity: str


def challenge(verifier: str) -> str:
    """What a provider is told of a PKCE verifier when a sign-in begins (S256 of RFC 7636)."""
    return urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


async def exchange(provider: IdentityProvider, code: str, verifier: str, redirect_uri: str) -> ProviderTokens:
    """Exchange a code for tokens; raises SignInFailed with a sentence for the person."""
    name = provider.title
    fields = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": verifier,
    }
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    if provider.secret is None:
        fields["client_id"] = provider.config.client_id
    else:
        # RFC 6749 encodes both parts as in a form before it joins them.
        pair = f"{quote_plus(provider.config.client_id)}:{quote_plus(provider.secret)}"
        headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    try:
        async with asyncio.timeout(CONSOLE_EXCHANGE_TIMEOUT_MS / 1000):
            status, body = await _post(provider.config.token_endpoint, fields, headers)
    except TimeoutError:
        seconds = CONSOLE_EXCHANGE_TIMEOUT_MS // 1000
        raise SignInFailed(f"{name} did not answer the broker within {seconds} s. {_LATER}") from None
    except aiohttp.ClientSSLError:
        raise SignInFailed(
            f"The broker does not trust the certificate of {name}. Ask the operator to check 'token_endpoint', or log "
            "in with a key."
        ) from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # Only the kind: the text may quote the request.
        logger.info("the token endpoint of %s cannot be used: %s", name, type(error).__name__)
        raise SignInFailed(f"The broker cannot reach {name}. {_LATER}") from None
    if len(body) > CONSOLE_EXCHANGE_BYTES_MAX:
        raise SignInFailed(f"{name} answered with more than {CONSOLE_EXCHANGE_BYTES_MAX} bytes. {_LATER}")
    hidden = [code, verifier, provider.secret or ""]
    return _tokens(name, status, body, hidden)


async def _post(address: str, fields: dict[str, str], headers: dict[str, str]) -> tuple[int, bytes]:
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False) as session,
        session.post(address, data=fields, headers=headers, allow_redirects=False) as response,
    ):
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > CONSOLE_EXCHANGE_BYTES_MAX:
                break
        return response.status, bytes(body)


def _tokens(name: str, status: int, body: bytes, hidden: Iterable[str]) -> ProviderTokens:
    if 300 <= status < 400:
        raise SignInFailed(
            f"{name} answered the broker with a redirect, which is not followed. Ask the operator to correct "
            "'token_endpoint', or log in with a key."
        )
    try:
        found = read_json(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise SignInFailed(
            f"{name} answered with status {status} and no JSON object. Ask the operator to check 'token_endpoint', or "
            "log in with a key."
        )
    if status != 200:
        said = provider_error(found, hidden)
        raise SignInFailed(
            f"{name} refused the sign-in with status {status}{said}. Sign in again; if that does not help, ask the "
            "operator to check 'client_id' and 'client_secret_file'."
        )
    access, identity = found.get("access_token"), found.get("id_token")
    if not isinstance(access, str) or not isinstance(identity, str):
        raise SignInFailed(
            f"{name} answered without an access token and an ID token. Ask the operator to check 'scope', or log in "
            "with a key."
        )
    if max(len(access), len(identity)) > TOKEN_BYTES_MAX:
        raise SignInFailed(f"{name} issued a token of more than {TOKEN_BYTES_MAX} characters. Log in with a key.")
    return ProviderTokens(access, identity)


def provider_error(fields: dict[str, Any], hidden: Iterable[str] = ()) -> str:
    """A provider's error and its description, as an appendix to a sentence; empty if there is none."""
    said = [text for name in ("error", "error_description") if isinstance(text := fields.get(name), str) and text]
    shown = provider_text(": ".join(said), hidden).rstrip(".")
    return f" ({shown})" if shown else ""


def provider_text(text: str, hidden: Iterable[str] = ()) -> str:
    """Text of a provider on one short line, without `hidden`."""
    for secret in hidden:
        for form in {secret, quote(secret, safe=""), quote_plus(secret)} - {""}:
            text = text.replace(form, "…")
    line = "".join(each if each.isprintable() else " " for each in text)
    return cut(" ".join(line.split()), CONSOLE_PROVIDER_TEXT_CHARS_MAX)
