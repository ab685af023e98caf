"""Who may administer: sufficient and insufficient tokens, and the policies that clients put on entities."""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Iterator

import pytest

from tests.broker.http.admin.desk import HOST, UPDATE, Desk, missing, queue_body, queue_titles, refused
from twinbus.auth.policies import ALL_RIGHTS, Policy, Right
from twinbus.auth.sas import sign
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.clock import SteppedClock
from twinbus.entities.settings import QueueSettings
from twinbus.testing import Broker

SECRET = base64.b64encode(b"planted-admin-secret-planted-sec").decode()
SECOND = base64.b64encode(b"planted-second-secret-planted-se").decode()


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock(int(time.time() * 1000))


@pytest.fixture
def broker(clock: SteppedClock) -> Iterator[Broker]:
    policies = [
        Policy("boss", ALL_RIGHTS, SECRET, SECOND),
        Policy("worker", frozenset({Right.SEND, Right.LISTEN}), SECRET),
        Policy("sender", frozenset({Right.SEND}), SECRET),
        Policy("owner", ALL_RIGHTS, SECRET, scope="q"),
    ]
    queues = [QueueSettings(path="q"), QueueSettings(path="qq"), QueueSettings(path="other")]
    namespace = NamespaceConfig("contoso", queues=queues, policies=policies)
    with Broker([namespace], dev=False, clock=clock, sync=False) as broker:
        yield broker


@pytest.fixture
def desk(broker: Broker) -> Desk:
    return Desk(broker)


