from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.auth.jwt_issuer import AUDIENCE, ISSUER, NOW_S, Issuer, encoded, number
from twinbus.auth.claims import Claim, decide
from twinbus.auth.jwt import SERVICE_ROLES, JwtVerifier, key_of_pem, keys_of_jwks
from twinbus.auth.policies import ALL_RIGHTS, Policies, Right
from twinbus.errors import ConfigError, UnauthorizedError
from twinbus.limits import JWT_KEYS_MAX, JWT_RSA_BITS_MIN

OURS = Issuer()
FOREIGN = Issuer()
VERIFIER = JwtVerifier(ISSUER, keys_of_jwks(OURS.jwks()))


def verdict(token: str, verifier: JwtVerifier = VERIFIER, now_s: float = NOW_S) -> Claim:
    return decide(token, "sb://contoso/Orders", Policies(), now_s, jwt=verifier)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_a_good_token_gives_its_roles_rights_until_it_expires(algorithm: str) -> None:
    assert verdict(OURS.token(algorithm)) == Claim("orders", ALL_RIGHTS, NOW_S + 3600)
    sender = verdict(OURS.token(algorithm, roles=["Azure Service Bus Data Sender"]))
    assert sender.rights == {Right.SEND}
    both = verdict(OURS.token(algorithm, roles=["other", *list(SERVICE_ROLES)[3:5]]))
    assert both.rights == {Right.SEND, Right.LISTEN}
    assert verdict(OURS.token(algorithm, roles="azure service bus data receiver")).rights == {Right.LISTEN}


@pytest.mark.parametrize(
    ("claims", "problem"),
    [
        ({"iss": ISSUER + "/"}, "InvalidIssuer"),
        ({"iss": None}, "InvalidIssuer"),
        ({"iss": [ISSUER]}, "InvalidIssuer"),
        ({"aud": "https://storage.azure.com"}, "InvalidAudience"),
        ({"aud": None}, "InvalidAudience"),
        ({"aud": []}, "InvalidAudience"),
        ({"exp": NOW_S - 61}, "ExpiredToken: The token is expired. Expiration time:"),
        ({"exp": None}, "does not say when"),
        ({"exp": "soon"}, "does not say when"),
        ({"exp": True}, "does not say when"),
        ({"exp": -1}, "does not say when"),
        ({"exp": 10**30}, "does not say when"),
        ({"exp": float("inf")}, "does not say when"),
        ({"nbf": NOW_S + 61}, "not valid yet"),
        ({"nbf": "now"}, "not valid yet"),
        ({"roles": []}, "InvalidRoles"),
        ({"roles": None}, "InvalidRoles"),
        ({"roles": ["Reader"]}, "InvalidRoles"),
        ({"roles": {"Azure Service Bus Data Owner": 1}}, "InvalidRoles"),
    ],
)
def test_what_a_token_says_must_be_right(claims: dict[str, Any], problem: str) -> None:
    with pytest.raises(UnauthorizedError, match=problem) as caught:
        verdict(OURS.token(**claims))
    assert ISSUER not in caught.value.text


def test_clocks_may_differ_a_little() -> None:
    assert verdict(OURS.token(exp=NOW_S - 60))
    assert verdict(OURS.token(nbf=NOW_S + 60))
    assert verdict(OURS.token(nbf=None))
    assert verdict(OURS.token(exp=NOW_S + 0.5)).expires_s == NOW_S


def test_audiences_as_clients_write_them() -> None:
    assert verdict(OURS.token(aud=AUDIENCE + "/"))
    assert verdict(OURS.token(aud=["https://other", AUDIENCE]))
    assert verdict(OURS.token(aud="api://bus"), JwtVerifier(ISSUER, keys_of_jwks(OURS.jwks()), "api://bus"))


@pytest.mark.parametrize("algorithm", ["none", "None", "HS256", "RS384", "PS256", "ES384", "EdDSA", ""])
def test_the_key_decides_the_algorithm(algorithm: str) -> None:
    with pytest.raises(UnauthorizedError, match="InvalidSignature"):
        verdict(OURS.token(algorithm))
    # Validly signed, but labelled with another algorithm.
    for real in ("RS256", "ES256"):
        with pytest.raises(UnauthorizedError, match="InvalidSignature"):
            verdict(OURS.token(real, header={"alg": algorithm}))
    with pytest.raises(UnauthorizedError, match="InvalidSignature"):
        verdict(OURS.token("RS256", header={"alg": "ES256"}))


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_another_issuers_key_is_nothing(algorithm: str) -> None:
    with pytest.raises(UnauthorizedError, match="InvalidSignature"):
        verdict(FOREIGN.token(algorithm))


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_every_changed_character_is_noticed(algorithm: str) -> None:
    token = OURS.token(algorithm)
    for at in range(0, len(token), 7):
        other = "A" if token[at] != "A" else "B"
        with pytest.raises(UnauthorizedError):
            verdict(token[:at] + other + token[at + 1 :])
    # Also the last character, whose lower bits mean nothing: a token has only one valid form.
    last = token[-1]
    for other in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_":
        if other != last:
            with pytest.raises(UnauthorizedError):
                verdict(token[:-1] + other)


