"""The records of the ledger, and their form as lines of JSON.

Rules:
- A line is one JSON object with flat fields, the format's number first; every type uses the same names for the same
  things, so that a reader can have one schema for all.
- A record holds names, numbers and conditions, never texts that somebody else wrote: those could hold a secret.
- What is written is trusted, what is read is not: `decode` checks every field and says which one is wrong.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

from twinbus.errors import LedgerError
from twinbus.ledger.words import OK, Event, Kind, LedgerSource, Stage, stage_of
from twinbus.limits import LEDGER_LINE_BYTES_MAX, OPERATION_STEP_BYTES

FORMAT: Final = 1

# Upper ends of the buckets of a latency record, in ms: 1, 2, 4 ... about 24 days; one more bucket has the rest.
LATENCY_BOUNDS_MS: Final = tuple(2**power for power in range(32))

_NUMBER_MAX: Final = 2**63 - 1
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9:._-]{0,127}", re.ASCII)
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)


def units_of(size_bytes: int) -> int:
    """What one operation on that many bytes counts for: one for each 64 KB begun, at least one."""
    if size_bytes <= OPERATION_STEP_BYTES:
        return 1
    return -(-size_bytes // OPERATION_STEP_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecord:
    """What every record has. `start_ms` and `end_ms` are the interval it speaks of, ms UTC; a moment has them equal."""

    type: ClassVar[str] = ""

    id: str
    start_ms: int
    end_ms: int
    source: LedgerSource
    namespace: str
    entity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations(LedgerRecord):
    """Operations of one kind with one outcome on one entity."""

    type: ClassVar[str] = "operations"

    kind: str
    stage: Stage
    outcome: str
    count: int
    bytes: int
    units: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverEvent(LedgerRecord):
    """An event of a pair: `queue` is the backlog queue it is about, `cause` the condition or the error's class."""

    type: ClassVar[str] = "failover"

    event: Event
    target: str | None = None
    queue: str | None = None
    cause: str | None = None
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog(LedgerRecord):
    """A look at one backlog queue, which is the entity."""

    type: ClassVar[str] = "backlog"

    depth: int
    depth_bytes: int
    oldest_ms: int
    dead: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency(LedgerRecord):
    """How long messages for the entity were under way through the backlog: `buckets` go by LATENCY_BOUNDS_MS."""

    type: ClassVar[str] = "latency"

    queue: str | None = None
    count: int
    sum_ms: int
    max_ms: int
    buckets: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionPeak(LedgerRecord):
    """The most connections that a namespace had at once in the interval; the entity is empty."""

    type: ClassVar[str] = "connections"

    peak: int


TYPES: Final[dict[str, type[LedgerRecord]]] = {
    each.type: each for each in (Operations, FailoverEvent, Backlog, Latency, ConnectionPeak)
}
_NAMES: Final[dict[str, tuple[str, ...]]] = {name: tuple(f.name for f in fields(t)) for name, t in TYPES.items()}
# Fields that may be absent.
_OPTIONAL: Final = frozenset({"target", "queue", "cause"})


def encode(record: LedgerRecord) -> str:
    """The record's line, with its end. For many operations of one kind `OperationLines` is faster."""
    found: dict[str, Any] = {"v": FORMAT, "type": record.type}
    for name in _NAMES[record.type]:
        value = getattr(record, name)
        if value is not None:
            found[name] = value
    return json.dumps(found, separators=(",", ":")) + "\n"


class OperationLines:
    """Makes the lines of operations that differ in their numbers only: the rest of the text is made once."""

    __slots__ = ("_head", "_tail")

    def __init__(self, source: LedgerSource, namespace: str, entity: str, kind: Kind, outcome: str = OK) -> None:
        self._head = f'{{"v":{FORMAT},"type":"operations","id":"'
        self._tail = (
            f',"source":{json.dumps(source)},"namespace":{json.dumps(namespace)},"entity":{json.dumps(entity)},'
            f'"kind":{json.dumps(kind)},"stage":{json.dumps(stage_of(entity, kind))},"outcome":{json.dumps(outcome)}'
        )

    def line(self, record_id: str, start_ms: int, end_ms: int, count: int, size_bytes: int, units: int) -> str:
        return (
            f'{self._head}{record_id}","start_ms":{start_ms},"end_ms":{end_ms}{self._tail},'
            f'"count":{count},"bytes":{size_bytes},"units":{units}}}\n'
        )


