"""Bytes and texts that clients write, changed at random, given to each decoder.

Promise: a decoder returns a value or raises an error of ours, and nothing else. `tests/fuzz/fuzz_amqp.py` does the same
guided by coverage where atheris is installed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.broker.odd_messages import in_place, others
from tests.fuzz.fuzz_amqp import OPENING, one_input
from tests.proof.suite import Budget, Suite
from twinbus import durations
from twinbus.amqp import AmqpMessage, decode, encode, locate, skip
from twinbus.auth import sas
from twinbus.auth.connection_string import ConnectionString
from twinbus.auth.jwt import keys_of_jwks
from twinbus.broker.http.admin.entity_xml import settings_in
from twinbus.broker.http.admin.xml_in import description_in
from twinbus.broker.http.admin.xml_out import ATOM, SERVICE
from twinbus.broker.http.rest.properties import batch_of
from twinbus.client import envelope
from twinbus.entities import records
from twinbus.entities.filters import SqlAction, SqlFilter
from twinbus.errors import TwinbusError
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
    "key set": (text(keys_of_jwks), [b'{"keys":[{"kty":"RSA","kid":"1","n":"AQAB","e":"AQAB"}]}'], ()),
    "duration": (text(durations.parse_ms), [b"P1DT2H3M4.5S", b"00:05:00", b"5m"], (ValueError,)),
    # The store's own records: whoever reads them puts aside what raises one of these.
    "index record": (records.unpack, [RECORD], (ValueError,)),
    "duplicate record": (records.unpack_duplicate, [DUPLICATE], (ValueError,)),
    "session record": (records.unpack_session, [SESSION], (ValueError,)),
    "ledger line": (ledger_record, [LINE], ()),
}


def changed(data: bytes, chance: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(found) + 1)
        what = chance.randrange(5)
        if what == 0 and at < len(found):
            found[at] ^= 1 << chance.randrange(8)
        elif what == 1:
            found[at : at + 1] = chance.randbytes(1)
        elif what == 2:
            del found[at : at + chance.randrange(8)]
        elif what == 3:
            found[at:at] = found[at : at + chance.randrange(30)] * chance.randrange(1, 4)
        else:
            found[at:at] = chance.choice([b"\xff" * 4, b"\0", b"9" * 20, b"((", b'"', b"\xc0\x02\x01", b"\xf0", b"&x;"])
    return bytes(found)


def run(budget: Budget) -> str:
    """Give changed bytes to the decoders in turn: a value or an error of ours, nothing else."""
    names = list(DECODERS)
    refused = 0
    for chance in budget:
        name = names[budget.tried % len(names)]
        work, corpus, allowed = DECODERS[name]
        data = changed(chance.choice(corpus), chance)
        try:
            work(data)
        except (TwinbusError, *allowed):
            refused += 1
        except Exception as error:
            raise AssertionError(f"{name} raised {error!r} for {data.hex()}") from error
    return f"{budget.tried:,} inputs to {len(names)} decoders, {refused:,} refused, no other error"


@contextmanager
def planted() -> Iterator[None]:
    """A decoder forgets to look at the end of its input."""
    sound = DECODERS["value"]
    DECODERS["value"] = (lambda data: data[data[0]], sound[1], ())
    try:
        yield
    finally:
        DECODERS["value"] = sound


SUITE = Suite("inputs", 20_000, 10_000_000, run, planted)