def test_key_ids_choose_the_key() -> None:
    named = JwtVerifier(ISSUER, keys_of_jwks(OURS.jwks(rsa="a", ec="b")))
    assert verdict(OURS.token(header={"kid": "a"}), named)
    assert verdict(OURS.token(), named)
    for wrong in ("b", "A", "", 7):
        with pytest.raises(UnauthorizedError, match="InvalidSignature"):
            verdict(OURS.token(header={"kid": wrong}), named)
    # Keys from PEM files have no id, so any of them may have signed a token that names one.
    mixed = JwtVerifier(ISSUER, [*keys_of_jwks(FOREIGN.jwks(rsa="f")), key_of_pem(OURS.pem("RS256"))])
    assert verdict(OURS.token(header={"kid": "mine"}), mixed)
    with pytest.raises(UnauthorizedError):
        verdict(OURS.token(header={"kid": "f"}), mixed)


def test_critical_extensions_are_not_known() -> None:
    with pytest.raises(UnauthorizedError, match="critical"):
        verdict(OURS.token(header={"crit": ["b64"], "b64": False}))


@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize("content", ["", "%", "====", "A", encoded(b"[]"), encoded(b"{"), encoded(b"\xff"), "Zg=="])
def test_rubbish_in_any_part(part: int, content: str) -> None:
    parts = OURS.token().split(".")
    parts[part] = content
    with pytest.raises(UnauthorizedError):
        VERIFIER.verify(".".join(parts), NOW_S, 60)
    deep = encoded(b"[" * 30_000 + b"]" * 30_000)
    with pytest.raises(UnauthorizedError):
        VERIFIER.verify(f"{deep}.{deep}.AAAA", NOW_S, 60)


def test_roles_are_the_configurations() -> None:
    verifier = JwtVerifier(
        ISSUER, [key_of_pem(OURS.pem("ES256"))], roles={"Writer": frozenset({Right.SEND})}, roles_claim="groups"
    )
    assert verdict(OURS.token("ES256", groups=["writer"]), verifier).rights == {Right.SEND}
    with pytest.raises(UnauthorizedError, match="InvalidRoles"):
        verdict(OURS.token("ES256", groups=["Azure Service Bus Data Owner"]), verifier)


def private(key: rsa.RSAPrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def public(key: Any) -> str:
    return str(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode())


def test_keys_that_do_not_do() -> None:
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    with pytest.raises(ConfigError, match=f"{JWT_RSA_BITS_MIN} to"):
        key_of_pem(public(weak))
    with pytest.raises(ConfigError, match="neither RSA nor P-256"):
        key_of_pem(public(ec.generate_private_key(ec.SECP384R1())))
    secret = private(OURS.rsa)
    with pytest.raises(ConfigError) as caught:
        key_of_pem(secret)
    assert secret.splitlines()[1] not in str(caught.value)
    for text in ("", "[]", "{}", '{"keys": 1}', '{"keys": [1]}', '{"keys": [{"kty": "RSA"}]}', "[" * 100_000):
        with pytest.raises(ConfigError):
            keys_of_jwks(text)
    with pytest.raises(ConfigError, match="no key for"):
        keys_of_jwks('{"keys": [{"kty": "OKP"}]}')
    entry = json.loads(OURS.jwks())["keys"][0]
    with pytest.raises(ConfigError, match="private or secret"):
        keys_of_jwks(json.dumps({"keys": [{**entry, "d": "AQAB"}]}))
    assert int.from_bytes(urlsafe_b64decode(number(65537) + "==="), "big") == 65537
    with pytest.raises(ConfigError, match="1 to"):
        JwtVerifier(ISSUER, [])
    with pytest.raises(ConfigError, match="1 to"):
        JwtVerifier(ISSUER, [key_of_pem(OURS.pem("RS256"))] * (JWT_KEYS_MAX + 1))
    with pytest.raises(ConfigError, match="issuer"):
        JwtVerifier("", [key_of_pem(OURS.pem("RS256"))])


# --- ID tokens --------------------------------------------------------------------------------------------------------


def named(token: str) -> str:
    return VERIFIER.verify_identity(token, "console", "once", NOW_S, 60)


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"preferred_username": "ann", "email": "ann@x.example", "sub": "1"}, "ann"),
        ({"preferred_username": 5, "email": "ann@x.example"}, "ann@x.example"),
        ({"name": "Ann", "email": ""}, "Ann"),
        ({"sub": "1", "azp": "console", "aud": ["console", "other"]}, "1"),
        ({}, ""),
    ],
)
def test_an_id_token_names_the_account(claims: dict[str, Any], name: str) -> None:
    assert named(OURS.token(**{"aud": "console", "nonce": "once", "roles": None, **claims})) == name


@pytest.mark.parametrize(
    ("claims", "problem"),
    [
        ({"nonce": "twice"}, "InvalidNonce"),
        ({"nonce": None}, "InvalidNonce"),
        ({"nonce": ["once"]}, "InvalidNonce"),
        ({"nonce": "once\ud800"}, "InvalidNonce"),
        ({"aud": AUDIENCE}, "InvalidAudience"),
        ({"azp": "other"}, "InvalidAudience"),
        ({"iss": "https://other.example"}, "InvalidIssuer"),
        ({"exp": NOW_S - 61}, "ExpiredToken"),
    ],
)
def test_an_id_token_of_somebody_else(claims: dict[str, Any], problem: str) -> None:
    with pytest.raises(UnauthorizedError, match=problem):
        named(OURS.token(**{"aud": "console", "nonce": "once", **claims}))
    with pytest.raises(UnauthorizedError, match="InvalidSignature"):
        named(FOREIGN.token(aud="console", nonce="once"))
