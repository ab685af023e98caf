"""The records of the ledger and their encoding as JSON lines.

Rules:
- A line is one JSON object with flat fields, starting with the format number. All types use the same names for the same
  things, so a reader can use one schema for all.
- A record holds names, numbers and conditions, but never free text from others, which could contain a secret.
- Writers are trusted, readers trust nothing: `decode` checks every field and names the one that is wrong.
- Most lines differ only in their numbers, so `OperationReader` decodes the rest only once.
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

# Upper bounds of the buckets of a latency record, in ms: 1, 2, 4, ... about 25 days; one more bucket holds the rest.
LATENCY_BOUNDS_MS: Final = tuple(2**power for power in range(32))

# Larger numbers are implausible, and their sums could overflow.
COUNT_MAX: Final = 2**40
_DURATION_MS_MAX: Final = 2**53
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9:._-]{0,127}", re.ASCII)
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)
# An id as our writers form it: a run and a number without leading zeros, so that each number has one id.
_WRITERS_ID: Final = re.compile(r"([A-Za-z0-9._-]{1,111})-([1-9a-f][0-9a-f]{0,14})", re.ASCII)
# JSON can escape one alone, but it is not UTF-8, and a table could not store it.
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_DIGITS: Final = "(0|[1-9][0-9]{0,15})"
_OPERATIONS_LINE: Final = re.compile(
    rf'\{{"v":{FORMAT},"type":"operations","id":"{_WRITERS_ID.pattern}","start_ms":{_DIGITS},"end_ms":{_DIGITS}'
    rf'(,"source".*?),"count":{_DIGITS},"bytes":{_DIGITS},"units":{_DIGITS}\}}'.encode()
)
_NAMES_KNOWN_MAX: Final = 100_000


def units_of(size_bytes: int) -> int:
    """Return the units of one operation: one per started 64 KB, at least one."""
    if size_bytes <= OPERATION_STEP_BYTES:
        return 1
    return -(-size_bytes // OPERATION_STEP_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecord:
    """The fields of every record. `start_ms` and `end_ms` are its interval in UTC, equal for a single moment."""

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
    """An event of a pair. `queue` is the backlog queue concerned, `cause` the condition or the error's class."""

    type: ClassVar[str] = "failover"

    event: Event
    target: str | None = None
    queue: str | None = None
    cause: str | None = None
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog(LedgerRecord):
    """The state of one backlog queue, which is the entity."""

    type: ClassVar[str] = "backlog"

    depth: int
    depth_bytes: int
    oldest_ms: int
    dead: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency(LedgerRecord):
    """How long messages for the entity took through the backlog; `buckets` follow LATENCY_BOUNDS_MS."""

    type: ClassVar[str] = "latency"

    queue: str | None = None
    count: int
    sum_ms: int
    max_ms: int
    buckets: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionsRecord(LedgerRecord):
    """The peak number of connections of a namespace in the interval; the entity is empty."""

    type: ClassVar[str] = "connections"

    peak: int


TYPES: Final[dict[str, type[LedgerRecord]]] = {
    each.type: each for each in (Operations, FailoverEvent, Backlog, Latency, ConnectionsRecord)
}
_NAMES: Final[dict[str, tuple[str, ...]]] = {name: tuple(f.name for f in fields(t)) for name, t in TYPES.items()}
# Fields that may be absent.
_OPTIONAL: Final = frozenset({"target", "queue", "cause"})


def encode(record: LedgerRecord) -> str:
    """Encode a record as a line. For many operations of one kind `OperationLines` is faster."""
    found: dict[str, Any] = {"v": FORMAT, "type": record.type}
    for name in _NAMES[record.type]:
        value = getattr(record, name)
        if value is not None:
            found[name] = value
    return json.dumps(found, separators=(",", ":")) + "\n"


class OperationLines:
    """Builds lines of operations that differ only in their numbers, from a prepared text."""

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
    """Builds lines of a namespace's connections; used like `OperationLines`, with the peak as the count."""

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
    """Decode a line; LedgerError says what is wrong with it."""
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
    """Return the writer's run and the record's number. An id of another form is a run of its own."""
    found = _WRITERS_ID.fullmatch(record_id)
    return (found[1], int(found[2], 16)) if found else (f"={record_id}", 0)


# Run, number, start in ms, names (source, namespace, entity, kind, stage, outcome), count, bytes and units.
OperationFields = tuple[str, int, int, tuple[str, ...], int, int, int]


class OperationReader:
    """Reads lines of `OperationLines` fast, if they differ from a decoded line only in numbers."""

    def __init__(self) -> None:
        # The text between the times and the counts -> the names in it, as decoded.
        self._names: dict[bytes, tuple[str, ...]] = {}

    def read(self, line: bytes) -> OperationFields | None:
        """Return the fields of a line, or None if `decode` is needed."""
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
        """Return the same fields of a decoded record."""
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
    # In Python a bool is an int, but not in a ledger.
    return isinstance(value, int) and not isinstance(value, bool)


def _number(field: str, value: Any) -> int:
    most = _NUMBERS_MAX.get(field, COUNT_MAX)
    if not _is_number(value) or not 0 <= value <= most:
        raise LedgerError(f"'{field}' is not a whole number from 0 to {most}")
    number: int = value
    return number


def _name(field: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > 1_024 or _SURROGATE.search(value):
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
