"""Who gets in: keys, cookies, tokens, origins, host names; and the security headers of every answer."""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import Iterator
from http.client import HTTPSConnection

import pytest

from tests.broker.http.console.window import Window
from twinbus.auth.policies import Policy, Right
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.broker.connections import strangers
from twinbus.clock import SteppedClock
from twinbus.entities.settings import QueueSettings
from twinbus.limits import (
    CONSOLE_LOGIN_IDLE_MS,
    CONSOLE_LOGIN_MS_MAX,
    HTTP_BODY_BYTES_MAX,
    WRONG_KEY_MEMORY_MS,
)
from twinbus.testing import Broker

KEY = "bm90LWEtcmVhbC1rZXktb2Ytb3Vycw=="
WRONG = "cGxhbnRlZC13cm9uZy1rZXktb2YtdGhlLXRlc3Q="
ROOT = "RootManageSharedAccessKey"
START_MS = 1_800_000_000_000


def configured() -> NamespaceConfig:
    policies = [
        Policy(ROOT, frozenset({Right.MANAGE}), KEY),
        Policy("look", frozenset({Right.LISTEN}), KEY + "L"),
        Policy("mail", frozenset({Right.SEND}), KEY + "S"),
        Policy("one", frozenset({Right.MANAGE}), KEY + "O", scope="orders"),
    ]
    queues = [QueueSettings(path="orders"), QueueSettings(path="secret")]
    return NamespaceConfig("contoso", queues=queues, policies=policies)


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock(START_MS)


@pytest.fixture
def broker(clock: SteppedClock) -> Iterator[Broker]:
    with Broker([configured(), NamespaceConfig("fabrikam")], dev=False, clock=clock, sync=False) as broker:
        yield broker


def test_a_key_opens_its_namespace_and_no_other(broker: Broker) -> None:
    window = Window(broker, "contoso")
    greeting = window.greet()
    assert (greeting["dev"], greeting["namespaces"], "token" in greeting) == (False, ["contoso"], False)
    assert window.get("entities").status == 401
    assert window.post("login", namespace="fabrikam", policy=ROOT, key=KEY).status == 404, "not told of before a login"
    assert window.login(ROOT, KEY).status == 200
    assert [row["path"] for row in window.get("entities").json["rows"]] == ["orders", "secret"]
    found = {each["name"]: each for each in window.get("namespaces").json["namespaces"]}
    assert found["contoso"]["queues"] == 2
    assert (found["fabrikam"]["open"], "queues" in found["fabrikam"]) == (False, False)
    assert window.get("entities", namespace="fabrikam").status == 401
    assert window.get("entities", namespace="nowhere").status == 404


def test_a_second_key_opens_a_second_namespace_in_the_same_window(broker: Broker) -> None:
    window = Window(broker, "contoso")
    window.login(ROOT, KEY)
    cookie, token = window.cookie, window.token
    given = broker.connection_string("fabrikam")
    answer = window.post("login", namespace="fabrikam", connection_string=given)
    assert answer.status == 200
    assert window.cookie != cookie, "a new cookie at each login"
    assert answer.json["token"] != token
    assert window.get("entities", namespace="fabrikam").status == 200
    assert window.get("entities", namespace="contoso").status == 200
    other = Window(broker, "fabrikam")
    other.cookie = window.cookie
    assert other.get("entities").status == 200, "ports of one machine share their cookies"
    window.cookie = cookie
    assert window.get("entities").status == 401, "the old cookie is worth nothing"


def test_the_cookie_is_for_the_console_alone(broker: Broker) -> None:
    window = Window(broker, "contoso")
    given = window.login(ROOT, KEY).headers["Set-Cookie"]
    assert "HttpOnly" in given
    assert "SameSite=Strict" in given
    assert "Path=/console" in given
    assert f"Max-Age={CONSOLE_LOGIN_MS_MAX // 1000}" in given
    assert KEY not in given
    assert "Secure" not in given, "it came without TLS, on this machine"


def test_over_tls_the_cookie_stays_on_tls(broker: Broker) -> None:
    context = ssl.create_default_context(cafile=str(broker.ca_file))
    connection = HTTPSConnection("localhost", broker.endpoint("contoso").port, context=context, timeout=15)
    fields = json.dumps({"policy": ROOT, "key": KEY})
    connection.request("POST", "/console/$api/login", fields, {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200
    assert "; Secure" in (response.getheader("Set-Cookie") or "")
    connection.close()


@pytest.mark.parametrize(
    "fields",
    [
        {"policy": ROOT, "key": WRONG},
        {"policy": "nobody", "key": KEY},
        {"policy": "look", "key": KEY},
        {"connection_string": f"Endpoint=sb://localhost/;SharedAccessKeyName={ROOT};SharedAccessKey={WRONG}"},
    ],
)
def test_a_wrong_key_opens_nothing(broker: Broker, fields: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    window = Window(broker, "contoso")
    caplog.set_level(logging.DEBUG)
    answer = window.post("login", **fields)
    assert answer.status == 401
    assert "Set-Cookie" not in answer.headers
    assert "contoso refused 127.0.0.1: InvalidSignature" in caplog.text
    for secret in (KEY, WRONG):
        assert secret not in caplog.text
        assert secret not in answer.body.decode()
    assert window.get("entities").status == 401


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"policy": ROOT},
        {"policy": 1, "key": 2},
        {"connection_string": "Endpoint=sb://localhost/;SharedAccessSignature=SharedAccessSignature sr=x"},
        {"connection_string": "nonsense"},
        {"connection_string": ["x"]},
    ],
)
def test_what_is_no_login_is_told_so(broker: Broker, fields: dict[str, object]) -> None:
    assert Window(broker, "contoso").post("login", **fields).status == 400


