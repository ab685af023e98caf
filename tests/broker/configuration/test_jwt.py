"""JSON web tokens by configuration: read from TOML and key files, and accepted on every path."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.auth.jwt_issuer import ISSUER, Issuer
from tests.broker.http.admin.desk import Desk
from tests.broker.peer import Peer
from twinbus.auth.policies import Right
from twinbus.broker.configuration.file import load_config
from twinbus.broker.security.jwt_keys import jwt_verifier
from twinbus.errors import ConfigError
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