class ConnectionLines:
    """Makes the lines of a namespace's connections; used as `OperationLines` are, with the peak as the count."""

    __slots__ = ("_namespace", "_source")

    def __init__(self, source: LedgerSource, namespace: str) -> None:
        self._source = source
        self._namespace = namespace

    def line(self, record_id: str, start_ms: int, end_ms: int, count: int, size_bytes: int, units: int) -> str:
        return encode(
            ConnectionPeak(
                id=record_id,
                start_ms=start_ms,
                end_ms=end_ms,
                source=self._source,
                namespace=self._namespace,
                entity="",
                peak=count,
            )
        )


# --- reading ---------------------------------------------------------------------------------------------------------


def decode(line: str | bytes) -> LedgerRecord:
    """The record of a line; LedgerError says what is wrong with it."""
    if len(line) > LEDGER_LINE_BYTES_MAX:
        raise LedgerError(f"the line has {len(line)} bytes, a record has at most {LEDGER_LINE_BYTES_MAX}")
    try:
        found = json.loads(line)
    except UnicodeDecodeError:
        raise LedgerError("the line is not UTF-8") from None
    except ValueError as error:
        raise LedgerError(f"the line is not JSON: {getattr(error, 'msg', 'a number is out of range')}") from None
    except RecursionError:
        raise LedgerError("the line is nested too deep") from None
    if not isinstance(found, dict):
        raise LedgerError("the line is not a JSON object")
    version = _number("v", found.get("v"))
    if version > FORMAT:
        raise LedgerError(f"the record has format {version}, this version reads up to {FORMAT}")
    name = found.get("type")
    kind = TYPES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise LedgerError(f"the record's type is not one of {', '.join(TYPES)}")
    values = {field: _CHECKS[field](field, found[field]) for field in _NAMES[kind.type] if _there(kind, field, found)}
    record = kind(**values)
    _check_whole(record)
    return record


def _there(kind: type[LedgerRecord], field: str, found: dict[str, Any]) -> bool:
    if found.get(field) is not None:
        return True
    if field in _OPTIONAL or (kind is FailoverEvent and field == "count") or field == "dead":
        return False
    raise LedgerError(f"the record has no field '{field}'")


def _check_whole(record: LedgerRecord) -> None:
    if record.end_ms < record.start_ms:
        raise LedgerError("the interval ends before it starts")
    if isinstance(record, Operations):
        if record.count < 1:
            raise LedgerError("the record counts no operation")
        if record.units < record.count:
            raise LedgerError("'units' is less than 'count': each operation is at least one unit")
    elif isinstance(record, Latency) and sum(record.buckets) != record.count:
        raise LedgerError("'buckets' do not add up to 'count'")


def _is_number(value: Any) -> bool:
    # A bool is an int to Python, not to a ledger.
    return isinstance(value, int) and not isinstance(value, bool)


def _number(field: str, value: Any) -> int:
    if not _is_number(value) or not 0 <= value <= _NUMBER_MAX:
        raise LedgerError(f"'{field}' is not a whole number from 0 to {_NUMBER_MAX}")
    number: int = value
    return number


def _name(field: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > 1_024:
        raise LedgerError(f"'{field}' is not a name")
    return value


def _word(field: str, value: Any) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise LedgerError(f"'{field}' is not a word of letters, digits and `: . _ -`")
    return value


def _record_id(field: str, value: Any) -> str:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise LedgerError(f"'{field}' is not an id")
    return value


def _source(field: str, value: Any) -> LedgerSource:
    return LedgerSource(_member(field, value, LedgerSource))


def _stage(field: str, value: Any) -> Stage:
    return Stage(_member(field, value, Stage))


def _event(field: str, value: Any) -> Event:
    return Event(_member(field, value, Event))


def _member(field: str, value: Any, kind: type[LedgerSource] | type[Stage] | type[Event]) -> str:
    known = [each.value for each in kind]
    if not isinstance(value, str) or value not in known:
        raise LedgerError(f"'{field}' is not one of {', '.join(known)}")
    return value


def _buckets(field: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > len(LATENCY_BOUNDS_MS) + 1:
        raise LedgerError(f"'{field}' is not a list of at most {len(LATENCY_BOUNDS_MS) + 1} counts")
    return tuple(_number(field, each) for each in value)


_CHECKS: Final[dict[str, Any]] = {
    "id": _record_id,
    "source": _source,
    "stage": _stage,
    "event": _event,
    "kind": _word,
    "outcome": _word,
    "cause": _word,
    "namespace": _name,
    "entity": _name,
    "target": _name,
    "queue": _name,
    "buckets": _buckets,
    **dict.fromkeys(
        (
            "start_ms",
            "end_ms",
            "count",
            "bytes",
            "units",
            "depth",
            "depth_bytes",
            "oldest_ms",
            "dead",
            "sum_ms",
            "max_ms",
            "peak",
        ),
        _number,
    ),
}
