"""Shared access signatures: `SharedAccessSignature sr=...&sig=...&se=...&skn=...`.

Rules:
- The signature is verified over the raw `sr`, exactly as in the token: clients encode it differently (upper-case hex,
  lower-case hex, not at all), and re-encoding it would break some of them.
- Comparisons take constant time and cover both keys of every candidate policy.
- No error text contains a signature or a key.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from urllib.parse import quote_plus, unquote, unquote_plus

from twinbus.auth.policies import Policy
from twinbus.auth.scope import path_of
from twinbus.errors import UnauthorizedError, bad_token
from twinbus.limits import TOKEN_BYTES_MAX, TOKEN_EXPIRY_GRACE_MS

PREFIX = "SharedAccessSignature "
# Tokens are accepted this long after they expire: the SDK's admin client reuses one for up to a minute.
SKEW_S = TOKEN_EXPIRY_GRACE_MS // 1000
# Digits of a plausible `se`; Python's int() would accept any number of them.
_EXPIRY_DIGITS_MAX = 15
# The last second that has a date (year 9999).
_LAST_S = 253_402_300_799

KeyLookup = Callable[[str, str], Sequence[Policy]]


@dataclass(frozen=True, slots=True)
class SasToken:
    """The four parts of a token. `resource` and `expiry` are raw, as signed; the others are decoded."""

    resource: str
    signature: str = field(repr=False)
    expiry: str
    key_name: str

    @property
    def expiry_s(self) -> int:
        """Expiry in seconds since the epoch."""
        return int(self.expiry)

    @property
    def path(self) -> str:
        """The normalised path that the token covers."""
        return path_of(unquote_plus(self.resource))


def is_sas(token: str) -> bool:
    return token[: len(PREFIX)].lower() == PREFIX.lower()


def sign(resource: str, key_name: str, key: str, expiry_s: int) -> str:
    """Create a token for `resource` (a plain URI), valid until `expiry_s` (seconds since the epoch)."""
    encoded = quote_plus(resource)
    signature = quote_plus(_signature(encoded, str(expiry_s), key))
    return f"{PREFIX}sr={encoded}&sig={signature}&se={expiry_s}&skn={quote_plus(key_name)}"


def parse(token: str) -> SasToken:
    """Parse a token; UnauthorizedError names the part that is missing or wrong."""
    if len(token) > TOKEN_BYTES_MAX:
        raise bad_token("MalformedToken", f"The token is longer than {TOKEN_BYTES_MAX} characters.")
    if not is_sas(token):
        raise bad_token("MalformedToken", "The token does not start with 'SharedAccessSignature '.")
    parts: dict[str, str] = {}
    for item in token[len(PREFIX) :].strip().split("&"):
        name, _, value = item.partition("=")
        if name in parts:
            raise bad_token("MalformedToken", f"The token has '{name[:20]}' twice.")
        parts[name] = value
    for name in ("sr", "sig", "se", "skn"):
        if not parts.get(name):
            raise bad_token("MalformedToken", f"The token has no '{name}'.")
    expiry = parts["se"]
    if not (expiry.isascii() and expiry.isdigit() and len(expiry) <= _EXPIRY_DIGITS_MAX):
        raise bad_token("MalformedToken", "'se' is not a number of seconds since 1970.")
    # Not unquote_plus: '+' is a base64 digit, and some clients do not escape it.
    return SasToken(parts["sr"], unquote(parts["sig"]), expiry, unquote_plus(parts["skn"]))


def verify(token: str, keys: KeyLookup, now_s: float, skew_s: float = SKEW_S) -> tuple[SasToken, Policy]:
    """Return the token's parts and the policy that signed it, or raise UnauthorizedError.

    `keys` returns the policies of a name that cover a path. An unknown name takes as long as a wrong key.
    """
    parsed = parse(token)
    path = parsed.path
    candidates = list(keys(parsed.key_name, path))
    # The Python SDK encodes the key name twice.
    if not candidates and "%" in parsed.key_name:
        candidates = list(keys(unquote_plus(parsed.key_name), path))
    given = parsed.signature.encode("utf-8", "surrogatepass")
    signer: Policy | None = None
    keyed = [(policy, key) for policy in candidates for key in policy.keys]
    for policy, key in keyed:
        if hmac.compare_digest(given, _signature(parsed.resource, parsed.expiry, key).encode()) and signer is None:
            signer = policy
    # A policy has at most two keys; make up for missing ones, so that the time does not reveal them.
    for _ in range(2 - len(keyed)):
        hmac.compare_digest(given, _signature(parsed.resource, parsed.expiry, "no such policy").encode())
    if signer is None:
        # A name that no policy has may be a key in the wrong place, so it is not repeated.
        known = candidates[0].name if candidates else ""
        raise bad_token("InvalidSignature", "The token has an invalid signature.", known)
    if now_s > parsed.expiry_s + skew_s:
        raise expired(parsed.expiry_s, now_s, signer.name)
    return parsed, signer


def expired(expired_s: float, now_s: float, policy: str = "") -> UnauthorizedError:
    times = f"Expiration time: {_moment(expired_s)}, current time: {_moment(now_s)}."
    return bad_token("ExpiredToken", f"The token is expired. {times}", policy)


def _moment(seconds: float) -> str:
    # Python has no dates after the year 9999.
    return f"{datetime.fromtimestamp(min(seconds, _LAST_S), UTC):%Y-%m-%dT%H:%M:%SZ}"


def _signature(encoded_resource: str, expiry: str, key: str) -> str:
    text = f"{encoded_resource}\n{expiry}".encode("utf-8", "surrogatepass")
    return b64encode(hmac.new(key.encode("utf-8", "surrogatepass"), text, sha256).digest()).decode("ascii")
