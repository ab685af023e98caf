"""Signing in with an account of an identity provider: who gets in, and what a bad provider or a bad browser can do."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPSConnection
from http.cookies import Morsel, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from aiohttp import web

from tests.auth.jwt_issuer import ISSUER, Issuer
from tests.broker.http.console.provider import AUDIENCE, CLIENT, CODE, Provider, Reply, basic
from tests.broker.http.console.window import Answer
from twinbus.auth.policies import Policy, Right
from twinbus.broker.configuration.config import JwtConfig, NamespaceConfig, SignInConfig
from twinbus.broker.connections import strangers
from twinbus.broker.http.console import exchange
from twinbus.broker.http.console.exchange import SignInFailed, provider_text
from twinbus.broker.http.console.sign_in import SIGNED_IN_PATH, SignIns, origin_of
from twinbus.clock import SteppedClock
from twinbus.entities.settings import QueueSettings
from twinbus.errors import ServiceError
from twinbus.limits import (
    CONSOLE_EXCHANGE_BYTES_MAX,
    CONSOLE_EXCHANGES_MAX,
    CONSOLE_EXCHANGES_PER_ADDRESS_MAX,
    CONSOLE_LOGIN_IDLE_MS,
    CONSOLE_PROVIDER_TEXT_CHARS_MAX,
    CONSOLE_SIGN_IN_MS_MAX,
    CONSOLE_SIGN_INS_MAX,
    CONSOLE_SIGN_INS_PER_ADDRESS_MAX,
    TOKEN_BYTES_MAX,
    TOKEN_EXPIRY_GRACE_MS,
)
from twinbus.testing import Broker

START_MS = 1_800_000_000_000
START_S = START_MS // 1000
KEY = "bm90LWEtcmVhbC1rZXktb2Ytb3Vycw=="
ROOT = "RootManageSharedAccessKey"
SECRET = "planted secret / of the client+"
ROLES = {
    "operators": frozenset({Right.MANAGE, Right.SEND, Right.LISTEN}),
    "readers": frozenset({Right.LISTEN}),
}
API = "/console/$api/"


class Surfer:
    """A browser that keeps every cookie by path, and follows no redirect by itself."""

    def __init__(self, broker: Broker, namespace: str = "contoso") -> None:
        self.endpoint = broker.endpoint(namespace)
        self.site = f"localhost:{self.endpoint.port}"
        self.cookies: dict[str, Morsel[str]] = {}
        self.token = ""

    def knock(self, path: str, method: str = "GET", body: str | None = None, **headers: str) -> HTTPConnection:
        """Ask without waiting for the answer."""
        connection = HTTPConnection(self.endpoint.host, self.endpoint.port, timeout=15)
        plain = path.partition("?")[0]
        sent = "; ".join(
            f"{name}={each.value}" for name, each in self.cookies.items() if plain.startswith(each["path"])
        )
        found = {"Host": self.site, "X-Console-Token": self.token, **({"Cookie": sent} if sent else {}), **headers}
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in found.items()})
        return connection

    def get(self, path: str, method: str = "GET", body: str | None = None, **headers: str) -> Answer:
        connection = self.knock(path, method, body, **headers)
        try:
            response = connection.getresponse()
            answer = Answer(response.status, dict(response.getheaders()), response.read())
            for given in response.headers.get_all("Set-Cookie") or []:
                for name, cookie in SimpleCookie(given).items():
                    self.cookies[name] = cookie
                    if cookie["max-age"] == "0":
                        del self.cookies[name]
        finally:
            connection.close()
        return answer

    def view(self, name: str, query: str = "") -> Answer:
        return self.get(f"{API}{name}?{query}")

    def tell(self, command: str, **fields: Any) -> Answer:
        return self.get(API + command, "POST", json.dumps(fields), Content_Type="application/json")

    def greet(self) -> Any:
        found = self.view("login").json
        self.token = found.get("token", "")
        return found

    def begin(self, namespace: str = "contoso") -> str:
        """Press the button; returns where the browser is sent."""
        answer = self.view("sign-in", f"namespace={namespace}")
        assert answer.status == 303, answer
        return answer.headers["Location"]

    def sign_in(self, provider: Provider, **said: str) -> Answer:
        return self.get(provider.authorize(self.begin(), **said))

    def problem(self) -> str:
        """What the login page says."""
        found = self.greet()
        assert "token" not in found
        return str(found["problem"]["text"])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong sign-ins are answered slowly; not here."""
    monkeypatch.setattr(strangers, "WRONG_KEY_PAUSE_MS", 0)


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock(START_MS)


@pytest.fixture(scope="module")
def served() -> Iterator[Provider]:
    with Provider() as provider:
        yield provider


