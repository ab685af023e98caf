"""Decide what a put-token request or a SASL PLAIN login grants.

Rules:
- A token's content decides its kind, because SDKs label SAS tokens `jwt`.
- A claim covers the narrower of the token's resource and the audience of the put-token request.
- Development mode accepts everything, like the official emulator: any key, any JWT, any opaque token.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from twinbus.auth.jwt import JwtVerifier
from twinbus.auth.policies import ALL_RIGHTS, Policies, Right
from twinbus.auth.sas import SKEW_S, is_sas, verify
from twinbus.auth.scope import covers, normalised, path_of
from twinbus.errors import bad_token
from twinbus.limits import TOKEN_BYTES_MAX

# Expiry of a claim that never expires: the last second of the year 9999, so that comparisons just work.
NEVER_S = 253_402_300_799

_JWT = re.compile(r"[\w=-]+\.[\w=-]+\.[\w=-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Claim:
    """Rights on a path and everything below it, until they expire."""

    path: str
    rights: frozenset[Right]
    expires_s: int = NEVER_S
    # Whose key it was; '' for a JSON web token.
    policy: str = ""

    def allows(self, path: str, right: str) -> bool:
        """Whether it grants `right` on `path` (in any case). Does not check the time; see `expired`."""
        return right in self.rights and covers(self.path, normalised(path))

    def expired(self, now_s: float, grace_s: float = SKEW_S) -> bool:
        return now_s > self.expires_s + grace_s


# The claim of every client in development mode.
EVERYTHING = Claim("", ALL_RIGHTS)


def decide(
    token_text: str,
    audience: str,
    policies: Policies,
    now_s: float,
    dev: bool = False,
    skew_s: float = SKEW_S,
    jwt: JwtVerifier | None = None,
) -> Claim:
    """Return the claim that `token_text`, put for `audience`, grants.

    Raises UnauthorizedError for a wrong signature, an expired or foreign token, a kind of token not accepted here, and
    text that is not a token: the service answers 401 to that too, and clients map 400 to an error of their own.
    """
    if not token_text:
        raise bad_token("MalformedToken", "The token is empty.")
    if len(token_text) > TOKEN_BYTES_MAX:
        raise bad_token("MalformedToken", f"The token is longer than {TOKEN_BYTES_MAX} characters.")
    if dev:
        return EVERYTHING
    if is_sas(token_text):
        token, policy = verify(token_text, policies.find, now_s, skew_s)
        return Claim(_narrower(token.path, path_of(audience)), policy.rights, token.expiry_s, policy.name)
    if _is_jwt(token_text):
        if jwt is None:
            raise bad_token(
                "InvalidIssuer",
                "JSON web tokens are accepted only in development mode, or if the namespace is "
                "configured to verify them. Use a shared access signature.",
            )
        rights, expires_s = jwt.verify(token_text, now_s, skew_s)
        return Claim(path_of(audience), rights, expires_s)
    raise bad_token("MalformedToken", "The token is neither a shared access signature nor a JSON web token.")


def decide_key(key_name: str, key: str, policies: Policies, dev: bool = False) -> Claim:
    """Return the claim of a SASL PLAIN login: the user is the key name, the password the key."""
    if dev:
        return EVERYTHING
    policy = policies.with_key(key_name, key)
    if policy is None:
        # A name that no policy has may be a key in the wrong place, so it is not repeated.
        known = next((each.name for each in policies.named(key_name)), "")
        raise bad_token("InvalidSignature", "The key name or the key is wrong.", known)
    return Claim(policy.scope, policy.rights, policy=policy.name)


def _narrower(resource: str, audience: str) -> str:
    if covers(resource, audience):
        return audience
    if covers(audience, resource):
        return resource
    raise bad_token("InvalidAudience", f"The token is for '{resource}', it was put for '{audience}'.")


def _is_jwt(text: str) -> bool:
    return _JWT.fullmatch(text) is not None
