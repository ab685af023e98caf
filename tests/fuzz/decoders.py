"""What clients write and we decode: each decoder with inputs to start from and the errors it may raise beside ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.broker.odd_messages import in_place, others
from tests.fuzz.fuzz_amqp import OPENING, one_input
from twinbus import durations
from twinbus.amqp import AmqpMessage, decode, encode, locate, skip
from twinbus.auth import sas
from twinbus.auth.claims import decide
from twinbus.auth.connection_string import ConnectionString
from twinbus.auth.jwt import keys_of_jwks
from twinbus.auth.policies import Policies, Policy, Right
from twinbus.broker.configuration.file import parse_config
from twinbus.broker.http.admin.entity_xml import settings_in
from twinbus.broker.http.admin.xml_in import description_in
from twinbus.broker.http.admin.xml_out import ATOM, SERVICE
from twinbus.broker.http.rest.properties import batch_of, message_of, properties_of
from twinbus.client import envelope
from twinbus.entities import records
from twinbus.entities.filters import SqlAction, SqlFilter
from twinbus.ledger.records import decode as ledger_record

Decoder = tuple[Callable[[bytes], Any], list[bytes], tuple[type[Exception], ...]]


def value(data: bytes) -> None:
    found, end = decode(data)
    assert skip(data, 0) == end
    assert encode(decode(encode(found))[0]) == encode(found)


def message(data: bytes) -> None:
    locate(data)
    AmqpMessage.decode(data).encode()


def entry(data: bytes) -> None:
    _, description = description_in(data)
    settings_in(description, "queue")


def configuration(suffix: str) -> Callable[[bytes], Any]:
    return lambda data: parse_config(data.decode("utf-8", "replace"), Path(f"twinbus{suffix}"))


def broker_properties(data: bytes) -> None:
    head, _, rest = data.decode("latin-1").partition("\n")
    message_of(b"x", None, head, properties_of({"Name": rest})).encode()


def token(data: bytes) -> None:
    decide(data.decode("utf-8", "replace"), "sb://h/q", POLICIES, 1_700_000_000)


def text(read: Callable[[str], Any]) -> Callable[[bytes], Any]:
    return lambda data: read(data.decode("utf-8", "surrogateescape"))


MESSAGES = [*in_place("application property").values(), *others().values()]
WRAPPED = [envelope.wrap(AmqpMessage.of_value("v").encode(), "orders")]
ENTRY = (
    f'<entry xmlns="{ATOM}"><content><QueueDescription xmlns="{SERVICE}"><LockDuration>PT1M</LockDuration>'
    "<MaxSizeInMegabytes>5</MaxSizeInMegabytes><RequiresSession>true</RequiresSession></QueueDescription></content></entry>"
).encode()
SQL = [
    b"a = 'b' AND NOT (c > 1.5 OR d LIKE '%x_' ESCAPE '\\')",
    b"sys.Label IN ('a', 'b') AND EXISTS(e)",
    b"-a % 3 <> @p",
]
POLICIES = Policies([Policy("k", frozenset(Right), "a2V5")])
TOML = b"""[namespaces.n]
port = 5672
[namespaces.n.queues.orders]
lock_duration = "PT1M"
[namespaces.n.topics.t.subscriptions.s.rules.r]
sql = "a = 1"
"""
EMULATOR = b"""{"UserConfig": {"Namespaces": [{"Name": "n",
"Queues": [{"Name": "q", "Properties": {"LockDuration": "PT1M"}}],
"Topics": [{"Name": "t", "Subscriptions": [{"Name": "s", "Rules": []}]}]}], "Logging": {"Type": "File"}}}"""
PROPERTIES = b'{"MessageId":"1","TimeToLive":5,"ScheduledEnqueueTimeUtc":"Tue, 15 Nov 1994 08:12:31 GMT"}\n"x"'
LINE = b'{"kind":"operations","id":"1","at":"2024-01-01T00:00:00Z","count":1}'
RECORD = bytes(range(40))
DUPLICATE = records.pack_duplicate(1_700_000_000_000, "id")
SESSION = records.pack_session("s", 1_700_000_000_000, b"state")

DECODERS: dict[str, Decoder] = {
    "server": (lambda data: one_input(b"\0" + data), [OPENING], ()),
    "open server": (lambda data: one_input(b"\1" + data), [OPENING], ()),
    "client": (lambda data: one_input(b"\2" + data), [OPENING], ()),
    "value": (value, [each[3:] for each in MESSAGES], ()),
    "message": (message, MESSAGES, ()),
    "envelope": (envelope.unwrap, WRAPPED, ()),
    "SQL filter": (text(SqlFilter), SQL, ()),
    "SQL action": (text(SqlAction), [b"SET a = b + 1; REMOVE c; SET sys.Label = 'x'"], ()),
    "description": (entry, [ENTRY], ()),
    "batch": (batch_of, [b'[{"Body":"x","BrokerProperties":{"TimeToLive":5},"UserProperties":{"a":1}}]'], ()),
    "SAS token": (text(sas.parse), [sas.sign("sb://h/q", "k", "a2V5", 1_800_000_000).encode()], ()),
    "connection string": (
        text(ConnectionString.parse),
        [b"Endpoint=sb://h:5672/;SharedAccessKeyName=k;SharedAccessKey=a2V5;EntityPath=q"],
        (),
    ),
    "token": (token, [sas.sign("sb://h/q", "k", "a2V5", 1_800_000_000).encode(), b"eyJh.eyJi.c2ln"], ()),
    "broker properties": (broker_properties, [PROPERTIES], ()),
    "configuration": (configuration(".toml"), [TOML], ()),
    "emulator configuration": (configuration(".json"), [EMULATOR], ()),
    "key set": (text(keys_of_jwks), [b'{"keys":[{"kty":"RSA","kid":"1","n":"AQAB","e":"AQAB"}]}'], ()),
    "duration": (text(durations.parse_ms), [b"P1DT2H3M4.5S", b"00:05:00", b"5m"], (ValueError,)),
    # The store's own records: whoever reads them puts aside what raises one of these.
    "index record": (records.unpack, [RECORD], (ValueError,)),
    "duplicate record": (records.unpack_duplicate, [DUPLICATE], (ValueError,)),
    "session record": (records.unpack_session, [SESSION], (ValueError,)),
    "ledger line": (ledger_record, [LINE], ()),
}