def test_wrong_keys_are_slow_and_lock_nobody_out(
    broker: Broker, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strangers, "WRONG_KEY_PAUSE_MS", 1)
    window = Window(broker, "contoso")
    for _ in range(20):
        assert window.login(ROOT, "wrong").status == 401
    assert window.login(ROOT, KEY).status == 200, "nobody locks out whoever has the key"
    pause = broker.call(lambda server: server.hosts["contoso"].wrong_keys.pause_ms("127.0.0.1"), "contoso")
    assert pause == 21
    clock.step(ms=100 * WRONG_KEY_MEMORY_MS)
    pause = broker.call(lambda server: server.hosts["contoso"].wrong_keys.pause_ms("127.0.0.1"), "contoso")
    assert pause == 1


def test_right_keys_do_not_count_as_wrong_ones(broker: Broker) -> None:
    for _ in range(12):
        assert Window(broker, "contoso").login(ROOT, KEY).status == 200


def test_a_login_ends_when_it_is_idle(broker: Broker, clock: SteppedClock) -> None:
    window = Window(broker, "contoso")
    window.login(ROOT, KEY)
    for _ in range(3):
        clock.step(ms=CONSOLE_LOGIN_IDLE_MS - 1)
        assert window.get("entities").status == 200
    for seconds in (86_400, -2 * 86_400):
        clock.jump(seconds=seconds)
        broker.call(lambda server: server.step(), "contoso")
        assert window.get("entities").status == 200, "the clock was set, no time has passed"
    clock.step(ms=CONSOLE_LOGIN_IDLE_MS)
    assert window.get("entities").status == 401


