"""Policies change in a running broker: rotated keys take effect at once, survive a restart, and have one home."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker.http.admin.desk import Desk
from tests.broker.peer import Peer
from twinbus.auth.connection_string import ConnectionString
from twinbus.auth.policies import ALL_RIGHTS, ROOT_KEY_NAME, Policy, Right
from twinbus.auth.sas import sign
from twinbus.broker.configuration.config import KeylessPolicy, NamespaceConfig
from twinbus.broker.security.keys import KEYS_FILE
from twinbus.entities.settings import QueueSettings
from twinbus.limits import POLICIES_PER_SCOPE_MAX
from twinbus.testing import Broker

NODE = "$management"


def namespace() -> NamespaceConfig:
    return NamespaceConfig(
        "contoso",
        queues=[QueueSettings(path="Orders"), QueueSettings(path="other")],
        policies=[Policy("given", ALL_RIGHTS, "key-of-the-file")],
        keyless=[KeylessPolicy("shop", frozenset({Right.SEND}), "Orders")],
    )


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker([namespace()], dev=False, data=tmp_path / "data") as broker:
        yield broker


def put(broker: Broker, name: str, key: str, path: str = "") -> int:
    with Peer(broker) as peer:
        return peer.put_token(
            f"sb://localhost/{path}", sign(f"sb://localhost/{path}", name, key, int(time.time()) + 600)
        )


def rooted(broker: Broker) -> Peer:
    keys = ConnectionString.parse(broker.connection_string())
    peer = Peer(broker)
    token = sign("sb://localhost/", keys.key_name or "", keys.key or "", int(time.time()) + 600)
    assert peer.put_token("sb://localhost/", token) == 202
    return peer


def asked(broker: Broker, operation: str, **body: Any) -> Any:
    with rooted(broker) as peer:
        status, condition, answer = peer.call(NODE, f"twinbus:{operation}", body)
        assert status == 200, condition
        return answer


def refused(broker: Broker, operation: str, **body: Any) -> tuple[int, str]:
    with rooted(broker) as peer:
        response = peer.request(NODE, f"twinbus:{operation}", body)
        properties = response.application_properties or {}
        return int(properties["statusCode"]), str(properties["statusDescription"])


def test_the_root_key_is_rotated_without_an_outage(broker: Broker) -> None:
    first = ConnectionString.parse(broker.connection_string())
    asked(broker, "rotate-key", name=ROOT_KEY_NAME, which="secondary")
    policy = asked(broker, "list-policies", name=ROOT_KEY_NAME, entity="", show_keys=True)["policies"][0]
    assert policy["primary_key"] == first.key
    assert put(broker, ROOT_KEY_NAME, policy["secondary_key"]) == 202
    with rooted(broker) as lasting:
        rotated = asked(broker, "rotate-key", name=ROOT_KEY_NAME, which="primary", show_keys=True)["policy"]
        assert put(broker, ROOT_KEY_NAME, first.key or "") == 401
        assert put(broker, ROOT_KEY_NAME, policy["secondary_key"]) == 202
        # The connection string works after the rotation, and what was granted before continues.
        assert ConnectionString.parse(broker.connection_string()).key == rotated["primary_key"]
        lasting.sender("orders")
    swapped = asked(broker, "rotate-key", name=ROOT_KEY_NAME, which="swap", show_keys=True)["policy"]
    assert (swapped["primary_key"], swapped["secondary_key"]) == (policy["secondary_key"], rotated["primary_key"])
    broker.restart()
    assert ConnectionString.parse(broker.connection_string()).key == swapped["primary_key"]
    assert put(broker, ROOT_KEY_NAME, rotated["primary_key"]) == 202
    assert put(broker, ROOT_KEY_NAME, first.key or "") == 401
    kept = (broker.data / KEYS_FILE).read_text()
    assert first.key not in kept
    assert swapped["primary_key"] in kept
    assert (broker.data / KEYS_FILE).stat().st_mode & 0o777 == 0o600


def test_a_policy_is_made_changed_and_deleted_for_good(broker: Broker) -> None:
    made = asked(broker, "set-policy", name="Reader", rights=["Listen"], new=True, show_keys=True)["policy"]
    assert made["rights"] == ["Listen"]
    assert made["primary_key"] != made["secondary_key"]
    assert put(broker, "reader", made["primary_key"], "orders") == 202
    broker.restart()
    assert put(broker, "reader", made["secondary_key"], "orders") == 202
    changed = asked(broker, "set-policy", name="reader", rights=["send"], show_keys=True)["policy"]
    assert (changed["name"], changed["rights"]) == ("Reader", ["Send"])
    assert changed["primary_key"] == made["primary_key"]
    own = asked(broker, "set-policy", name="reader", rights=["Send"], primary_key="one of mine", show_keys=True)
    assert own["policy"]["primary_key"] == "one of mine"
    assert put(broker, "reader", made["primary_key"], "orders") == 401
    asked(broker, "delete-policy", name="READER")
    assert put(broker, "reader", made["secondary_key"], "orders") == 401
    broker.restart()
    assert put(broker, "reader", made["secondary_key"], "orders") == 401


def test_an_entitys_policy_ends_with_it(broker: Broker) -> None:
    made = asked(broker, "set-policy", name="temp", entity="ORDERS", rights=["Send"], show_keys=True)["policy"]
    assert made["entity"] == "orders"
    assert put(broker, "temp", made["primary_key"], "orders") == 202
    assert put(broker, "temp", made["primary_key"], "other") == 401
    rotated = asked(broker, "rotate-key", name="temp", entity="orders", which="primary", show_keys=True)["policy"]
    assert put(broker, "temp", made["primary_key"], "orders") == 401
    assert put(broker, "temp", rotated["primary_key"], "orders") == 202
    with rooted(broker) as peer:
        assert peer.call(NODE, "twinbus:delete-queue", {"name": "orders"})[0] == 200
        assert peer.call(NODE, "twinbus:create-queue", {"path": "orders"})[0] == 200
    assert put(broker, "temp", rotated["primary_key"], "orders") == 401


def test_keys_of_a_policy_that_the_file_names_without_them(broker: Broker) -> None:
    (before,) = asked(broker, "list-policies", entity="orders", show_keys=True)["policies"]
    assert put(broker, "shop", before["primary_key"], "orders") == 202
    after = asked(broker, "rotate-key", name="shop", entity="orders", which="primary", show_keys=True)["policy"]
    broker.restart()
    assert put(broker, "shop", before["primary_key"], "orders") == 401
    assert put(broker, "shop", after["primary_key"], "orders") == 202
    keys = json.loads((broker.data / KEYS_FILE).read_text())["namespaces"]["contoso"]
    assert keys["orders shop"] == [after["primary_key"], after["secondary_key"]]


def test_keys_are_shown_only_when_asked_for(broker: Broker) -> None:
    listed = asked(broker, "list-policies")["policies"]
    assert [(policy["entity"], policy["name"]) for policy in listed] == [
        ("", "given"),
        ("", ROOT_KEY_NAME),
        ("orders", "shop"),
    ]
    assert not any("primary_key" in policy or "secondary_key" in policy for policy in listed)
    assert "primary_key" not in asked(broker, "rotate-key", name="shop", entity="orders", which="primary")["policy"]


def test_what_the_configuration_says_is_changed_there(broker: Broker) -> None:
    for operation, body in (
        ("rotate-key", {"name": "given", "which": "primary"}),
        ("set-policy", {"name": "given", "rights": ["Listen"]}),
        ("set-policy", {"name": ROOT_KEY_NAME, "rights": ["Listen"]}),
        ("delete-policy", {"name": "given"}),
        ("delete-policy", {"name": ROOT_KEY_NAME}),
        ("delete-policy", {"name": "shop", "entity": "orders"}),
    ):
        status, text = refused(broker, operation, **body)
        assert status == 400, operation
        assert "in the configuration" in text
    assert put(broker, "given", "key-of-the-file") == 202


@pytest.mark.parametrize(
    ("operation", "body", "status", "problem"),
    [
        ("rotate-key", {"name": "nobody", "which": "primary"}, 404, "There is no policy 'nobody'"),
        ("rotate-key", {"name": ROOT_KEY_NAME, "which": "both"}, 400, "primary, secondary or swap"),
        ("rotate-key", {"name": ROOT_KEY_NAME, "which": "primary", "entity": "nowhere"}, 404, "could not be found"),
        ("rotate-key", {"which": "primary"}, 400, "needs 'name'"),
        ("delete-policy", {"name": "nobody"}, 404, "There is no policy"),
        ("set-policy", {"name": "x"}, 400, "needs 'rights'"),
        ("set-policy", {"name": "x", "rights": ["Write"]}, 400, "'Write' is not known"),
        ("set-policy", {"name": "x", "rights": []}, 400, "has no right"),
        ("set-policy", {"name": "x", "rights": ["Send"], "primary_key": "k" * 257}, 400, "longer than 256"),
        ("set-policy", {"name": "x" * 257, "rights": ["Send"]}, 400, "1 to 256 printable"),
        ("set-policy", {"name": "x", "rights": ["Send"], "entity": "orders/$DeadLetterQueue"}, 400, "Policies are for"),
        ("set-policy", {"name": "given", "rights": ["Manage"], "new": True}, 409, "exists already"),
    ],
)
def test_mistakes(broker: Broker, operation: str, body: dict[str, Any], status: int, problem: str) -> None:
    found, text = refused(broker, operation, **body)
    assert found == status
    assert problem in text


def test_a_scope_takes_twelve(broker: Broker) -> None:
    for number in range(POLICIES_PER_SCOPE_MAX - 2):
        asked(broker, "set-policy", name=f"policy-{number}", rights=["Send"])
    assert "is reached" in refused(broker, "set-policy", name="one-more", rights=["Send"])[1]
    asked(broker, "set-policy", name="on-an-entity", entity="orders", rights=["Send"])


def test_policies_need_manage(broker: Broker) -> None:
    made = asked(broker, "set-policy", name="weak", rights=["Send", "Listen"], show_keys=True)["policy"]
    with Peer(broker) as peer:
        token = sign("sb://localhost/", "weak", made["primary_key"], int(time.time()) + 600)
        assert peer.put_token("sb://localhost/", token) == 202
        for operation in ("list-policies", "set-policy", "rotate-key", "delete-policy", "export"):
            body = {"name": "weak", "which": "primary", "rights": ["Manage"]}
            assert peer.call(NODE, f"twinbus:{operation}", body)[0] == 401


def test_a_file_that_cannot_be_written_changes_nothing(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    before = ConnectionString.parse(broker.connection_string())
    monkeypatch.setattr("twinbus.broker.security.keys.write_private", broken)
    assert refused(broker, "rotate-key", name=ROOT_KEY_NAME, which="primary")[0] == 500
    monkeypatch.undo()
    assert ConnectionString.parse(broker.connection_string()).key == before.key
    assert put(broker, ROOT_KEY_NAME, before.key or "") == 202


def test_the_admin_api_keeps_them_in_the_same_place(broker: Broker) -> None:
    desk = Desk(broker)
    root = ConnectionString.parse(broker.connection_string())
    desk.sign_in(root.key_name or "", root.key or "")
    entry = desk.get("/orders").body.decode()
    (shop,) = asked(broker, "list-policies", entity="orders", show_keys=True)["policies"]
    assert shop["primary_key"] in entry
    # A new key is fine for a policy whose keys are stored with the data; removing the policy is not.
    changed = entry.replace(shop["primary_key"], "a new key by the admin API")
    assert desk.put("/orders", changed, {"If-Match": "*"}).status == 200
    assert put(broker, "shop", "a new key by the admin API", "orders") == 202
    at, end = changed.index("<AuthorizationRule "), changed.index("</AuthorizationRule>") + len("</AuthorizationRule>")
    response = desk.put("/orders", changed[:at] + changed[end:], {"If-Match": "*"})
    assert response.status == 400
    assert "stands in the configuration" in response.body.decode()
    broker.restart()
    assert put(broker, "shop", "a new key by the admin API", "orders") == 202


def test_in_development_there_is_nothing_to_rotate() -> None:
    with Broker(["contoso"], dev=True) as broker, Peer(broker) as peer:
        response = peer.request(NODE, "twinbus:rotate-key", {"name": ROOT_KEY_NAME, "which": "primary"})
        assert "any key is good" in str((response.application_properties or {})["statusDescription"])
        assert not (broker.data / KEYS_FILE).exists()