@pytest.fixture
def provider(served: Provider) -> Provider:
    served.asked.clear()
    served.authorizations.clear()
    served.reply, served.access, served.identity, served.now_s = None, {}, {}, START_S
    return served


def configured(provider: Provider, folder: Path, *, secret: bool = False, **more: Any) -> NamespaceConfig:
    (folder / "jwks.json").write_text(provider.issuer.jwks())
    (folder / "secret").write_text(f"{SECRET}\n")
    jwt = JwtConfig(
        issuer=ISSUER,
        audience=AUDIENCE,
        jwks=folder / "jwks.json",
        roles=ROLES,
        sign_in=SignInConfig(
            client_id=CLIENT,
            authorization_endpoint=f"{provider.base}/authorize",
            token_endpoint=f"{provider.base}/token",
            client_secret_file=folder / "secret" if secret else None,
            **more,
        ),
    )
    policies = [Policy(ROOT, frozenset({Right.MANAGE}), KEY)]
    return NamespaceConfig("contoso", queues=[QueueSettings(path="orders")], policies=policies, jwt=jwt)


@pytest.fixture
def broker(provider: Provider, clock: SteppedClock, tmp_path: Path) -> Iterator[Broker]:
    other = NamespaceConfig("fabrikam", policies=[Policy(ROOT, frozenset({Right.MANAGE}), KEY)])
    with Broker([configured(provider, tmp_path), other], dev=False, clock=clock, sync=False) as broker:
        yield broker


@pytest.fixture
def surfer(broker: Broker) -> Surfer:
    return Surfer(broker)


# --- what works -------------------------------------------------------------------------------------------------------


def test_an_account_opens_its_namespace(surfer: Surfer, provider: Provider) -> None:
    greeting = surfer.greet()
    assert (greeting["sign_in"], "token" in greeting) == ({"contoso": "login.example"}, False)
    answer = surfer.sign_in(provider)
    assert (answer.status, answer.headers["Location"]) == (303, "/console#/n/contoso")
    assert "problem" not in surfer.greet()
    found = {each["name"]: each for each in surfer.view("namespaces").json["namespaces"]}
    assert (found["contoso"]["account"], found["contoso"]["policy"]) == ("ann@contoso.example", None)
    assert found["contoso"]["rights"] == ["Listen", "Manage", "Send"]
    assert found["fabrikam"]["open"] is False
    assert surfer.tell("send", entity="orders", body="x").status == 200
    assert len(surfer.view("messages", "entity=orders").json["rows"]) == 1


def test_the_request_to_the_provider_is_as_registered(surfer: Surfer, provider: Provider) -> None:
    location = urlsplit(surfer.begin())
    query = {name: value for name, (value,) in parse_qs(location.query).items()}
    assert query["redirect_uri"] == f"http://{surfer.site}/console/signed-in"
    assert (query["response_type"], query["scope"], query["code_challenge_method"]) == ("code", "openid", "S256")
    assert query["client_id"] == "the-console"
    assert len({query["state"], query["nonce"], query["code_challenge"]}) == 3
    assert all(len(query[name]) >= 43 for name in ("state", "nonce", "code_challenge"))


def test_the_exchange_proves_who_began(surfer: Surfer, provider: Provider) -> None:
    surfer.sign_in(provider)
    (asked,) = provider.asked
    assert asked.pop("code_verifier")
    assert asked == {
        "grant_type": "authorization_code",
        "code": CODE,
        "client_id": "the-console",
        "redirect_uri": f"http://{surfer.site}/console/signed-in",
    }
    assert provider.authorizations == [""]


def test_a_client_with_a_secret_uses_it(provider: Provider, clock: SteppedClock, tmp_path: Path) -> None:
    config = configured(provider, tmp_path, secret=True)
    with Broker([config], dev=False, clock=clock, sync=False) as broker:
        assert Surfer(broker).sign_in(provider).headers["Location"] == "/console#/n/contoso"
    assert [basic(each) for each in provider.authorizations] == [("the-console", SECRET)]
    assert "client_id" not in provider.asked[0]


def test_a_query_of_the_authorization_endpoint_stays(provider: Provider, clock: SteppedClock, tmp_path: Path) -> None:
    config = configured(provider, tmp_path)
    assert config.jwt is not None
    assert config.jwt.sign_in is not None
    object.__setattr__(config.jwt.sign_in, "authorization_endpoint", f"{provider.base}/authorize?audience=a%20b")
    with Broker([config], dev=False, clock=clock, sync=False) as broker:
        query = parse_qs(urlsplit(Surfer(broker).begin()).query)
    assert query["audience"] == ["a b"]
    assert query["response_type"] == ["code"]


