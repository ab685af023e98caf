"""Odd HTTP requests to the REST data plane, the admin API, the console and the rest, with odd messages in the queues.

Promise: every answer has a documented status and is well formed for its plane, and nothing is logged as a failure of
the broker.
"""

from __future__ import annotations

import gzip
import json
import logging
import random
import select
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from tests.broker.odd_messages import PLACES, in_place, others
from tests.broker.peer import Peer
from tests.proof.suite import Budget, Suite
from twinbus.amqp.states import STATE_REJECTED_NO_ERROR, Accepted
from twinbus.broker.http.admin.entity_xml import element_of
from twinbus.broker.http.admin.xml_out import ATOM, INSTANCE, SERVICE
from twinbus.broker.http.console import messages as console_messages
from twinbus.broker.http.rest.api import BATCH_TYPE
from twinbus.entities.setting import DURATION, EVERY, FLAG, NUMBER, TEXT, Setting
from twinbus.entities.settings import SETTINGS_OF, QueueSettings
from twinbus.limits import REST_TIMEOUT_S_DEFAULT
from twinbus.testing import Broker

# A receiver that names no timeout waits for its message, and an answer may be late on a busy machine.
PATIENCE_S = 2 * REST_TIMEOUT_S_DEFAULT
# Damaged bytes may be the start of a longer request: after this long their client sends no more.
UNFINISHED_S = 1
# Documented statuses; 503 occurs only with a fault or a disk that does not answer, and there is neither here.
DOCUMENTED = frozenset({200, 201, 204, 304, 400, 401, 403, 404, 405, 409, 410, 412, 413, 415, 422, 426})

ODD_TEXTS = [
    "", "a", "0", "-1", "1", "5", "9" * 30, "2" + "0" * 400, "1e999", "nan", "-Infinity", "true", "null", "é", "\ud800",
    "\udcff", "\U0001f600", "a\x00b", "a\x0bb", "%", "%zz", "..", "../q", "/", "//", "a/b", "$", "$Default", "odd", "s",
    "news", "news/subscriptions/a", "odd/$deadletterqueue", "x" * 300, "x" * 5000, "' OR 1=1", "a = 'b'",
    "a LIKE '%_b%'",
    "((((1=1))))", "NOT " * 50 + "TRUE", "1/0 = 1", "SET a = 1/0", "REMOVE a", "sys.MessageId = 'x'", "P1D", "PT5M",
    "P99999999999999D", "PT0.0000000001S", "-PT1S", "P", "PT", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.9999999Z",
    "Mon, 01 Jan 0001 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "Fri, 31 Dec 9999 23:59:59 -2300",
    "Fri, 31 Dec 1 23:59:59 -0000", "0001-01-01T00:00:00+23:59", "2024-02-30", "[" * 2000, '{"a":' * 1500, "<a>",
    "&amp;",
    "1" * 5000, "00000000-0000-0000-0000-000000000000", "messages", "head", "localhost", "text/plain; charset=utf-99",
]  # fmt: skip
ODD_VALUES: list[Any] = [
    *ODD_TEXTS, None, True, False, 0, 1, -1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 2**70, 10**400, 1.5, -0.0, 1e300,
    [], {}, [1], [[[]]], {"a": 1}, {"a": {"b": []}}, ["1", "2"], [None],
]  # fmt: skip
ENTITIES = [
    "odd",
    "dead",
    "s",
    "off",
    "news",
    "news/subscriptions/a",
    "news/subscriptions/$x",
    "contoso/x-servicebus-transfer/0",
]
BROKER_FIELDS = [
    "MessageId", "SessionId", "Label", "TimeToLive", "ScheduledEnqueueTimeUtc", "PartitionKey", "ContentType", "To",
    "ReplyTo", "CorrelationId", "SequenceNumber", "State", "EnqueuedTimeUtc", "Nothing",
]  # fmt: skip
DESCRIPTIONS: dict[str, tuple[Setting, ...]] = {
    **{element_of(kind): SETTINGS_OF[kind] for kind in EVERY},
    "RuleDescription": (),
}
PLAUSIBLE = {DURATION: "PT2M", NUMBER: "1024", FLAG: "true", TEXT: "text"}
VIEWS = [
    "entities",
    "entity",
    "messages",
    "message",
    "backlog",
    "body",
    "namespaces",
    "ledger",
    "events",
    "live",
    "x",
    "login",
]
COMMANDS = ["send", "create", "delete", "purge", "resubmit", "x", "logout"]
COMMAND_FIELDS = [
    "namespace", "entity", "kind", "name", "topic", "subscription", "settings", "filter", "action", "rule", "part",
    "numbers", "copies", "properties", "body", "content_type", "time_to_live_s", "delay_s", "message_id", "session_id",
    "subject", "correlation_id", "policy", "key", "connection_string",
]  # fmt: skip
SETTINGS = [
    "requires_session", "requires_duplicate_detection", "dead_letter_on_expiry", "lock_duration_ms",
    "max_delivery_count", "default_ttl_ms", "max_megabytes", "path", "x",
]  # fmt: skip


