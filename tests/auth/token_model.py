"""A second implementation of SAS tokens, written from the service's documentation and sharing no code with
`twinbus.auth`.

It has its own HMAC and its own parser. For a token put for an audience it returns a `Verdict`, or None if the token
must be refused.
"""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

GRACE_S = 60
_TOKEN = re.compile(r"sharedaccesssignature ", re.IGNORECASE)
_HEX = "0123456789abcdefABCDEF"


class Key(NamedTuple):
    """A policy of the model: the path it applies to, and its keys."""

    name: str
    scope: tuple[str, ...]
    rights: frozenset[str]
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    """The rights granted on a path and below it, and their expiry."""

    parts: tuple[str, ...]
    rights: frozenset[str]
    expires_s: int

    def allows(self, path: str, right: str) -> bool:
        parts = tuple(part for part in path.lower().split("/") if part)
        return right in self.rights and parts[: len(self.parts)] == self.parts


def mac(key: str, text: str) -> str:
    """Compute HMAC-SHA256 by its definition (RFC 2104), in base64."""
    secret = key.encode("utf-8")
    if len(secret) > 64:
        secret = sha256(secret).digest()
    secret = secret.ljust(64, b"\0")
    inner = sha256(bytes(byte ^ 0x36 for byte in secret) + text.encode("utf-8")).digest()
    return b64encode(sha256(bytes(byte ^ 0x5C for byte in secret) + inner).digest()).decode()


def judge(token: str, audience: str, keys: list[Key], now_s: int) -> Verdict | None:
    """Return the model's decision."""
    if not _TOKEN.match(token):
        return None
    fields: dict[str, str] = {}
    for piece in token[22:].strip().split("&"):
        name, _, value = piece.partition("=")
        if name in fields:
            return None
        fields[name] = value
    if any(not fields.get(name) for name in ("sr", "sig", "se", "skn")):
        return None
    if not re.fullmatch(r"[0-9]{1,15}", fields["se"]):
        return None
    resource = parts_of(percent_decoded(fields["sr"].replace("+", " ")))
    signature = percent_decoded(fields["sig"])
    text = f"{fields['sr']}\n{fields['se']}"
    name = percent_decoded(fields["skn"].replace("+", " "))
    known = covering(keys, name, resource)
    if not known and "%" in name:
        known = covering(keys, percent_decoded(name.replace("+", " ")), resource)
    signer = next((key for key in known if signature in [mac(each, text) for each in key.keys]), None)
    if signer is None or now_s - int(fields["se"]) > GRACE_S:
        return None
    wanted = parts_of(audience)
    shorter, longer = sorted((resource, wanted), key=len)
    if longer[: len(shorter)] != shorter:
        return None
    return Verdict(longer, signer.rights, int(fields["se"]))


def covering(keys: list[Key], name: str, resource: tuple[str, ...]) -> list[Key]:
    return [key for key in keys if key.name.lower() == name.lower() and resource[: len(key.scope)] == key.scope]


def parts_of(address: str) -> tuple[str, ...]:
    """Return the path of an address as lower-case segments."""
    found = re.match(r"(.*?)://(.*)", address, re.DOTALL)
    rest = re.split(r"[?#]", found[2] if found else address, maxsplit=1)[0]
    segments = rest.split("/")
    first = segments[0]
    if found or "." in first or ":" in first or first.lower() == "localhost":
        segments = segments[1:]
    decoded = percent_decoded("/".join(segments)).lower()
    return tuple(part for part in decoded.split("/") if part)


def percent_decoded(text: str) -> str:
    """Decode `%41` to A and leave invalid escapes as they are."""
    out = bytearray()
    at = 0
    while at < len(text):
        pair = text[at + 1 : at + 3]
        if text[at] == "%" and len(pair) == 2 and all(digit in _HEX for digit in pair):
            out.append(int(pair, 16))
            at += 3
        else:
            out += text[at].encode("utf-8", "surrogatepass")
            at += 1
    return out.decode("utf-8", "replace")