def test_a_login_ends_however_busy(broker: Broker, clock: SteppedClock) -> None:
    window = Window(broker, "contoso")
    window.login(ROOT, KEY)
    for _ in range(CONSOLE_LOGIN_MS_MAX // 1_500_000):
        clock.step(ms=1_500_000)
        assert window.get("entities").status == 200
    clock.step(ms=1_500_000)
    assert window.get("entities").status == 401


def test_logging_out_ends_it_at_once(broker: Broker) -> None:
    window = Window(broker, "contoso")
    window.login(ROOT, KEY)
    cookie = window.cookie
    assert window.post("logout").status == 200
    window.cookie = cookie
    assert window.get("entities").status == 401


def test_a_rotated_key_ends_what_it_opened(broker: Broker) -> None:
    window = Window(broker, "contoso")
    window.login("look", KEY + "L")
    assert window.get("entities").status == 200

    def rotate(server: object) -> None:
        policies = server.hosts["contoso"].policies  # type: ignore[attr-defined]
        kept = [each for each in policies.scoped("") if each.name != "look"]
        policies.replace_scope("", [*kept, Policy("look", frozenset({Right.LISTEN}), "another-key")])

    broker.call(rotate, "contoso")
    assert window.get("entities").status == 401


# --- rights -----------------------------------------------------------------------------------------------------------


def test_listen_looks_and_changes_nothing(broker: Broker) -> None:
    window = Window(broker, "contoso")
    window.login("look", KEY + "L")
    assert window.get("messages", entity="orders").status == 200
    assert window.get("backlog").status == 200
    assert window.get("ledger").status == 200
    for command, fields in (
        ("send", {"entity": "orders", "body": "x"}),
        ("create", {"kind": "queue", "name": "new"}),
        ("delete", {"entity": "orders"}),
        ("purge", {"entity": "orders"}),
        ("resubmit", {"entity": "orders", "part": "dead"}),
    ):
        answer = window.post(command, **fields)
        assert answer.status == 403, command
        assert "does not have the right" in answer.error


def test_send_sends_and_sees_no_numbers(broker: Broker) -> None:
    window = Window(broker, "contoso")
    window.login("mail", KEY + "S")
    (orders, _) = window.get("entities").json["rows"]
    assert (orders["path"], orders["rights"], "active" in orders) == ("orders", ["Send"], False)
    assert "settings" not in window.get("entity", entity="orders").json
    assert window.get("messages", entity="orders").status == 403
    assert window.get("message", entity="orders", seq=1).status == 403
    assert window.get("body", entity="orders", seq=1).status == 403
    assert window.get("ledger").status == 403
    assert window.get("events").status == 403
    assert window.post("send", entity="orders", body="x").status == 200
    assert window.post("purge", entity="orders").status == 403


def test_an_entitys_key_opens_that_entity(broker: Broker) -> None:
    window = Window(broker, "contoso")
    window.login("one", KEY + "O")
    assert [row["path"] for row in window.get("entities").json["rows"]] == ["orders"]
    assert window.post("send", entity="orders", body="x").status == 200
    assert window.post("purge", entity="orders").json["purged"] == 1
    for entity in ("secret", "nowhere"):
        assert window.get("entity", entity=entity).status == 403, "it does not even tell whether there is one"
        assert window.get("messages", entity=entity).status == 403
        assert window.post("send", entity=entity, body="x").status == 403
    assert window.post("create", kind="queue", name="other").status == 403
    assert window.post("create", kind="queue", name="orders/2024").status == 200
    assert window.get("ledger").status == 403


# --- forged requests --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dev() -> Iterator[Broker]:
    with Broker(queues=["orders", "console"], sync=False) as broker:
        yield broker


def test_a_command_needs_the_pages_token(dev: Broker) -> None:
    window = Window(dev)
    window.greet()
    token = window.token
    for wrong in ("", "x", token[:-1] + "ä", Window(dev).greet()["token"]):
        window.token = wrong.encode().decode("latin-1")
        assert window.post("send", entity="orders", body="x").status == 403
    window.token = token
    assert window.post("send", entity="orders", body="x").status == 200


def test_a_command_of_another_site_is_refused(dev: Broker) -> None:
    window = Window(dev)
    window.greet()
    body = '{"entity":"orders","body":"x"}'
    kind = {"Content-Type": "application/json"}
    path = "/console/$api/send"
    assert window.request("POST", path, body, {**kind, "Origin": "http://localhost:1"}).status == 403
    assert window.request("POST", path, body, {**kind, "Origin": "null"}).status == 403
    assert window.request("POST", path, body, {**kind, "Sec-Fetch-Site": "same-site"}).status == 403
    assert window.request("POST", path, body, {**kind, "Origin": f"http://{window.site}"}).status == 200
    assert window.request("POST", path, body, {"Content-Type": "text/plain"}).status == 415, "a form of another site"
    for wrong in ("", "[]", "{", "[" * 100_000):
        assert window.request("POST", path, wrong, kind).status == 400


@pytest.mark.parametrize("name", ["evil.example", "localhost.evil.example", "192.0.2.1", ""])
def test_in_development_the_page_has_a_name_of_this_machine(dev: Broker, name: str) -> None:
    """A foreign name that resolves here would make their page ours."""
    window = Window(dev, host=name)
    for path in ("/console", "/console/$api/login", "/console/$assets/console.js"):
        assert window.request("GET", path).status in (400, 403)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]", "contoso.localhost"])
def test_names_of_this_machine_are_good(dev: Broker, name: str) -> None:
    assert Window(dev, host=name).greet()["token"]


def test_every_answer_keeps_the_browser_strict(dev: Broker) -> None:
    window = Window(dev)
    window.greet()
    for path in ("/console", "/console/", "/console/$assets/console.css", "/console/$api/entities", "/console/$api/no"):
        headers = window.request("GET", path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy, "nothing from elsewhere"
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] in ("no-store", "no-cache")
        assert "Access-Control-Allow-Origin" not in headers


def test_a_body_is_bounded(dev: Broker) -> None:
    window = Window(dev)
    window.greet()
    headers = {"Content-Type": "application/json", "Content-Length": str(HTTP_BODY_BYTES_MAX + 1)}
    assert window.request("POST", "/console/$api/send", None, headers).status == 413


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_and_its_files(dev: Broker) -> None:
    window = Window(dev)
    page = window.request("GET", "/console")
    assert page.status == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    text = page.body.decode()
    assert "http://" not in text
    assert "https://" not in text
    assert "style=" not in text
    script = window.request("GET", "/console/$assets/console.js")
    assert script.headers["Content-Type"].startswith("text/javascript")
    known = window.request("GET", "/console/$assets/console.js", headers={"If-None-Match": script.headers["ETag"]})
    assert (known.status, known.body) == (304, b"")
    for name in ("nothing.js", "../console.py", "..%2fconsole.py", "", "%2e%2e/answers.py"):
        assert window.request("GET", f"/console/$assets/{name}").status in (400, 404)
    assert window.request("DELETE", "/console/$assets/console.js").status == 405
    assert window.request("PUT", "/console/$api/entities").status == 405


def test_a_queue_called_console_is_still_reached(dev: Broker) -> None:
    window = Window(dev)
    assert window.request("POST", "/console/messages", "hello").status == 201
    answer = window.request("DELETE", "/console/messages/head?timeout=5")
    assert (answer.status, answer.body) == (200, b"hello")
    entry = window.request("GET", "/console?api-version=2021-05")
    assert entry.headers["Content-Type"].startswith("application/atom+xml")