def test_cookies_of_a_sign_in(surfer: Surfer, provider: Provider) -> None:
    location = surfer.begin()
    ((name, cookie),) = surfer.cookies.items()
    assert (cookie["samesite"], cookie["httponly"], cookie["path"]) == ("Lax", True, "/console/signed-in")
    assert cookie["max-age"] == str(CONSOLE_SIGN_IN_MS_MAX // 1000)
    assert cookie.value not in location
    surfer.get(provider.authorize(location))
    ((login, cookie),) = surfer.cookies.items()
    assert login != name
    assert (cookie["samesite"], cookie["httponly"], cookie["path"]) == ("Strict", True, "/console")


def test_what_was_open_stays_open_in_a_new_login(surfer: Surfer, provider: Provider) -> None:
    surfer.token = surfer.tell("login", namespace="", policy=ROOT, key=KEY).json["token"]
    before = dict(surfer.cookies)
    path = provider.authorize(surfer.begin())
    # The browser does not send a strict cookie with the redirect of another site.
    strict = {name: each for name, each in surfer.cookies.items() if each["samesite"] == "Strict"}
    surfer.cookies = {name: each for name, each in surfer.cookies.items() if name not in strict}
    assert surfer.get(path).headers["Location"] == "/console#/n/contoso"
    assert surfer.greet()["namespaces"] == ["contoso", "fabrikam"]
    assert [each.value for each in before.values()] != [each.value for each in surfer.cookies.values()]
    surfer.cookies = before
    assert surfer.view("entities").status == 401, "the old cookie is worth nothing"


def test_a_key_of_another_namespace_is_kept(surfer: Surfer, provider: Provider) -> None:
    surfer.sign_in(provider)
    surfer.greet()
    answer = surfer.tell("login", namespace="fabrikam", policy=ROOT, key=KEY)
    surfer.token = answer.json["token"]
    assert surfer.view("entities", "namespace=fabrikam").status == 200
    assert surfer.view("entities", "namespace=contoso").status == 200


def test_two_tabs_do_not_disturb_each_other(surfer: Surfer, provider: Provider) -> None:
    first, second = surfer.begin(), surfer.begin()
    assert surfer.get(provider.authorize(first)).headers["Location"] == "/console#/n/contoso"
    assert surfer.get(provider.authorize(second)).headers["Location"] == "/console#/n/contoso"


# --- rights -----------------------------------------------------------------------------------------------------------


def test_rights_are_those_of_the_roles(surfer: Surfer, provider: Provider) -> None:
    provider.access["roles"] = ["readers", "others"]
    surfer.sign_in(provider)
    surfer.greet()
    assert surfer.view("messages", "entity=orders").status == 200
    answer = surfer.tell("send", entity="orders", body="x")
    assert (answer.status, answer.error) == (403, "Your account does not have the right Send on 'orders'.")


def test_an_account_has_no_connection_string(surfer: Surfer, provider: Provider) -> None:
    surfer.sign_in(provider)
    surfer.greet()
    answer = surfer.tell("connection-string", namespace="contoso")
    assert answer.status == 400
    assert "Log in with a key" in answer.error
    assert KEY not in answer.body.decode()


def test_rights_end_with_the_token(surfer: Surfer, provider: Provider, clock: SteppedClock) -> None:
    provider.access["exp"] = START_S + 600
    surfer.sign_in(provider)
    clock.step(ms=600_000 + TOKEN_EXPIRY_GRACE_MS)
    assert surfer.view("entities").status == 200
    clock.step(ms=1)
    answer = surfer.view("entities")
    assert (answer.status, answer.error) == (401, "Your sign-in to the namespace 'contoso' has expired. Sign in again.")
    assert surfer.greet()["namespaces"] == ["contoso"], "nothing is told of other namespaces"


def test_a_login_still_ends_when_it_is_idle(surfer: Surfer, provider: Provider, clock: SteppedClock) -> None:
    surfer.sign_in(provider)
    clock.step(ms=CONSOLE_LOGIN_IDLE_MS)
    assert surfer.view("entities").status == 401


def test_rights_end_with_the_table(surfer: Surfer, broker: Broker, provider: Provider) -> None:
    surfer.sign_in(provider)

    def without(server: Any) -> None:
        server.hosts["contoso"].sign_in = None

    broker.call(without, "contoso")
    assert surfer.view("entities").status == 401
    assert surfer.greet()["sign_in"] == {}
    assert surfer.view("sign-in").headers["Location"] == "/console"


# --- the wrong browser ------------------------------------------------------------------------------------------------

OVER = "This sign-in is over, or another browser began it. Sign in again."


def test_another_browser_cannot_finish_it(surfer: Surfer, broker: Broker, provider: Provider) -> None:
    path = provider.authorize(surfer.begin())
    other = Surfer(broker)
    other.begin()
    assert other.get(path).headers["Location"] == "/console"
    assert other.problem() == OVER
    assert provider.asked == [], "nobody is asked for a stranger"
    assert surfer.get(path).headers["Location"] == "/console#/n/contoso", "and it is not spoiled"


def test_it_is_finished_once(surfer: Surfer, provider: Provider) -> None:
    path = provider.authorize(surfer.begin())
    kept = dict(surfer.cookies)
    surfer.get(path)
    surfer.cookies = kept
    surfer.get(path)
    assert surfer.problem() == OVER
    assert len(provider.asked) == 1


@pytest.mark.parametrize(
    "query", ["", "code=x", "state=x", "code=x&state=", "code=x&state=%ff%00", "error=x&state=%F0"]
)
def test_what_nobody_began(surfer: Surfer, provider: Provider, query: str) -> None:
    surfer.begin()
    assert surfer.get(f"/console/signed-in?{query}").headers["Location"] == "/console"
    assert surfer.problem() == OVER
    assert provider.asked == []


def test_it_may_not_take_too_long(surfer: Surfer, provider: Provider, clock: SteppedClock) -> None:
    path = provider.authorize(surfer.begin())
    clock.step(ms=CONSOLE_SIGN_IN_MS_MAX)
    surfer.get(path)
    assert surfer.problem() == "The sign-in took longer than 10 minutes. Sign in again."
    path = provider.authorize(surfer.begin())
    clock.step(ms=CONSOLE_SIGN_IN_MS_MAX - 1)
    assert surfer.get(path).headers["Location"] == "/console#/n/contoso"


def test_a_sentence_is_told_once_and_to_its_browser(surfer: Surfer, broker: Broker, provider: Provider) -> None:
    surfer.sign_in(provider, error="access_denied")
    assert "problem" not in Surfer(broker).greet()
    assert surfer.greet()["problem"]["namespace"] == "contoso"
    assert "problem" not in surfer.greet()


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_cannot_begin_it(surfer: Surfer, broker: Broker, site: str) -> None:
    answer = surfer.get(f"{API}sign-in?namespace=contoso", Sec_Fetch_Site=site)
    assert answer.headers["Location"] == "/console"
    assert surfer.problem() == "Begin the sign-in on the console's own page."
    assert broker.call(lambda server: len(server.console().sign_ins), "contoso") == 0


def test_a_head_request_changes_nothing(surfer: Surfer, broker: Broker, provider: Provider) -> None:
    path = provider.authorize(surfer.begin())
    assert surfer.get(path, "HEAD").status == 405
    assert surfer.get(f"{API}sign-in?namespace=contoso", "HEAD").headers["Location"] == "/console"
    assert broker.call(lambda server: len(server.console().sign_ins), "contoso") == 1
    assert surfer.get(path).headers["Location"] == "/console#/n/contoso"


@pytest.mark.parametrize("host", ["a b", "user@localhost", "localhost/x", "*.example", "localhost:x", "<script>", ""])
def test_a_host_that_is_none(host: str) -> None:
    with pytest.raises(ServiceError, match="Host"):
        origin_of("http", host, {host})


@pytest.mark.parametrize("host", ["localhost:5672", "bus.example", "[::1]:5672", "127.0.0.1"])
def test_the_origin_is_the_browsers(host: str) -> None:
    assert origin_of("https", host, {"bus.example"}) == f"https://{host}"


@pytest.mark.parametrize("host", ["evil.example", "bus.example.evil", "203.0.113.7:5672", "localhost.evil"])
def test_a_foreign_host_is_not_sent_to_the_provider(surfer: Surfer, host: str) -> None:
    """The provider would send the browser there, with the code."""
    with pytest.raises(ServiceError, match="not a name of this broker"):
        origin_of("https", host, {"bus.example"})
    surfer.site = host
    answer = surfer.view("sign-in", "namespace=contoso")
    assert (answer.status, answer.headers["Location"]) == (303, "/console")


def test_a_bad_host_begins_nothing(surfer: Surfer) -> None:
    surfer.site = "user@localhost"
    answer = surfer.view("sign-in", "namespace=contoso")
    assert (answer.status, answer.headers["Location"]) == (303, "/console")


@pytest.mark.parametrize(
    ("namespace", "problem"),
    [("fabrikam", "There is no namespace 'fabrikam' here."), ("<b>", "There is no namespace '<b>' here.")],
)
def test_namespaces_that_are_not_told_of(surfer: Surfer, namespace: str, problem: str) -> None:
    assert surfer.view("sign-in", f"namespace={namespace}").headers["Location"] == "/console"
    assert surfer.problem() == problem


def test_a_namespace_without_a_provider_says_so(broker: Broker) -> None:
    surfer = Surfer(broker, "fabrikam")
    assert surfer.greet()["sign_in"] == {}
    surfer.view("sign-in")
    assert surfer.problem() == "The namespace 'fabrikam' has no sign-in with an account. Log in with a key."


def test_development_mode_needs_no_sign_in(provider: Provider, tmp_path: Path) -> None:
    with Broker([configured(provider, tmp_path)], sync=False) as broker:
        surfer = Surfer(broker)
        assert surfer.greet()["sign_in"] == {}
        assert surfer.view("sign-in", "namespace=contoso").headers["Location"] == "/console"
        assert surfer.greet()["problem"]["text"].startswith("The namespace 'contoso' has no sign-in")


def test_a_queue_of_that_name_is_still_administered(broker: Broker) -> None:
    answer = Surfer(broker).get("/console/signed-in?api-version=2021-05")
    assert answer.status == 401
    assert b"<Error>" in answer.body


# --- the wrong provider -----------------------------------------------------------------------------------------------


def said(status: int, body: bytes | str, **headers: str) -> Reply:
    async def reply(request: web.Request) -> web.Response:
        content = body.encode() if isinstance(body, str) else body
        return web.Response(status=status, body=content, headers={n.replace("_", "-"): v for n, v in headers.items()})

    return reply


async def hang(request: web.Request) -> web.Response:
    await asyncio.sleep(60)
    return web.Response()


async def drip(request: web.Request) -> web.StreamResponse:
    """Answer forever, a byte at a time."""
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(6_000):
        await response.write(b" ")
        await asyncio.sleep(0.01)
    return response


async def flood(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(160):
        await response.write(b"x" * 65_536)
    return response


async def vanish(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (hang, "login.example did not answer the broker within 0 s."),
        (drip, "login.example did not answer the broker within 0 s."),
        (vanish, "The broker cannot reach login.example."),
        (flood, f"login.example answered with more than {CONSOLE_EXCHANGE_BYTES_MAX} bytes."),
        (said(500, "<html>"), "login.example answered with status 500 and no JSON object."),
        (said(500, '{"error":"server_error"}'), "login.example refused the sign-in with status 500 (server_error)."),
        (said(302, "", Location="/elsewhere"), "login.example answered the broker with a redirect"),
        (said(307, "", Location="/elsewhere"), "login.example answered the broker with a redirect"),
        (said(200, "<html>"), "login.example answered with status 200 and no JSON object."),
        (said(200, "[" * 100_000), "login.example answered with status 200 and no JSON object."),
        (said(200, b"\x1f\x8b" + b"\0" * 100, Content_Encoding="gzip"), "and no JSON object."),
        (said(200, "[]"), "login.example answered with status 200 and no JSON object."),
        (said(200, "{}"), "login.example answered without an access token and an ID token."),
        (said(200, '{"access_token": 5, "id_token": []}'), "without an access token and an ID token."),
        (said(200, '{"access_token": "opaque", "id_token": "x.y.z"}'), "The token of login.example cannot be used."),
        (said(400, '{"error": "invalid_client", "error_description": 7}'), "with status 400 (invalid_client)."),
    ],
)
def test_bad_answers_of_a_provider(
    surfer: Surfer,
    provider: Provider,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    reply: Reply,
    problem: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    if reply in (hang, drip):
        monkeypatch.setattr(exchange, "CONSOLE_EXCHANGE_TIMEOUT_MS", 300)
    provider.reply = reply
    assert surfer.sign_in(provider).headers["Location"] == "/console"
    shown = surfer.problem()
    assert problem in shown
    assert shown.endswith(".")
    assert len(provider.asked) == 1, "asked once, and elsewhere never"
    assert surfer.view("entities").status == 401
    # The provider runs in this process and logs, too.
    logged = [each for each in caplog.records if each.name.startswith("twinbus")]
    assert not [each for each in logged if each.exc_info]
    assert CODE not in "".join(each.getMessage() for each in logged) + shown
    provider.reply = None
    assert surfer.sign_in(provider).headers["Location"] == "/console#/n/contoso", "the next sign-in works"


def test_an_answer_of_the_largest_size_is_read(surfer: Surfer, provider: Provider) -> None:
    async def padded(request: web.Request) -> web.Response:
        text = json.dumps(provider.tokens())
        return web.Response(text=text.ljust(CONSOLE_EXCHANGE_BYTES_MAX + extra))

    provider.reply, extra = padded, 0
    assert surfer.sign_in(provider).headers["Location"] == "/console#/n/contoso"
    extra = 1
    assert surfer.sign_in(provider).headers["Location"] == "/console"


def test_a_token_that_is_too_long(surfer: Surfer, provider: Provider) -> None:
    provider.reply = said(200, json.dumps({"access_token": "x" * (TOKEN_BYTES_MAX + 1), "id_token": "x"}))
    surfer.sign_in(provider)
    assert surfer.problem().startswith(f"login.example issued a token of more than {TOKEN_BYTES_MAX} characters.")


def test_a_provider_that_is_not_there(provider: Provider, clock: SteppedClock, tmp_path: Path) -> None:
    config = configured(provider, tmp_path)
    assert config.jwt is not None
    assert config.jwt.sign_in is not None
    object.__setattr__(config.jwt.sign_in, "token_endpoint", "http://127.0.0.1:1/token")
    with Broker([config], dev=False, clock=clock, sync=False) as broker:
        surfer = Surfer(broker)
        surfer.sign_in(provider)
        assert surfer.problem() == ("The broker cannot reach login.example. Try again later, or log in with a key.")


def test_a_certificate_that_nobody_trusts(provider: Provider, clock: SteppedClock, tmp_path: Path) -> None:
    config = configured(provider, tmp_path)
    assert config.jwt is not None
    assert config.jwt.sign_in is not None
    with Broker([config], dev=False, clock=clock, sync=False) as broker:
        # The broker's own port has a certificate of the development CA, which the broker does not trust either.
        address = f"https://localhost:{broker.endpoint('contoso').port}/token"
        object.__setattr__(config.jwt.sign_in, "token_endpoint", address)
        surfer = Surfer(broker)
        surfer.sign_in(provider)
        assert surfer.problem().startswith("The broker does not trust the certificate of login.example.")


@pytest.mark.parametrize(
    ("access", "identity", "problem"),
    [
        ({"iss": "https://evil.example"}, {}, "The token of login.example has another issuer."),
        ({"aud": "api://other"}, {}, "The token of login.example is for another audience."),
        ({"aud": CLIENT}, {}, "The token of login.example is for another audience."),
        ({"exp": START_S - 61}, {}, "The token of login.example has expired already."),
        ({"exp": None}, {}, "The token of login.example cannot be used."),
        ({"nbf": START_S + 61}, {}, "The token of login.example cannot be used."),
        ({"roles": ["others"]}, {}, "Your account has no role that grants a right on the namespace 'contoso'."),
        ({"roles": None}, {}, "Your account has no role that grants a right on the namespace 'contoso'."),
        ({}, {"nonce": "another"}, "The token of login.example answers another sign-in."),
        ({}, {"nonce": None}, "The token of login.example answers another sign-in."),
        ({}, {"nonce": "\ud800"}, "The token of login.example answers another sign-in."),
        ({}, {"aud": "another-client"}, "The token of login.example is for another audience."),
        ({}, {"azp": "another-client"}, "The token of login.example is for another audience."),
        ({}, {"iss": "https://evil.example"}, "The token of login.example has another issuer."),
        ({}, {"exp": START_S - 61}, "The token of login.example has expired already."),
    ],
)
def test_tokens_that_open_nothing(
    surfer: Surfer, provider: Provider, access: dict[str, Any], identity: dict[str, Any], problem: str
) -> None:
    provider.access, provider.identity = access, identity
    assert surfer.sign_in(provider).headers["Location"] == "/console"
    assert surfer.problem().startswith(problem)
    assert surfer.view("entities").status == 401


@pytest.mark.parametrize("which", ["access_token", "id_token"])
def test_a_foreign_key_opens_nothing(surfer: Surfer, provider: Provider, which: str) -> None:
    own, foreign = provider.issuer, Issuer()

    async def reply(request: web.Request) -> web.Response:
        provider.issuer = foreign
        forged = provider.tokens()
        provider.issuer = own
        return web.json_response({**provider.tokens(), which: forged[which]})

    provider.reply = reply
    surfer.sign_in(provider)
    assert surfer.problem().startswith("The token of login.example matches no configured key.")


def test_the_answer_of_another_issuer(surfer: Surfer, provider: Provider) -> None:
    surfer.sign_in(provider, code=CODE, iss="https://evil.example")
    assert surfer.problem() == "The answer is not from login.example. Sign in again."
    assert provider.asked == []
    assert surfer.sign_in(provider, code=CODE, iss=ISSUER).headers["Location"] == "/console#/n/contoso"


def test_what_the_provider_says_is_cut_and_shown_as_text(surfer: Surfer, provider: Provider) -> None:
    text = "<script>alert(1)</script>\r\n\x00\u202e" + "y" * 5_000
    surfer.sign_in(provider, error="access_denied", error_description=text)
    shown = surfer.problem()
    assert shown.startswith("login.example did not sign you in (access_denied: <script>alert(1)</script> y")
    assert shown.endswith("y…). Sign in again, or log in with a key.")
    assert len(shown) < CONSOLE_PROVIDER_TEXT_CHARS_MAX + 100
    assert provider.asked == []


def test_a_provider_may_give_no_code(surfer: Surfer, provider: Provider) -> None:
    surfer.sign_in(provider, other="x")
    assert surfer.problem() == "login.example answered without a code. Sign in again, or log in with a key."


def test_no_secret_is_shown_or_logged(
    provider: Provider, clock: SteppedClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    issued: list[str] = []

    async def echo(request: web.Request) -> web.Response:
        """Whatever was sent, and a token, in the error."""
        (fields, authorization) = provider.asked[-1], provider.authorizations[-1]
        told = f"{fields['code']} {fields['code_verifier']} {basic(authorization)[1]}"
        issued[:] = [fields["code_verifier"], *provider.tokens().values()]
        return web.json_response({"error": told, "error_description": told}, status=400)

    shown = ""
    with Broker([configured(provider, tmp_path, secret=True)], dev=False, clock=clock, sync=False) as broker:
        surfer = Surfer(broker)
        for provider.reply in (echo, None):
            surfer.sign_in(provider)
            shown += surfer.view("login").body.decode() + surfer.view("namespaces").body.decode()
        shown += repr(broker.call(lambda server: server.hosts["contoso"].sign_in, "contoso"))
        shown += repr(broker.call(lambda server: server.console().logins, "contoso"))
    assert "with status 400 (… … …: … … …)." in caplog.text
    for secret in (CODE, SECRET, "planted", *issued[:3]):
        assert secret not in caplog.text
        assert secret not in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a\r\nb\tc\x1b[31m", "a b c [31m"),
        ("x" * 201, "x" * 199 + "…"),
        ("x" * 200, "x" * 200),
        ("see s%20e%2Fc+r, s+e%2Fc%2Br and s e/c+r", "see s%20e%2Fc+r, … and …"),
        ("\u202e\u2028", ""),
    ],
)
def test_text_of_a_provider(text: str, shown: str) -> None:
    assert provider_text(text, ["s e/c+r", ""]) == shown


# --- bounds -----------------------------------------------------------------------------------------------------------


class NamedHost:
    name = "contoso"


def begun(sign_ins: SignIns, address: str) -> tuple[str, str]:
    state, pending = sign_ins.begin(NamedHost(), "http://localhost", address, "")  # type: ignore[arg-type]
    return state, pending.binding


def over(sign_ins: SignIns, begun: tuple[str, str]) -> bool:
    try:
        sign_ins.take(*begun)
    except SignInFailed:
        return True
    return False


def test_begun_sign_ins_are_bounded(clock: SteppedClock) -> None:
    sign_ins = SignIns(clock)
    first, second = [begun(sign_ins, f"192.0.2.{number}") for number in range(2)]
    rest = [begun(sign_ins, str(number)) for number in range(CONSOLE_SIGN_INS_MAX - 2)]
    assert len(sign_ins) == CONSOLE_SIGN_INS_MAX
    begun(sign_ins, "one more")
    assert len(sign_ins) == CONSOLE_SIGN_INS_MAX
    assert over(sign_ins, first)
    assert not over(sign_ins, second)
    assert not over(sign_ins, rest[-1])


def test_an_address_pushes_out_its_own(clock: SteppedClock) -> None:
    sign_ins = SignIns(clock)
    other = begun(sign_ins, "other")
    own = [begun(sign_ins, "own") for _ in range(CONSOLE_SIGN_INS_PER_ADDRESS_MAX + 1)]
    assert len(sign_ins) == CONSOLE_SIGN_INS_PER_ADDRESS_MAX + 1
    assert over(sign_ins, own[0])
    assert not over(sign_ins, own[1])
    assert not over(sign_ins, other)


def test_old_ones_are_forgotten(clock: SteppedClock) -> None:
    sign_ins = SignIns(clock)
    for _ in range(10):
        begun(sign_ins, "one")
    clock.step(ms=CONSOLE_SIGN_IN_MS_MAX)
    begun(sign_ins, "two")
    assert len(sign_ins) == 1


def test_sentences_are_bounded(clock: SteppedClock) -> None:
    sign_ins = SignIns(clock)
    kept = [sign_ins.note("contoso", str(number)) for number in range(CONSOLE_SIGN_INS_MAX + 1)]
    assert sign_ins.noted(kept[0]) is None
    assert sign_ins.noted(kept[1]) == ("contoso", "1")
    assert sign_ins.noted(kept[1]) is None


BUSY = "Too many people are signing in at this moment. Sign in again in a few seconds."


def test_few_exchanges_at_once(clock: SteppedClock) -> None:
    sign_ins = SignIns(clock)
    slot = sign_ins._slot
    with ExitStack() as held:
        for _ in range(CONSOLE_EXCHANGES_PER_ADDRESS_MAX):
            held.enter_context(slot("one"))
        with pytest.raises(SignInFailed, match=BUSY), slot("one"):
            pass
        for number in range(CONSOLE_EXCHANGES_MAX - CONSOLE_EXCHANGES_PER_ADDRESS_MAX - 1):
            held.enter_context(slot(f"192.0.2.{number}"))
        with slot("another"), pytest.raises(SignInFailed, match=BUSY), slot("one more"):
            pass
        held.enter_context(slot("one more"))
    assert not sign_ins._exchanging


def test_who_guesses_waits_without_a_place(
    clock: SteppedClock, provider: Provider, monkeypatch: pytest.MonkeyPatch, broker: Broker
) -> None:
    """The delay of a wrong answer takes none of the few places, so that others can sign in meanwhile."""
    sign_ins = SignIns(clock)
    taken: list[int] = []

    class Here:
        @property
        def wrong_keys(self) -> Here:
            return self

        def pause_ms(self, address: str) -> int:
            taken.append(sign_ins._exchanging.total())
            return 0

    provider.reply = said(400, "{}")
    host = broker.call(lambda server: server.hosts["contoso"], "contoso")
    state, pending = sign_ins.begin(host, "http://localhost", "one", "")
    with pytest.raises(SignInFailed, match="status 400"):
        asyncio.run(sign_ins.finish(host, Here(), pending, {"code": "x", "state": state}, "one"))  # type: ignore[arg-type]
    assert taken == [0]
    assert not sign_ins._exchanging


def test_an_honest_sign_in_while_many_guesses_wait(
    surfer: Surfer, broker: Broker, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More wrong codes than there are places wait for their answers; a right one is answered at once."""
    monkeypatch.setattr(strangers, "WRONG_KEY_PAUSE_MS", strangers.WRONG_KEY_PAUSE_MS_MAX)
    count = 2 * CONSOLE_EXCHANGES_MAX
    asked: list[HTTPConnection] = []
    begun = [Surfer(broker) for _ in range(count)]
    addresses = [provider.authorize(guesser.begin()) for guesser in begun]
    provider.reply = said(400, "{}")
    try:
        for guesser, address in zip(begun, addresses, strict=True):
            before = len(provider.asked)
            asked.append(guesser.knock(address))
            while len(provider.asked) == before:
                time.sleep(0.01)
        provider.reply = None
        assert surfer.sign_in(provider).headers["Location"] == "/console#/n/contoso"
    finally:
        for each in asked:
            each.close()


def test_over_tls_it_stays_on_tls(broker: Broker) -> None:
    context = ssl.create_default_context(cafile=str(broker.ca_file))
    port = broker.endpoint("contoso").port
    connection = HTTPSConnection("localhost", port, context=context, timeout=15)
    connection.request("GET", f"{API}sign-in?namespace=contoso")
    response = connection.getresponse()
    assert "; Secure" in (response.getheader("Set-Cookie") or "")
    query = parse_qs(urlsplit(response.getheader("Location") or "").query)
    assert query["redirect_uri"] == [f"https://localhost:{port}/console/signed-in"]
    connection.close()


def test_a_wrong_sign_in_counts_as_a_wrong_key(surfer: Surfer, broker: Broker, provider: Provider) -> None:
    def wrong(server: Any) -> int:
        return sum(count for count, _ in server.hosts["contoso"].wrong_keys._seen.values())

    surfer.get("/console/signed-in?code=x&state=y")
    provider.access["roles"] = []
    surfer.sign_in(provider)
    assert broker.call(wrong, "contoso") == 2
    surfer.sign_in(provider, error="access_denied")
    provider.access.clear()
    surfer.sign_in(provider)
    assert broker.call(wrong, "contoso") == 2, "changing one's mind is no guess"


def test_a_broker_stops_while_a_provider_hangs(provider: Provider, tmp_path: Path) -> None:
    """It does not wait for the provider, and the browser is disconnected."""
    provider.reply = hang
    broker = Broker([configured(provider, tmp_path)], dev=False, sync=False)
    broker.start()
    surfer = Surfer(broker)
    path = provider.authorize(surfer.begin())
    connection = HTTPConnection(surfer.endpoint.host, surfer.endpoint.port, timeout=30)
    cookies = "; ".join(f"{name}={each.value}" for name, each in surfer.cookies.items())
    connection.request("GET", path, headers={"Host": surfer.site, "Cookie": cookies})
    while not provider.asked:
        time.sleep(0.01)
    broker.close()
    with pytest.raises(OSError):
        connection.getresponse()
    connection.close()


def test_providers_accept_the_redirect_uri() -> None:
    assert set("!$'(),;") & set(SIGNED_IN_PATH) == set(), "Entra ID refuses these"
