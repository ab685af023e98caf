"""The records of the ledger, and their form as lines of JSON.

Rules:
- A line is one JSON object with flat fields, the format's number first; every type uses the same names for the same
  things, so that a reader can have one schema for all.
- A record holds names, numbers and conditions, never texts that somebody else wrote: those could hold a secret.
- What is written is trusted, what is read is not: `decode` checks every field and says which one is wrong.
- Most lines differ from others in their numbers only: `OperationReader` has the rest decoded once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, ClassVar, Final

from twinbus.errors import LedgerError
from twinbus.ledger.words import OK, Event, Kind, LedgerSource, Stage, stage_of
from twinbus.limits import LEDGER_LINE_BYTES_MAX, OPERATION_STEP_BYTES, TIME_MS_MAX

FORMAT: Final = 1

# Upper ends of the buckets of a latency record, in ms: 1, 2, 4 ... about 24 days; one more bucket has the rest.
LATENCY_BOUNDS_MS: Final = tuple(2**power for power in range(32))

# Numbers beyond these are not what anybody counted, and sums of them would overflow.
COUNT_MAX: Final = 2**40
_DURATION_MS_MAX: Final = 2**53
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9:._-]{0,127}", re.ASCII)
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)
# An id as writers make it: a run, and a number without zeros before it, so that one number has one id.
_WRITERS_ID: Final = re.compile(r"([A-Za-z0-9._-]{1,111})-([1-9a-f][0-9a-f]{0,14})", re.ASCII)
_DIGITS: Final = "(0|[1-9][0-9]{0,15})"
_OPERATIONS_LINE: Final = re.compile(
    rf'\{{"v":{FORMAT},"type":"operations","id":"{_WRITERS_ID.pattern}","start_ms":{_DIGITS},"end_ms":{_DIGITS}'
    rf'(,"source".*?),"count":{_DIGITS},"bytes":{_DIGITS},"units":{_DIGITS}\}}'.encode()
)
_NAMES_KNOWN_MAX: Final = 100_000


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
class ConnectionsRecord(LedgerRecord):
    """The most connections that a namespace had at once in the interval; the entity is empty."""

    type: ClassVar[str] = "connections"

    peak: int


TYPES: Final[dict[str, type[LedgerRecord]]] = {
    each.type: each for each in (Operations, FailoverEvent, Backlog, Latency, ConnectionsRecord)
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
            ConnectionsRecord(
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
        raise LedgerError(f"the line is too long: a record has at most {LEDGER_LINE_BYTES_MAX} bytes")
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
    values: dict[str, Any] = {}
    for field in _NAMES[kind.type]:
        if _there(kind, field, found):
            check: Check = _CHECKS.get(field, _number)
            values[field] = check(field, found[field])
    record = kind(**values)
    _check_whole(record)
    return record


def run_and_number(record_id: str) -> tuple[str, int]:
    """The writer's run and the record's number. An id that no writer of ours made is a run of its own."""
    found = _WRITERS_ID.fullmatch(record_id)
    return (found[1], int(found[2], 16)) if found else (f"={record_id}", 0)


# Run, number, start in ms, names (source, namespace, entity, kind, stage, outcome), count, bytes and units.
OperationFields = tuple[str, int, int, tuple[str, ...], int, int, int]


class OperationReader:
    """Reads lines of operations that `OperationLines` made: those that differ from a decoded one in numbers only."""

    def __init__(self) -> None:
        # The text between the times and the counts -> the names in it, as `decode` gave them.
        self._names: dict[bytes, tuple[str, ...]] = {}

    def read(self, line: bytes) -> OperationFields | None:
        """The fields of a line; None: ask `decode`."""
        found = _OPERATIONS_LINE.fullmatch(line)
        if found is None:
            return None
        run, digits, start, end, text, *counts = found.groups()
        names = self._names.get(text)
        if names is None and (names := self._learn(line, text)) is None:
            return None
        start_ms, (count, size, units) = int(start), map(int, counts)
        if not (start_ms <= int(end) <= TIME_MS_MAX and 1 <= count <= units <= COUNT_MAX and size <= COUNT_MAX):
            return None
        return run.decode(), int(digits, 16), start_ms, names, count, size, units

    def fields(self, record: Operations) -> OperationFields:
        """The same of a decoded record."""
        return (*run_and_number(record.id), record.start_ms, _names(record), record.count, record.bytes, record.units)

    def _learn(self, line: bytes, text: bytes) -> tuple[str, ...] | None:
        try:
            record = decode(line)
        except LedgerError:
            return None
        if not isinstance(record, Operations) or encode(record).encode()[:-1] != line:
            return None
        if len(self._names) >= _NAMES_KNOWN_MAX:
            self._names.clear()
        self._names[text] = _names(record)
        return self._names[text]


def _names(record: Operations) -> tuple[str, ...]:
    found = (record.source, record.namespace, record.entity, record.kind, record.stage, record.outcome)
    return tuple(str(each) for each in found)


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
    most = _NUMBERS_MAX.get(field, COUNT_MAX)
    if not _is_number(value) or not 0 <= value <= most:
        raise LedgerError(f"'{field}' is not a whole number from 0 to {most}")
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


Check = Callable[[str, Any], Any]


def _member_of(kind: type[StrEnum]) -> Check:
    known = {each.value: each for each in kind}

    def check(field: str, value: Any) -> StrEnum:
        if not isinstance(value, str) or value not in known:
            raise LedgerError(f"'{field}' is not one of {', '.join(known)}")
        return known[value]

    return check


def _buckets(field: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > len(LATENCY_BOUNDS_MS) + 1:
        raise LedgerError(f"'{field}' is not a list of at most {len(LATENCY_BOUNDS_MS) + 1} counts")
    return tuple(_number(field, each) for each in value)


_NUMBERS_MAX: Final = {
    **dict.fromkeys(("start_ms", "end_ms"), TIME_MS_MAX),
    **dict.fromkeys(("sum_ms", "max_ms", "oldest_ms"), _DURATION_MS_MAX),
}
# Every other field is a number.
_CHECKS: Final[dict[str, Check]] = {
    "id": _record_id,
    "source": _member_of(LedgerSource),
    "stage": _member_of(Stage),
    "event": _member_of(Event),
    **dict.fromkeys(("kind", "outcome", "cause"), _word),
    **dict.fromkeys(("namespace", "entity", "target", "queue"), _name),
    "buckets": _buckets,
}