class Complaints(logging.Handler):
    """Collects what the broker logs as its own failure."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR or record.exc_info or "unexpected" in record.getMessage():
            self.lines.append(logging.Formatter("%(name)s: %(message)s").format(record))


@contextmanager
def listening() -> Iterator[Complaints]:
    complaints = Complaints()
    logging.getLogger().addHandler(complaints)
    try:
        yield complaints
    finally:
        logging.getLogger().removeHandler(complaints)


class Visitor:
    """Sends requests as raw bytes, and remembers what the broker returned: locks, cookie and token."""

    def __init__(self, broker: Broker, chance: random.Random) -> None:
        self.broker = broker
        self.chance = chance
        # Kept open as long as the broker keeps it.
        self.stream: socket.socket | None = None
        # Paths of locked messages.
        self.locks: list[str] = []
        self.cookie = ""
        self.token = ""

    # --- what it asks -------------------------------------------------------------------------------------------------

    def request(self) -> tuple[str, bytes]:
        """A plane and the bytes of a request to it."""
        plane = self.chance.choices(["rest", "admin", "console", "others", "raw"], [6, 6, 6, 1, 1])[0]
        if plane == "raw":
            _, data = self.request_of(self.chance.choice(["rest", "admin", "console"]))
            if self.chance.random() < 0.5:
                # The client leaves in the middle of it.
                return plane, self.damaged(data)
            start, length, rest = data.partition(b"\r\nContent-Length")
            return "damaged", self.replaced(start) + length + self.replaced(rest)
        return self.request_of(plane)

    def request_of(self, plane: str) -> tuple[str, bytes]:
        made: tuple[str, str, dict[str, str], bytes] = getattr(self, plane)()
        method, path, headers, body = made
        if self.chance.random() < 0.05:
            method = self.chance.choice(["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"])
        if self.chance.random() < 0.1:
            name = self.chance.choice(
                [
                    "Authorization",
                    "ServiceBusAuthorization",
                    "If-Match",
                    "Cookie",
                    "Origin",
                    "Own",
                    "Accept",
                    "Content-Type",
                ]
            )
            headers[name] = self.chance.choice(
                [
                    self.odd(),
                    f"SharedAccessSignature sr={self.odd()}&sig={self.odd()}&se={self.odd()}&skn=x",
                    "Bearer a.b.c",
                ]
            )
        if self.chance.random() < 0.03:
            headers["Content-Encoding"] = self.chance.choice(["gzip", "deflate", "br", "x"])
            body = gzip.compress(body) if self.chance.random() < 0.5 else body
        length = f"Content-Length: {len(body)}"
        if body and self.chance.random() < 0.05:
            length = "Transfer-Encoding: chunked"
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
            body = (
                body if self.chance.random() < 0.5 else self.chance.choice([b"zz\r\n", b"-1\r\n", b"5\r\nabcdefg\r\n"])
            )
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", length]
        lines += [f"{name}: {line(value)}" for name, value in headers.items()]
        return plane, "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body

    def damaged(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self.chance.randrange(1, 6)):
            at = self.chance.randrange(len(changed) + 1)
            changed[at : at + self.chance.randrange(3)] = self.chance.randbytes(self.chance.randrange(3))
        return bytes(changed)

    def replaced(self, data: bytes) -> bytes:
        """The same number of bytes, some of them changed."""
        changed = bytearray(data)
        for _ in range(self.chance.randrange(3) if changed else 0):
            at = self.chance.randrange(len(changed))
            if not chr(changed[at]).isdigit():
                changed[at] = self.chance.randrange(256)
        return bytes(changed)

    def odd(self) -> str:
        return self.chance.choice(ODD_TEXTS)

    def json(self, value: Any) -> bytes:
        if self.chance.random() < 0.05:
            return self.odd().encode("utf-8", "surrogatepass")
        text = json.dumps(value, ensure_ascii=self.chance.random() < 0.7).encode("utf-8", "surrogatepass")
        return text if self.chance.random() < 0.9 else self.damaged(text)

    def entity(self) -> str:
        if self.chance.random() < 0.8:
            return self.chance.choice(ENTITIES)
        return quoted(self.odd()) or "x"

    def query(self, *names: str) -> str:
        given = [f"{name}={quoted(self.odd())}" for name in names if self.chance.random() < 0.4]
        return "?" + "&".join(given) if given else ""

    def broker_properties(self) -> Any:
        names = self.chance.sample(BROKER_FIELDS[:-1] if self.chance.random() < 0.9 else BROKER_FIELDS, 3)
        return {name: self.chance.choice(ODD_VALUES) for name in names[: self.chance.randrange(4)]}

    def rest(self) -> tuple[str, str, dict[str, str], bytes]:
        chance, headers = self.chance, dict[str, str]()
        what = chance.choice(["send", "send", "batch", "receive", "lock", "settle"])
        path = f"/{self.entity()}/messages"
        if what == "send":
            if chance.random() < 0.7:
                headers["BrokerProperties"] = self.json(self.broker_properties()).decode("utf-8", "replace")
            for name in chance.sample(["own", "Count", "a.b", "x'y", "Priority", "Date", "SequenceNumber"], 2):
                headers[name] = json.dumps(chance.choice(ODD_VALUES)) if chance.random() < 0.5 else self.odd()
            return "POST", path + self.query("timeout", "api-version"), headers, self.odd().encode("utf-8", "replace")
        if what == "batch":
            headers["Content-Type"] = BATCH_TYPE
            items: Any = [
                {
                    "Body": chance.choice(ODD_VALUES) if chance.random() < 0.3 else self.odd(),
                    "BrokerProperties": self.broker_properties()
                    if chance.random() < 0.8
                    else chance.choice(ODD_VALUES),
                    "UserProperties": {self.odd(): chance.choice(ODD_VALUES)} if chance.random() < 0.6 else None,
                    "IsBodyBase64Encoded": chance.random() < 0.2,
                }
                for _ in range(chance.randrange(1, 3))
            ]
            return "POST", path, headers, self.json(items if chance.random() < 0.9 else chance.choice(ODD_VALUES))
        timeout = "0" if chance.random() < 0.9 else chance.choice(["-1", "nan", "1e999", "x", "%00", "", "0.001"])
        if what in ("receive", "lock"):
            return "DELETE" if what == "receive" else "POST", f"{path}/head?timeout={timeout}", headers, b""
        lock = self.locks.pop() if self.locks else f"{path}/{quoted(self.odd())}/{quoted(self.odd())}"
        return chance.choice(["DELETE", "PUT", "POST"]), lock, headers, b""

    def admin(self) -> tuple[str, str, dict[str, str], bytes]:
        chance, headers = self.chance, dict[str, str]()
        new = chance.choice(["made", "made2", f"m{chance.randrange(50)}", quoted(self.odd()) or "y"])
        kind = chance.choice(list(DESCRIPTIONS))
        path = {
            "SubscriptionDescription": f"/news/subscriptions/{new}",
            "RuleDescription": f"/news/subscriptions/a/rules/{new}",
        }.get(kind, f"/{new}")
        if chance.random() < 0.3:
            path = chance.choice(
                [
                    f"/{self.entity()}", "/", "/$Resources/Queues", "/$Resources/Topics", "/news/subscriptions",
                    "/news/subscriptions/a/rules", "/$namespaceinfo", f"/$Resources/{new}",
                    f"/{new}/subscriptions/{new}/rules/{new}",
                ]
            )  # fmt: skip
        query = "?api-version=2021-05"
        if chance.random() < 0.2:
            query = self.query("api-version", "$skip", "$top", "enrich")
        method = chance.choice(["GET", "PUT", "PUT", "PUT", "DELETE"])
        if method != "PUT":
            # The entities with the odd messages must stay.
            return "GET" if path.strip("/") in (*ENTITIES, "") else method, path + query, headers, b""
        if chance.random() < 0.3:
            headers["If-Match"] = chance.choice(["*", '"x"', "W/", self.odd()])
        return "PUT", path + query, headers, self.description(kind)

    def description(self, kind: str) -> bytes:
        chance, fields = self.chance, DESCRIPTIONS[kind]
        inner = ""
        for field in chance.sample(fields, min(len(fields), chance.randrange(4))):
            # Operations that would lock others out of an entity, or move its messages, have their own tests.
            if field.azure not in ("Status", "ForwardTo", "ForwardDeadLetteredMessagesTo", "AutoDeleteOnIdle"):
                value = cdata(self.odd()) if chance.random() < 0.4 else PLAUSIBLE[field.kind]
                inner += f"<{field.azure}>{value}</{field.azure}>"
        if kind == "RuleDescription":
            inner = self.rule()
        if chance.random() < 0.2:
            keys = cdata(self.odd())
            inner += (
                f"<AuthorizationRules><AuthorizationRule><ClaimType>{keys}</ClaimType><Rights><AccessRights>{keys}"
                f"</AccessRights></Rights><KeyName>{keys}</KeyName><PrimaryKey>{keys}</PrimaryKey></AuthorizationRule>"
                "</AuthorizationRules>"
            )
        text = (
            f'<?xml version="1.0" encoding="utf-8"?><a:entry xmlns:a="{ATOM}" xmlns="{SERVICE}" xmlns:x="{INSTANCE}">'
            f'<a:content type="application/xml"><{kind}>{inner}</{kind}></a:content></a:entry>'
        ).encode("utf-8", "replace")
        return text if chance.random() < 0.85 else self.damaged(text)

    def rule(self) -> str:
        chance = self.chance
        value = f'<Value x:type="q:{chance.choice(["string", "int", "long", "dateTime", "duration", "guid", "x"])}">'
        pair = f"<Key>{cdata(self.odd())}</Key>{value}{cdata(self.odd())}</Value>"
        item = f"<KeyValueOfstringanyType>{pair}</KeyValueOfstringanyType>"
        kinds = {
            "SqlFilter": f"<SqlExpression>{cdata(self.odd())}</SqlExpression><Parameters>{item}</Parameters>",
            "CorrelationFilter": f"<CorrelationId>{cdata(self.odd())}</CorrelationId><Properties>{item}</Properties>",
            "TrueFilter": "", "FalseFilter": "", "NoFilter": "",
        }  # fmt: skip
        kind = chance.choice(list(kinds))
        action = f'<Action x:type="SqlRuleAction"><SqlExpression>{cdata(self.odd())}</SqlExpression></Action>'
        return f'<Filter x:type="{kind}">{kinds[kind]}</Filter>' + (action if chance.random() < 0.5 else "")

    def console(self) -> tuple[str, str, dict[str, str], bytes]:
        chance = self.chance
        headers = {"Cookie": self.cookie, "X-Console-Token": self.token if chance.random() < 0.95 else self.odd()}
        if chance.random() < 0.5:
            view = chance.choice(VIEWS)
            entity = quoted(chance.choice(ENTITIES) if chance.random() < 0.8 else self.odd())
            number = chance.randrange(1, 1200) if chance.random() < 0.8 else quoted(self.odd())
            part = chance.choice(["messages", "dead", "transfer", quoted(self.odd())])
            # A live view never ends; a refused one does.
            live = "&view=nothing" if view == "live" else ""
            query = f"namespace=contoso&entity={entity}&seq={number}&from={number}&part={part}{live}"
            return "GET", f"/console/$api/{view}?{query}", headers, b""
        headers["Content-Type"] = "application/json"
        command = chance.choice(COMMANDS) if chance.random() < 0.95 else quoted(self.odd())
        fields: Any = {name: chance.choice(ODD_VALUES) for name in chance.sample(COMMAND_FIELDS, chance.randrange(4))}
        fields["namespace"] = "contoso" if chance.random() < 0.9 else chance.choice(ODD_VALUES)
        if command == "create":
            fields |= {"kind": chance.choice(["queue", "topic", "subscription", "rule"]), "topic": "news"}
            fields.setdefault("name", f"m{chance.randrange(30)}")
            fields["subscription"] = "a"
            if chance.random() < 0.5:
                fields["settings"] = {name: chance.choice(ODD_VALUES) for name in chance.sample(SETTINGS, 2)}
        elif command in ("delete", "purge"):
            fields["entity"] = chance.choice(["made", "news/subscriptions/m1", self.odd()])
            if fields["entity"] in ENTITIES:
                fields["entity"] = "made"
        elif command in ("send", "resubmit") and chance.random() < 0.8:
            fields |= {"entity": chance.choice(ENTITIES), "part": "dead"}
            if command == "send":
                fields["properties"] = {self.odd(): chance.choice(ODD_VALUES)}
        body = self.json(fields if chance.random() < 0.9 else chance.choice(ODD_VALUES))
        return "POST", f"/console/$api/{command}", headers, body

    def others(self) -> tuple[str, str, dict[str, str], bytes]:
        path = self.chance.choice(
            ["/health", "/metrics", "/$faults", "/console", "/$servicebus/websocket", "/console/$assets/x"]
        )
        fault = {
            name: self.chance.choice(ODD_VALUES) for name in self.chance.sample(["mode", "entity", "refusal", "x"], 2)
        }
        fault.setdefault("mode", "x")
        method = self.chance.choice(["GET", "PUT", "POST"])
        headers = {"Upgrade": "websocket", "Connection": "Upgrade"} if self.chance.random() < 0.2 else {}
        return method, path + self.query("entity", "api-version"), headers, self.json(fault)

    # --- what it is told ----------------------------------------------------------------------------------------------

    def ask(self, plane: str, data: bytes) -> int:
        """The checked status of the answer; 0 if damaged bytes got none."""
        for fresh in (False, True):
            if self.stream is None:
                endpoint = self.broker.endpoint()
                self.stream = socket.create_connection((endpoint.host, endpoint.port), PATIENCE_S)
            method = data.partition(b" ")[0].decode("latin-1")
            try:
                self.stream.sendall(data)
                if plane == "raw" or (plane == "damaged" and not self.answered(UNFINISHED_S)):
                    # A damaged length or blank line would wait for more.
                    self.stream.shutdown(socket.SHUT_WR)
                response = HTTPResponse(self.stream, method=method)
                response.begin()
                body = response.read()
            except TimeoutError as error:
                raise AssertionError(f"no answer within {PATIENCE_S} s to {data[:1500]!r}") from error
            except (HTTPException, OSError) as error:
                self.close()
                if plane in ("raw", "damaged"):
                    return 0
                # The broker may have closed the connection after the previous answer.
                if fresh:
                    raise AssertionError(f"no answer to {data[:1500]!r}") from error
                continue
            if plane in ("raw", "damaged") or response.will_close:
                self.close()
            if plane not in ("raw", "damaged"):
                self.check(plane, method, data, response, body)
            assert response.status != 500, data[:1500]
            return response.status
        raise AssertionError("unreachable")

    def answered(self, within_s: float) -> bool:
        return bool(select.select([self.stream], [], [], within_s)[0])

    def check(self, plane: str, method: str, data: bytes, response: HTTPResponse, body: bytes) -> None:
        told = f"{response.status} {body[:200]!r} to {data[:1500]!r}"
        assert response.status in DOCUMENTED, told
        if method == "HEAD" or response.status in (204, 304):
            return
        kind = response.headers.get("Content-Type", "")
        if "json" in kind and plane in ("console", "others"):
            found = json.loads(body, parse_constant=_not_json)
            assert response.status < 400 or found.get("error"), told
            self.token = found.get("token", self.token) if isinstance(found, dict) else self.token
        elif "xml" in kind and (plane == "admin" or response.status >= 400):
            ElementTree.fromstring(body)
        if "BrokerProperties" in response.headers:
            json.loads(response.headers["BrokerProperties"], parse_constant=_not_json)
        if "Location" in response.headers and plane == "rest":
            self.locks.append("/" + response.headers["Location"].partition("localhost/")[2])
            del self.locks[:-20]
        if "Set-Cookie" in response.headers:
            self.cookie = response.headers["Set-Cookie"].partition(";")[0]

    def greet(self) -> None:
        """Log in to the console, as the page does."""
        self.ask("console", b"GET /console/$api/login HTTP/1.1\r\nHost: localhost\r\n\r\n")

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()
            self.stream = None


def _not_json(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


def line(text: str) -> str:
    """A header's value must be one line; every other byte is allowed."""
    return "".join(" " if each in "\r\n\0" else each for each in text.encode("utf-8", "replace").decode("latin-1"))[
        :6000
    ]