def token(clock: SteppedClock, resource: str, name: str = "boss", key: str = SECRET, lives_s: int = 300) -> str:
    return sign(resource, name, key, clock.now_ms() // 1000 + lives_s)


@pytest.mark.parametrize(
    "resource",
    [
        f"https://{HOST}",
        f"sb://{HOST}/",
        HOST,
        f"https://{HOST}/q",
        f"https://{HOST}/q?api-version=2021-05",
        "https://OTHER.host/Q",
    ],
)
def test_every_form_of_resource(desk: Desk, clock: SteppedClock, resource: str) -> None:
    for header in (token(clock, resource), f"Bearer {token(clock, resource)}", token(clock, resource, key=SECOND)):
        desk.headers["Authorization"] = header
        assert desk.get("/q").status == 200


def test_a_token_is_honoured_for_a_minute_more(desk: Desk, clock: SteppedClock) -> None:
    desk.headers["Authorization"] = token(clock, f"https://{HOST}", lives_s=-59)
    assert desk.get("/q").status == 200
    desk.headers["Authorization"] = token(clock, f"https://{HOST}", lives_s=-61)
    refused(desk.get("/q"), 401, "ExpiredToken")


def test_tokens_that_do_not_get_in(desk: Desk, clock: SteppedClock) -> None:
    namespace = f"https://{HOST}"
    good = token(clock, namespace)
    for header, words in [
        ("", "Missing"),
        ("Bearer", "Malformed"),
        ("Bearer ", "Malformed"),
        ("nonsense", "Malformed"),
        ("SharedAccessSignature ", "Malformed"),
        ("SharedAccessSignature sr=x", "Malformed"),
        ("Bearer aa.bb.cc", "InvalidIssuer"),
        ("Basic dXNlcjpwYXNz", "Malformed"),
        (token(clock, namespace, "boss", "wrong"), "InvalidSignature"),
        (token(clock, namespace, "nobody"), "InvalidSignature"),
        (good[:-1] + ("a" if good[-1] != "a" else "b"), "InvalidSignature"),
        (token(clock, f"{namespace}/other"), "InvalidAudience"),
        (token(clock, f"{namespace}/qq"), "InvalidAudience"),
        (token(clock, namespace, "worker"), "Manage,Entity"),
        (token(clock, namespace, "owner"), "InvalidSignature"),
        ("x" * 100_000, "Malformed"),
    ]:
        desk.headers["Authorization"] = header
        for method, data in (("GET", ""), ("PUT", queue_body()), ("DELETE", "")):
            detail = refused(desk.request(method, "/q", data), 401)
            assert words in detail or (words == "Malformed" and "Missing" in detail), (header, detail)
    desk.headers["Authorization"] = good
    assert queue_titles(desk.get("/$Resources/queues")) == ["other", "q", "qq"]


def test_rights_come_before_everything_else(desk: Desk) -> None:
    """Without a token nobody learns what exists, or even what a request must look like."""
    for method, path, data in [
        ("GET", "/none", ""),
        ("PUT", "/q", "not xml"),
        ("POST", "/q", ""),
        ("GET", "/$Resources/queues", ""),
        ("GET", "/$namespaceinfo", ""),
    ]:
        assert refused(desk.request(method, path, data), 401)
    assert refused(desk.get("/q", **{"api-version": "none"}), 401)


def test_the_list_of_what_is_public_is_empty_and_for_everybody(desk: Desk) -> None:
    answer = desk.get("/")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/atom+xml;type=feed;charset=utf-8")
    assert b"<entry" not in answer.body


@pytest.mark.parametrize("path", ["/q", "/$Resources/queues", "/$Resources/topics", "/$namespaceinfo"])
def test_who_may_not_manage_is_told_as_the_service_tells(desk: Desk, clock: SteppedClock, path: str) -> None:
    desk.headers["Authorization"] = token(clock, f"https://{HOST}", "worker")
    answer = desk.get(path)
    assert answer.status == 401
    assert b"<Detail>Manage,EntityRead claims required for this operation." in answer.body
    # Who may receive is told what does not exist, as by the service.
    missing(desk.get("/none"))


def test_who_may_only_send_does_not_learn_what_exists(desk: Desk, clock: SteppedClock) -> None:
    desk.headers["Authorization"] = token(clock, f"https://{HOST}", "sender")
    there, absent = desk.get("/q"), desk.get("/none")
    assert refused(there, 401).partition(" TrackingId")[0] == refused(absent, 401).partition(" TrackingId")[0]
    assert set(there.headers) == set(absent.headers)


def test_each_action_has_its_claims(desk: Desk, clock: SteppedClock) -> None:
    desk.headers["Authorization"] = token(clock, f"https://{HOST}", "worker")
    write, remove = "Authorization failed for specified action: Manage,EntityWrite.", "Manage,EntityDelete."
    refused(desk.put("/new", queue_body()), 401, write)
    refused(desk.put("/none", queue_body(), UPDATE), 401, write)
    refused(desk.request("DELETE", "/q"), 401, remove)
    for method, path, operation in [
        ("GET", "/t/subscriptions/s", "GetSubscription"),
        ("GET", "/t/subscriptions", "EnumerateSubscriptions"),
        ("PUT", "/t/subscriptions/s", "CreateOrUpdateSubscription"),
        ("DELETE", "/t/subscriptions/s", "DeleteSubscription"),
        ("GET", "/t/subscriptions/s/rules", "EnumerateRules"),
        ("PUT", "/t/subscriptions/s/rules/r", "CreateOrUpdateRule"),
    ]:
        answer = desk.request(method, path)
        text = f"SubCode=40100: Unauthorized : Unauthorized access for '{operation}' operation on endpoint "
        refused(answer, 401, text + f"'sb://{HOST}{path}'")
        # The Go client shows the status line.
        assert (answer.reason or "").startswith(text)


def test_rules_are_shown_without_times(desk: Desk, clock: SteppedClock) -> None:
    desk.headers["Authorization"] = token(clock, f"https://{HOST}")
    shown = desk.put("/made", queue_body(rules("k"))).body
    assert b"<KeyName>k</KeyName>" in shown
    assert b"CreatedTime" not in shown


def test_an_entitys_own_policy_reaches_as_far_as_the_entity(desk: Desk, clock: SteppedClock) -> None:
    desk.headers["Authorization"] = token(clock, f"https://{HOST}/q", "owner")
    assert desk.get("/q").status == 200
    assert desk.put("/q", queue_body("<LockDuration>PT30S</LockDuration>"), UPDATE).status == 200
    for path in ("/qq", "/other", "/$Resources/queues", "/$namespaceinfo"):
        refused(desk.get(path), 401)
    # Forwarding elsewhere means sending there, which needs a token of its own.
    forward = queue_body("<ForwardTo>sb://localhost/other</ForwardTo>")
    header = "ServiceBusSupplementaryAuthorization"
    refused(desk.put("/q", forward, UPDATE), 401, "'Send' claim", "other")
    refused(desk.put("/q", forward, UPDATE | {header: token(clock, f"https://{HOST}/q", "owner")}), 401)
    refused(desk.put("/q", forward, UPDATE | {header: token(clock, f"{HOST}/qq", "worker")}), 401)
    assert desk.put("/q", forward, UPDATE | {header: token(clock, f"{HOST}/other", "worker")}).status == 200
    # If it does not change later, it needs none.
    assert desk.put("/q", forward, UPDATE).status == 200


def test_forwarding_with_a_token_for_the_namespace(desk: Desk, clock: SteppedClock) -> None:
    forward = queue_body("<ForwardDeadLetteredMessagesTo>sb://localhost/other</ForwardDeadLetteredMessagesTo>")
    desk.headers["Authorization"] = token(clock, f"https://{HOST}")
    assert desk.put("/q", forward, UPDATE).status == 200
    # The JavaScript client signs the request's own address, and the target with a second token.
    desk.headers["Authorization"] = token(clock, f"https://{HOST}/qq?api-version=2021-05")
    refused(desk.put("/qq", forward, UPDATE), 401)
    second = {"ServiceBusDlqSupplementaryAuthorization": f"Bearer {token(clock, f'sb://{HOST}/other')}"}
    assert desk.put("/qq", forward, UPDATE | second).status == 200


def rules(*names: str, key: str = SECRET, rights: str = "Manage") -> str:
    each = "".join(
        '<AuthorizationRule x:type="SharedAccessAuthorizationRule"><ClaimType>SharedAccessKey</ClaimType>'
        f"<ClaimValue>None</ClaimValue><Rights><AccessRights>{rights}</AccessRights></Rights>"
        f"<KeyName>{name}</KeyName><PrimaryKey>{key}</PrimaryKey><SecondaryKey>{SECOND}</SecondaryKey>"
        "</AuthorizationRule>"
        for name in names
    )
    return f"<AuthorizationRules>{each}</AuthorizationRules>"


def test_policies_of_an_entity_count_at_once_and_stay(desk: Desk, broker: Broker, clock: SteppedClock) -> None:
    boss = token(clock, f"https://{HOST}")
    mine = token(clock, f"https://{HOST}/new", "mine", SECRET)
    desk.headers["Authorization"] = boss
    assert desk.put("/new", queue_body(rules("mine"))).status == 201
    for _ in range(2):
        desk.headers["Authorization"] = mine
        assert desk.get("/new").status == 200
        refused(desk.get("/q"), 401)
        broker.restart()
    # An update that does not mention policies keeps them; one that does replaces them.
    desk.headers["Authorization"] = boss
    assert desk.put("/new", queue_body(), UPDATE).status == 200
    assert desk.request("GET", "/new", headers={"Authorization": mine}).status == 200
    assert desk.put("/new", queue_body(rules("yours")), UPDATE).status == 200
    refused(desk.request("GET", "/new", headers={"Authorization": mine}), 401)
    broker.restart()
    refused(desk.request("GET", "/new", headers={"Authorization": mine}), 401)
    yours = token(clock, f"https://{HOST}/new", "yours", SECOND)
    assert desk.request("GET", "/new", headers={"Authorization": yours}).status == 200
    # After deleting and recreating the entity, the old keys do not work.
    assert desk.request("DELETE", "/new").status == 200
    assert desk.put("/new", queue_body()).status == 201
    refused(desk.request("GET", "/new", headers={"Authorization": yours}), 401)
    broker.restart()
    refused(desk.request("GET", "/new", headers={"Authorization": yours}), 401)


def test_an_idle_queue_takes_its_policies_along(desk: Desk, broker: Broker, clock: SteppedClock) -> None:
    desk.headers["Authorization"] = token(clock, f"https://{HOST}", lives_s=10_000)
    mine = {"Authorization": token(clock, f"https://{HOST}/new", "mine", lives_s=10_000)}
    desk.put("/new", queue_body(rules("mine") + "<AutoDeleteOnIdle>PT5M</AutoDeleteOnIdle>"))
    assert desk.request("GET", "/new", headers=mine).status == 200
    clock.step(ms=301_000)
    broker.call(lambda server: server.step())
    missing(desk.get("/new"))
    assert desk.put("/new", queue_body()).status == 201
    refused(desk.request("GET", "/new", headers=mine), 401)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (rules(*(f"k{number}" for number in range(13))), "12"),
        (rules("same", "SAME"), "exists already"),
        (rules("k", rights="Fly"), "Send, Listen, Manage"),
        (rules("k").replace("<KeyName>k</KeyName>", ""), "KeyName"),
        (rules("k").replace("<AccessRights>Manage</AccessRights>", ""), "no right"),
        (rules("k").replace("SharedAccessAuthorizationRule", "OtherRule"), "OtherRule"),
        (rules("k", key="x" * 257), "longer"),
    ],
)
def test_bad_policies_change_nothing(desk: Desk, clock: SteppedClock, given: str, words: str) -> None:
    desk.headers["Authorization"] = token(clock, f"https://{HOST}")
    before = desk.get("/other").headers["ETag"]
    refused(desk.put("/new", queue_body(given)), 400, words)
    missing(desk.get("/new"))
    refused(desk.put("/other", queue_body(given), UPDATE), 400, words)
    assert desk.get("/other").headers["ETag"] == before


def test_secrets_are_in_no_log_and_no_refusal(
    desk: Desk, clock: SteppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    good = token(clock, f"https://{HOST}")
    desk.headers["Authorization"] = good
    answers = [
        desk.put("/new", queue_body(rules("mine"))),
        desk.put("/new", queue_body(rules("mine", "mine")), UPDATE),
        desk.put("/new", queue_body(rules("mine", key=SECRET * 9)), UPDATE),
        desk.get("/new"),
    ]
    desk.headers["Authorization"] = good + "x"
    answers.append(desk.get("/new"))
    shown = [repr(answer) for answer in answers] + [answer.body.decode() for answer in answers if answer.status >= 400]
    for text in [*shown, caplog.text]:
        assert SECRET not in text
        assert SECOND not in text
        assert good.partition("sig=")[2][:20] not in text


def test_development_mode_believes_everybody() -> None:
    with Broker(sync=False) as broker:
        desk = Desk(broker)
        for header in ({}, {"Authorization": "Bearer aa.bb.cc"}, {"Authorization": "nonsense"}):
            assert desk.request("GET", "/$namespaceinfo", headers=header).status == 200
