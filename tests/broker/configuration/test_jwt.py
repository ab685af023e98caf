"""JSON web tokens by configuration: read from TOML and key files, and accepted on every path."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.auth.jwt_issuer import ISSUER, Issuer
from tests.broker.http.admin.desk import Desk
from tests.broker.peer import Peer
from twinbus.auth.policies import Right
from twinbus.broker.configuration.config import SignInConfig
from twinbus.broker.configuration.file import load_config
from twinbus.broker.security.jwt_keys import jwt_verifier
from twinbus.errors import ConfigError
from twinbus.limits import CLIENT_ID_CHARS_MAX
from twinbus.testing import Broker

ISSUED = Issuer()
TABLE = f"""
[namespaces.contoso.queues.orders]
[namespaces.contoso.jwt]
issuer = "{ISSUER}"
"""


def written(folder: Path, more: str) -> Path:
    (folder / "jwks.json").write_text(ISSUED.jwks())
    (folder / "key.pem").write_text(ISSUED.pem("ES256"))
    path = folder / "twinbus.toml"
    path.write_text(TABLE + more)
    return path


def fresh(algorithm: str, role: str) -> str:
    return ISSUED.token(algorithm, exp=int(time.time()) + 600, nbf=int(time.time()), roles=[role])


def test_tokens_count_over_amqp_and_http(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, 'jwks = "jwks.json"\npublic_keys = ["key.pem"]\n'))
    with Broker(config.namespaces, dev=False) as broker:
        with Peer(broker) as peer:
            assert peer.put_token("sb://localhost/orders", fresh("RS256", "Azure Service Bus Data Sender")) == 202
            peer.sender("orders")
            assert "'Listen' claim" in peer.refusal(lambda: peer.receiver("orders")).description
            assert peer.put_token("sb://localhost/orders", fresh("ES256", "Azure Service Bus Data Receiver")) == 202
            peer.receiver("orders")
            assert peer.put_token("sb://localhost/orders", Issuer().token(exp=int(time.time()) + 600)) == 401
        desk = Desk(broker)
        desk.headers["Authorization"] = f"Bearer {fresh('RS256', 'Azure Service Bus Data Owner')}"
        assert desk.get("/orders").status == 200
        desk.headers["Authorization"] = f"Bearer {fresh('RS256', 'Azure Service Bus Data Sender')}"
        assert desk.get("/orders").status == 401


def test_without_the_table_they_are_refused() -> None:
    with Broker(["contoso"], dev=False) as broker, Peer(broker) as peer:
        assert peer.put_token("sb://localhost/", fresh("RS256", "Azure Service Bus Data Owner")) == 401


def test_everything_in_the_table(tmp_path: Path) -> None:
    more = (
        'jwks = "jwks.json"\naudience = "api://bus"\nroles_claim = "groups"\n'
        '[namespaces.contoso.jwt.roles]\nwriters = ["Send"]\n"the owners" = ["Manage"]\n'
    )
    jwt = load_config(written(tmp_path, more)).namespaces[0].jwt
    assert jwt is not None
    assert (jwt.issuer, jwt.audience, jwt.roles_claim) == (ISSUER, "api://bus", "groups")
    assert jwt.jwks == tmp_path / "jwks.json"
    assert jwt.roles == {"writers": {Right.SEND}, "the owners": set(Right)}
    assert jwt_verifier(jwt)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("", "must have 'jwks' or 'public_keys'"),
        ('jwks = "jwks.json"\nissuers = "x"', "Did you mean 'issuer'"),
        ('jwks = "jwks.json"\n[namespaces.contoso.jwt.roles]\nx = ["Write"]', "'Write' is not known"),
        ('jwks = ["jwks.json"]', "must be a text"),
    ],
)
def test_mistakes_in_the_table(tmp_path: Path, more: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load_config(written(tmp_path, more))


@pytest.mark.parametrize(("name", "problem"), [("none.json", "cannot be read"), ("key.pem", "not a JWKS document")])
def test_a_wrong_file_is_named_at_the_start(tmp_path: Path, name: str, problem: str) -> None:
    config = load_config(written(tmp_path, f'jwks = "{name}"\n'))
    with pytest.raises(ConfigError, match=problem) as caught:
        Broker(config.namespaces, dev=False, data=tmp_path / "data").start()
    assert name in str(caught.value)


# --- signing in to the console ----------------------------------------------------------------------------------------

SIGN_IN = """jwks = "jwks.json"
[namespaces.contoso.jwt.sign_in]
client_id = "console"
authorization_endpoint = "https://login.example/authorize"
token_endpoint = "https://login.example/token"
"""


def test_signing_in_has_defaults(tmp_path: Path) -> None:
    jwt = load_config(written(tmp_path, SIGN_IN)).namespaces[0].jwt
    assert jwt is not None
    assert jwt.sign_in == SignInConfig(
        client_id="console",
        authorization_endpoint="https://login.example/authorize",
        token_endpoint="https://login.example/token",
        client_secret_file=None,
        scope="openid",
    )


def test_everything_about_signing_in(tmp_path: Path) -> None:
    more = SIGN_IN + 'client_secret_file = "secret"\nscope = "openid api://bus/console"\n'
    jwt = load_config(written(tmp_path, more)).namespaces[0].jwt
    assert jwt is not None
    assert jwt.sign_in is not None
    assert jwt.sign_in.client_secret_file == tmp_path / "secret"
    assert jwt.sign_in.scope == "openid api://bus/console"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("client_id =", "client_ident =", "unknown key 'client_ident'. Did you mean 'client_id'?"),
        ("client_id =", 'client_secret = "planted"\nclient_id =', "Did you mean 'client_secret_file'?"),
        ("client_id =", 'client_secret_file = ["planted"]\nclient_id =', "must be a text, not a list"),
        ('client_id = "console"', "", "sign_in has no 'client_id'"),
        ('"console"', '"a b"', "'client_id' must have 1 to 256 visible ASCII characters"),
        ('"console"', f'"{"x" * 257}"', "'client_id' must have 1 to 256 visible ASCII characters"),
        ('"console"', "5", "client_id must be a text"),
        ("token_endpoint =", "token_endpont =", "Did you mean 'token_endpoint'"),
        ("https://login.example/token", "http://login.example/token", "'token_endpoint' must start with https://"),
        ("https://login.example/authorize", "http://10.0.0.1/x", "'authorization_endpoint' must start with https://"),
        ("https://login.example/token", "login.example/token", "'token_endpoint' is not an address"),
        ("https://login.example/token", "ftp://login.example/token", "'token_endpoint' is not an address"),
        ("https://login.example/token", "https://login.example:x/token", "'token_endpoint' is not an address"),
        ("https://login.example/token", "https://login.example/a b", "'token_endpoint' is not an address"),
        ("https://login.example/token", "https://", "'token_endpoint' is not an address"),
        ("https://login.example/token", "https://ann:x@login.example/", "neither a user nor a fragment"),
        ("https://login.example/authorize", "https://login.example/#x", "neither a user nor a fragment"),
        ("example/authorize", "example/authorize?state=x", "must not have the parameter 'state'"),
        ("client_id =", 'scope = "profile"\nclient_id =', "'scope' must contain 'openid'"),
        ("client_id =", 'scope = "openid  profile"\nclient_id =', "'scope' must be names separated by single spaces"),
    ],
)
def test_mistakes_about_signing_in(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in SIGN_IN
    with pytest.raises(ConfigError) as caught:
        load_config(written(tmp_path, SIGN_IN.replace(old, new)))
    assert problem in str(caught.value)
    assert "namespaces.contoso.jwt.sign_in" in str(caught.value)
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize(
    "address", ["http://localhost:8080", "http://127.0.0.1", "http://[::1]:80", "https://x.example:8443"]
)
def test_plain_http_is_for_this_machine(tmp_path: Path, address: str) -> None:
    more = SIGN_IN.replace("https://login.example", address)
    assert load_config(written(tmp_path, more)).namespaces[0].jwt


def test_a_client_id_of_the_longest_length(tmp_path: Path) -> None:
    more = SIGN_IN.replace('"console"', f'"{"x" * CLIENT_ID_CHARS_MAX}"')
    assert load_config(written(tmp_path, more)).namespaces[0].jwt


def test_a_wrong_file_of_the_secret_is_named_at_the_start(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, SIGN_IN + 'client_secret_file = "none"\n'))
    with pytest.raises(ConfigError, match=r"client's secret .*none cannot be read"):
        Broker(config.namespaces, dev=False, data=tmp_path / "data").start()