def quoted(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="/$")


def cdata(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def fill(broker: Broker) -> int:
    """Put every odd message into a queue, some into the others; returns how many were accepted."""
    payloads = [each for place in PLACES for each in in_place(place).values()] + list(others().values())
    accepted = 0
    with Peer(broker) as peer:
        for entity, every in (("odd", 1), ("contoso/x-servicebus-transfer/0", 7), ("news", 7), ("dead", 7)):
            link = peer.sender(entity)
            taken = [isinstance(peer.send(link, payload), Accepted) for payload in payloads[::every]]
            accepted += sum(taken)
        receiver = peer.receiver("dead", sum(taken))
        for _ in range(sum(taken)):
            peer.settle(peer.receive(receiver), STATE_REJECTED_NO_ERROR)
    return accepted


def run(budget: Budget) -> str:
    """Send odd HTTP requests to the broker: documented answers only, and no failure in its log."""
    queues = [QueueSettings(path=path) for path in ("odd", "dead", "contoso/x-servicebus-transfer/0")]
    queues += [QueueSettings(path="s", requires_session=True), QueueSettings(path="off", status="Disabled")]
    statuses: Counter[int] = Counter()
    with listening() as complaints, Broker(queues=queues, sync=False) as broker:
        broker.create_topic("news")
        broker.create_subscription("news", "a")
        messages = fill(broker)
        assert messages > 500
        with closing(Visitor(broker, random.Random(budget.seed))) as visitor:
            visitor.greet()
            for chance in budget:
                visitor.chance = chance
                plane, data = visitor.request()
                status = visitor.ask(plane, data)
                statuses[status] += 1
                assert not complaints.lines, f"{complaints.lines[0][-3000:]}\nafter {data[:1500]!r}"
                if status == 401 and plane == "console":
                    visitor.greet()
    told = ", ".join(f"{count:,} x {status or 'cut'}" for status, count in sorted(statuses.items()))
    return f"{budget.tried:,} requests among {messages:,} odd messages: {told}; no 500, no failure in the log"


@contextmanager
def planted() -> Iterator[None]:
    """The console treats every sequence number as one."""
    sound = console_messages.number
    console_messages.number = lambda query, name, default: int(query.get(name, default))
    try:
        yield
    finally:
        console_messages.number = sound


SUITE = Suite("requests", 1_500, 200_000, run, planted)
