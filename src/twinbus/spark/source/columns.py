"""The columns of the source and the sink: one table, from which schemas and checks are derived.

- The source returns all columns, or those that the user's own schema names; it decodes no others.
- The sink accepts all columns. Those that only a service can set are ignored, so that rows can be written as they were
  read.
- An unknown column or a wrong type is an error that says what is expected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from twinbus.errors import ConfigError
from twinbus.spelling import did_you_mean

_TEXT: Final = StringType()
_TIME: Final = TimestampType()
_MAP: Final = MapType(_TEXT, _TEXT, True)


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its type, whether the source returns it, and whether the sink sends it."""

    name: str
    kind: DataType
    read: bool = True
    written: bool = True
    # Other types that the sink accepts, and that the source returns if a schema asks for them.
    also: tuple[type[DataType], ...] = ()


_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)

COLUMNS: Final = (
    Column("body", BinaryType(), also=(StringType,)),
    Column("messageId", _TEXT),
    Column("sessionId", _TEXT),
    Column("correlationId", _TEXT),
    Column("subject", _TEXT),
    Column("contentType", _TEXT),
    Column("to", _TEXT),
    Column("replyTo", _TEXT),
    Column("partitionKey", _TEXT),
    Column("sequenceNumber", LongType(), written=False),
    Column("enqueuedTime", _TIME, written=False),
    Column("scheduledEnqueueTime", _TIME, also=(TimestampNTZType,)),
    Column("expiresAt", _TIME, written=False),
    Column("deliveryCount", IntegerType(), written=False),
    Column("state", _TEXT, written=False),
    Column("deadLetterReason", _TEXT, written=False),
    Column("deadLetterErrorDescription", _TEXT, written=False),
    Column("entity", _TEXT),
    Column("namespace", _TEXT, written=False),
    Column("properties", _MAP),
    Column("replyToSessionId", _TEXT, read=False),
    # The whole encoded message if it cannot be decoded. The sink rejects such a row.
    Column("_corrupt", BinaryType()),
    Column("timeToLive", LongType(), read=False, also=(*_WHOLE, DayTimeIntervalType)),
)
_BY_NAME: Final = {column.name.lower(): column for column in COLUMNS}


def source_schema(*, include_body: bool) -> StructType:
    """The source's default schema."""
    fields = [
        StructField(column.name, column.kind)
        for column in COLUMNS
        if column.read and (include_body or column.name != "body")
    ]
    return StructType(fields)


def check_source(schema: StructType) -> None:
    """Raise ConfigError if the source cannot return this schema."""
    seen: set[str] = set()
    for field in schema.fields:
        column = _known(field.name, reading=True)
        if column.name != field.name:
            raise ConfigError(f"The source's column is written {column.name!r}, not {field.name!r}.")
        if column.name in seen:
            raise ConfigError(f"The schema has the column {column.name!r} twice.")
        seen.add(column.name)
        asked = type(field.dataType)
        same = asked is type(column.kind) and (asked is not MapType or _is_text_map(field.dataType))
        if not same and not (column.name == "body" and asked is StringType):
            raise ConfigError(
                f"The source gives {field.name!r} as {column.kind.simpleString()}, not "
                f"{field.dataType.simpleString()}: read it so and cast it."
            )


def check_sink(schema: StructType) -> dict[str, int]:
    """The positions of the columns to send; raises ConfigError for a column that cannot be sent."""
    places: dict[str, int] = {}
    for index, field in enumerate(schema.fields):
        column = _known(field.name, reading=False)
        if not column.written:
            continue
        if column.name in places:
            raise ConfigError(f"The rows have the column {column.name!r} twice.")
        asked = type(field.dataType)
        if asked is not type(column.kind) and asked not in column.also:
            raise ConfigError(
                f"The sink takes {column.name!r} as {column.kind.simpleString()}, not "
                f"{field.dataType.simpleString()}: cast it."
            )
        if column.name == "properties" and not _is_text_map(field.dataType):
            raise ConfigError("The sink takes 'properties' as map<string,string>: make the values JSON text.")
        places[column.name] = index
    if "body" not in places:
        raise ConfigError(
            "The rows have no column 'body'. Make one, for example "
            "df.selectExpr('to_json(struct(*)) AS body'), binary or string."
        )
    return places


def _is_text_map(kind: DataType) -> bool:
    return kind.simpleString() == _MAP.simpleString()


def _known(name: str, *, reading: bool) -> Column:
    column = _BY_NAME.get(name.lower())
    if column is not None and (column.read or not reading):
        return column
    known = [each.name for each in COLUMNS if each.read or not reading]
    hint = did_you_mean(name, known, f"It has {', '.join(known)}.")
    raise ConfigError(f"The servicebus {'source' if reading else 'sink'} has no column {name!r}.{hint}")
