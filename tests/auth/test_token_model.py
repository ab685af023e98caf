"""Thousands of tokens, valid and invalid in every way we know, against a model: both must accept and refuse the same
ones."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from urllib.parse import quote

import pytest

from tests.auth.token_model import Key, Verdict, judge, mac
from twinbus.auth.claims import Claim, decide
from twinbus.auth.policies import Policies, Policy, Right
from twinbus.errors import UnauthorizedError

SEED = 20_261_115
TOKENS = 12_000
NOW_S = 1_700_000_000
PATHS = ["", "orders", "orders/eu", "Orders", "orders2", "billing/invoices", "events/Subscriptions/all", "a.b", "ä/ö"]
RIGHTS = ["Send", "Listen", "Manage"]


@dataclass(frozen=True)
class Made:
    """The parts of a token before it is formatted."""

    resource: str
    key_name: str
    key: str
    expiry: str
    audience: str
    order: tuple[str, ...] = ("sr", "sig", "se", "skn")
    prefix: str = "SharedAccessSignature "
    signed_resource: str | None = None
    name_quoted: int = 1
    bare_signature: bool = False

    def text(self) -> str:
        signature = mac(self.key, f"{self.signed_resource or self.resource}\n{self.expiry}")
        name = self.key_name
        for _ in range(self.name_quoted):
            name = quote(name, safe="")
        fields = {
            "sr": self.resource,
            "sig": signature if self.bare_signature else quote(signature, safe=""),
            "se": self.expiry,
            "skn": name,
        }
        return self.prefix + "&".join(f"{name}={fields[name]}" for name in self.order)


def namespaces(rng: random.Random) -> tuple[list[Key], list[Key]]:
    """Return two namespaces whose policies have the same names, scopes and rights, but different keys."""
    scopes = ["", "orders", "orders/eu", "billing/invoices", "events", "ä"]
    rights = [("Send",), ("Listen",), ("Send", "Listen"), ("Send", "Listen", "Manage")]
    shapes = [
        (rng.choice(["root", "Reader", "a policy", "50%", "plus+sign", "ключ"]) + suffix, scope, rng.choice(rights))
        for scope in scopes
        for suffix in ("", "-2", "%41")
    ]

    def filled() -> list[Key]:
        return [
            Key(
                name,
                tuple(part for part in scope.split("/") if part),
                frozenset(given),
                tuple(rng.choice(["k+/=", "ü", "=", ""]) + str(rng.random()) for _ in range(rng.choice([1, 2]))),
            )
            for name, scope, given in shapes
        ]

    return filled(), filled()


def policies_of(keys: list[Key]) -> Policies:
    made = Policies()
    for key in keys:
        rights = frozenset(Right(right) for right in key.rights)
        made.add(Policy(key.name, rights, key.keys[0], key.keys[1] if len(key.keys) > 1 else "", "/".join(key.scope)))
    return made


def address(rng: random.Random, path: str) -> str:
    """Return a path as clients write it."""
    host = rng.choice(["localhost:5672", "contoso.servicebus.windows.net", "127.0.0.1", "h.x"])
    scheme = rng.choice(["sb://", "https://", "amqps://", "http://", ""])
    end = rng.choice(["", "", "/", "?api-version=2021-05", "/$management", "//"])
    return f"{scheme}{host}/{path}{end}" if path or rng.random() < 0.7 else f"{scheme}{host}"


def encoded(rng: random.Random, text: str) -> str:
    """Encode an address for `sr` like clients do: not at all, in upper or lower case, or every character."""
    how = rng.randrange(4)
    if how == 0 and not set(text) & set("&=#%+ ") and text.isascii():
        return text
    if how == 1:
        return quote(text, safe="").lower()
    if how == 2:
        return "".join(f"%{byte:02X}" for byte in text.encode())
    return quote(text, safe=rng.choice(["", "/", ":/"]))


def good(rng: random.Random, keys: list[Key]) -> Made:
    key = rng.choice(keys)
    scope = "/".join(key.scope)
    inside = [scope, *(path for path in PATHS if path.lower().split("/")[: len(key.scope)] == list(key.scope))]
    path = rng.choice(inside)
    put_for = rng.choice([path, path, "", f"{path}/below" if path else "orders", rng.choice(PATHS)])
    order = ["sr", "sig", "se", "skn"]
    if rng.random() < 0.5:
        rng.shuffle(order)
    return Made(
        resource=encoded(rng, address(rng, path)),
        key_name=rng.choice([key.name, key.name.upper() if key.name.isascii() else key.name]),
        key=rng.choice(key.keys),
        expiry=str(NOW_S + rng.choice([-60, -59, 0, 1, 3600, 10**9])),
        audience=address(rng, put_for),
        order=tuple(order),
        prefix=rng.choice(["SharedAccessSignature ", "sharedaccesssignature "]),
        name_quoted=rng.choice([1, 1, 2]),
        bare_signature=rng.random() < 0.3,
    )


# --- mutations: each takes a valid token and returns the text of an invalid one ---------------------------------------


def wrong_key(rng: random.Random, made: Made, keys: list[Key], others: list[Key]) -> str:
    key = rng.choice([made.key[:-1], made.key + "x", made.key.swapcase() + "y", "", " " + made.key, "no such policy"])
    return replace(made, key=key).text()


def other_namespace(rng: random.Random, made: Made, keys: list[Key], others: list[Key]) -> str:
    twin = rng.choice([key for key in others if key.name.lower() == made.key_name.lower()])
    return replace(made, key=rng.choice(twin.keys)).text()


def other_policy(rng: random.Random, made: Made, keys: list[Key], others: list[Key]) -> str:
    different = rng.choice([key for key in keys if key.name.lower() != made.key_name.lower()])
    return replace(made, key=rng.choice(different.keys)).text()


def expired(rng: random.Random, made: Made, keys: list[Key], others: list[Key]) -> str:
    return replace(made, expiry=str(NOW_S - rng.choice([61, 62, 3600, NOW_S]))).text()


def stretched(rng: random.Random, made: Made, keys: list[Key], others: list[Key]) -> str:
    """Another expiry than the signed one."""
    return made.text().replace(f"se={made.expiry}", f"se={int(made.expiry) + rng.choice([1, -1, 10**6])}")


def moved(rng: random.Random, made: Made, keys: list[Key], others: list[Key]) -> str:
    """Another resource than the signed one, or the same one in another spelling."""
    other = rng.choice([encoded(rng, address(rng, rng.choice(PATHS))), made.resource + "/", made.resource + "x"])
    return replace(made, resource=other, signed_resource=made.resource).text()


def renamed(rng: random.Random, made: Made, keys: list[Key], others: list[Key]) -> str:
    """The key of one policy under the name of another or of none."""
    name = rng.choice([*(key.name for key in keys), made.key_name + " ", "", "nobody", made.key_name + "%00"])
    return replace(made, key_name=name).text()


def tampered(rng: random.Random, made: Made, keys: list[Key], others: list[Key]) -> str:
    """One character changed, removed or added anywhere."""
    text = made.text()
    at = rng.randrange(len(text))
    how = rng.randrange(3)
    if how == 0:
        return text[:at] + chr(rng.choice([*range(32, 127), 0xE9])) + text[at + 1 :]
    return text[:at] + text[at + 1 :] if how == 1 else text[:at] + rng.choice("aA%&=+ 0") + text[at:]


def odd(rng: random.Random, made: Made, keys: list[Key], others: list[Key]) -> str:
    """Forms that no client uses."""
    text = made.text()
    choices: list[Callable[[], str]] = [
        lambda: text + "&" + rng.choice(["sr=x", "sig=x", "se=1", "skn=x", "", "other=1"]),
        lambda: text.replace("&", ";"),
        lambda: text.replace("sig=", "SIG="),
        lambda: text.replace(f"se={made.expiry}", f"se={rng.choice(['-1', '٣', '1e9', '0x10', ' 1', '+1', '9' * 16])}"),
        lambda: text.replace(f"se={made.expiry}", f"se=0{made.expiry}"),
        lambda: text.replace("SharedAccessSignature ", rng.choice(["", "SharedAccessSignature", "Bearer "])),
        lambda: text + rng.choice([" ", "\n", "\0", "\t"]),
        lambda: " " + text,
        lambda: text.replace("sr=", "sr=%"),
        lambda: text.replace("%", "%25"),
        lambda: text.upper(),
        lambda: text.replace("&", "&&", 1),
        lambda: text[: rng.randrange(len(text))],
    ]
    return rng.choice(choices)()


WAYS = {
    each.__name__: each
    for each in (wrong_key, other_namespace, other_policy, expired, stretched, moved, renamed, tampered, odd)
}


def decided(text: str, audience: str, policies: Policies) -> Claim | None:
    try:
        return decide(text, audience, policies, NOW_S)
    except UnauthorizedError:
        return None


def same(claim: Claim | None, verdict: Verdict | None, rng: random.Random) -> bool:
    """Whether both agree, also about single paths and rights."""
    if claim is None or verdict is None:
        return claim is None and verdict is None
    if claim.expires_s != verdict.expires_s:
        return False
    own = "/".join(verdict.parts)
    asked = [own, f"{own}/below", f"{own}x", "", *rng.sample(PATHS, 3)]
    return all(claim.allows(path, right) == verdict.allows(path, right) for path in asked for right in RIGHTS)


def test_thousands_of_tokens_are_judged_as_the_model_does() -> None:
    rng = random.Random(SEED)
    seen: Counter[tuple[str, bool]] = Counter()
    for number in range(TOKENS):
        if number % 500 == 0:
            keys, others = namespaces(rng)
            policies = policies_of(keys)
        made = good(rng, keys)
        way = rng.choice(["good", "good", *WAYS])
        text = made.text() if way == "good" else WAYS[way](rng, made, keys, others)
        claim, verdict = decided(text, made.audience, policies), judge(text, made.audience, keys, NOW_S)
        assert same(claim, verdict, rng), (number, way, text, made.audience, claim, verdict)
        seen[way, verdict is not None] += 1
        if way in ("wrong_key", "other_namespace", "other_policy", "expired", "stretched"):
            assert verdict is None, (number, way, text)
    assert sum(seen.values()) >= 10_000
    # The model must not refuse everything: valid tokens are accepted unless put for a foreign audience.
    assert seen["good", True] > TOKENS * 0.08
    assert seen["good", False] > 100
    for way in WAYS:
        assert seen[way, False] > 300, way
    # A change without effect (parts in another order, a plus for a space) may leave the token valid.
    assert seen["tampered", False] > 10 * seen["tampered", True]


@pytest.mark.parametrize("right", RIGHTS)
def test_the_wrong_right_never_gets_in(right: str) -> None:
    """Ask every policy without Manage for a right it does not have, on every path."""
    rng = random.Random(SEED + 1)
    keys, _ = namespaces(rng)
    policies = policies_of(keys)
    refused = 0
    for key in keys:
        made = replace(good(rng, [key]), expiry=str(NOW_S + 60))
        claim = decided(made.text(), made.audience, policies)
        if claim is not None and right not in key.rights:
            assert not any(claim.allows(path, right) for path in [*PATHS, "/".join(key.scope)])
            refused += 1
    assert refused
