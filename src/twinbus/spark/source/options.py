"""The options of the source and the sink, checked before anything connects.

- Names are case-insensitive, as in Spark; the error for an unknown name suggests the nearest.
- Contradictory or missing options are errors that say what to write instead.
- An option that only the other side uses is accepted: `readStream` and `writeStream` may share options.
- No error and no repr contains a secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, TypeVar

from twinbus.errors import ConfigError
from twinbus.limits import (
    BATCH_MESSAGES_MAX,
    CONFIG_FILE_BYTES_MAX,
    ENTITY_PATH_CHARS_MAX,
    PREFETCH_MAX,
    SPARK_BROWSE_MESSAGES_DEFAULT,
    SPARK_CLAIM_MESSAGES_DEFAULT,
    SPARK_CLAIM_NAME_CHARS_MAX,
    SPARK_DELAY_S_DEFAULT,
    SPARK_JOB_ID_CHARS_MAX,
    SPARK_PARTITIONS_MAX,
    SPARK_SEND_MESSAGES_DEFAULT,
    SPARK_TRIGGER_MESSAGES_MAX,
    SPARK_WAIT_S_DEFAULT,
    SPARK_WAIT_S_MAX,
    SPARK_WAIT_S_MIN,
)
from twinbus.spark.source.access import Access
from twinbus.spelling import did_you_mean

E = TypeVar("E", bound=StrEnum)

NAMES: Final = (
    "connectionString",
    "connectionStringEnv",
    "connectionStringFile",
    "fullyQualifiedNamespace",
    "credential",
    "caFile",
    "webSocket",
    "queueName",
    "topicName",
    "subscriptionName",
    "subQueue",
    "readMode",
    "claimName",
    "startingSequenceNumber",
    "endingSequenceNumber",
    "startingTimestamp",
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
    "minMessagesPerTrigger",
    "maxTriggerDelay",
    "numPartitions",
    "minPartitions",
    "maxWaitTime",
    "prefetchCount",
    "includeBody",
    "failOnDataLoss",
    "pushdown",
    "messageIdMode",
    "jobId",
    "batchSize",
    "onError",
    "deadLetterQueueName",
    "errorTablePath",
    "duplicateDetection",
    "useEntityColumn",
)
# Names from other connectors, and Spark's name for the argument of `load` and `save`.
ALIASES: Final = {
    "maxEventsPerTrigger": "maxMessagesPerTrigger",
    "maxOffsetsPerTrigger": "maxMessagesPerTrigger",
    "minOffsetsPerTrigger": "minMessagesPerTrigger",
    "path": "queueName",
}
# Spark also passes its own options to the source.
_SPARKS: Final = frozenset({"checkpointlocation", "queryname"})

_KNOWN: Final = {name.lower(): name for name in NAMES} | {alias.lower(): name for alias, name in ALIASES.items()}
_TRUTH: Final = {"true": True, "false": False}
_DURATION: Final = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|seconds?|minutes?)?\s*$", re.IGNORECASE)
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "second": 1.0, "minute": 60.0}
_NUMBER_MAX: Final = 2**63 - 1
_SECRET: Final = re.compile(r"sharedaccess(key|signature)\s*=", re.IGNORECASE)
_SUB_QUEUES: Final = {
    "deadletter": "$DeadLetterQueue",
    "transferdeadletter": "$Transfer/$DeadLetterQueue",
}


class ReadMode(StrEnum):
    """How a stream keeps the messages of a batch until it is committed."""

    BROWSE = "browse"
    CLAIM = "claim"


class IdMode(StrEnum):
    """Where the sink takes message ids from."""

    AUTO = "auto"
    COLUMN = "column"
    POSITION = "position"


class OnError(StrEnum):
    """What the sink does with a message that the service rejects permanently."""

    FAIL = "fail"
    DROP = "drop"
    DEADLETTER = "deadletter"
    TABLE = "table"

    @classmethod
    def _missing_(cls, value: object) -> OnError | None:
        # The former name of `drop`.
        return cls.DROP if value == "skip" else None


class Detection(StrEnum):
    """What the sink does when the destination does not detect duplicates."""

    WARN = "warn"
    REQUIRE = "require"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Options:
    """All options of the source and the sink. Its repr contains no secret."""

    access: Access
    # The queue, topic or subscription; None only for a sink whose rows name their destination.
    entity: str | None
    # A topic can be written but not read.
    is_topic: bool
    # The path to read from: the entity, or its dead-letter queue.
    path: str | None
    is_sub_queue: bool
    read_mode: ReadMode
    claim_name: str
    first_number: int | None
    last_number: int | None
    first_ms: int | None
    messages_max: int
    bytes_max: int | None
    messages_min: int
    delay_s: float
    partitions: int
    partitions_min: int
    wait_s: float
    prefetch: int
    include_body: bool
    fail_on_data_loss: bool
    pushdown: bool
    id_mode: IdMode
    job_id: str | None
    batch_size: int
    on_error: OnError
    # Where rejected rows go: a queue, or the path of a Delta table.
    dead_letter_queue: str | None
    error_table: str | None
    detection: Detection
    use_entity_column: bool

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """Check the given options; a ConfigError says what is wrong and what to do."""
        return _parse(_named(given))


def _named(given: Mapping[str, str]) -> dict[str, str]:
    """Options by their canonical names."""
    values: dict[str, str] = {}
    spelled: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() in _SPARKS:
            continue
        proper = _KNOWN.get(name.lower())
        if proper is None:
            raise ConfigError(_unknown(name))
        if proper != "connectionString" and _SECRET.search(str(value)):
            # Values of other options are shown in errors.
            raise ConfigError(f"{proper} contains a connection string, which goes into the option connectionString.")
        if proper in values and values[proper] != str(value):
            raise ConfigError(f"{name!r} and {spelled[proper]!r} are the same option with two values: keep one.")
        values[proper] = str(value)
        spelled[proper] = name
    return values


def _unknown(name: str) -> str:
    shown = name if len(name) <= 64 else name[:61] + "..."
    hint = did_you_mean(name, (*NAMES, *ALIASES), f"It has {', '.join(NAMES)}.")
    return f"The servicebus source has no option {shown!r}.{hint}"


def _parse(values: dict[str, str]) -> Options:
    access, entity_path = Access.of(
        connection_string=_connection_string(values),
        namespace=values.get("fullyQualifiedNamespace"),
        credential=values.get("credential"),
        ca_file=values.get("caFile"),
        websocket=_flag(values, "webSocket", False),
    )
    entity, is_topic = _entity(values, entity_path)
    sub_queue = _sub_queue(values)
    if sub_queue is not None and (entity is None or is_topic):
        raise ConfigError(
            "subQueue is part of a queue or a subscription: give queueName, or topicName and subscriptionName."
        )
    mode = _chosen(values, "readMode", ReadMode, ReadMode.BROWSE if sub_queue is None else ReadMode.CLAIM)
    messages = SPARK_BROWSE_MESSAGES_DEFAULT if mode is ReadMode.BROWSE else SPARK_CLAIM_MESSAGES_DEFAULT
    first = _whole(values, "startingSequenceNumber", None, 0, _NUMBER_MAX)
    last = _whole(values, "endingSequenceNumber", None, 0, _NUMBER_MAX)
    if first is not None and last is not None and first > last:
        raise ConfigError(f"startingSequenceNumber {first} is above endingSequenceNumber {last}: the range is empty.")
    partitions_min = _count(values, "minPartitions", 1, 1, SPARK_PARTITIONS_MAX)
    if partitions_min > _count(values, "numPartitions", SPARK_PARTITIONS_MAX, 1, SPARK_PARTITIONS_MAX):
        raise ConfigError("minPartitions is above numPartitions: lower one or raise the other.")
    return Options(
        access=access,
        entity=entity,
        is_topic=is_topic,
        path=entity if sub_queue is None else f"{entity}/{sub_queue}",
        is_sub_queue=sub_queue is not None,
        read_mode=mode,
        claim_name=_short(values, "claimName", SPARK_CLAIM_NAME_CHARS_MAX) or "spark",
        first_number=first,
        last_number=last,
        first_ms=_time(values, "startingTimestamp"),
        messages_max=_count(values, "maxMessagesPerTrigger", messages, 1, SPARK_TRIGGER_MESSAGES_MAX),
        bytes_max=_whole(values, "maxBytesPerTrigger", None, 1, _NUMBER_MAX),
        messages_min=_count(values, "minMessagesPerTrigger", 1, 1, SPARK_TRIGGER_MESSAGES_MAX),
        delay_s=_duration(values, "maxTriggerDelay", SPARK_DELAY_S_DEFAULT, 0.0, SPARK_WAIT_S_MAX),
        partitions=max(_count(values, "numPartitions", os.cpu_count() or 1, 1, SPARK_PARTITIONS_MAX), partitions_min),
        partitions_min=partitions_min,
        wait_s=_duration(values, "maxWaitTime", SPARK_WAIT_S_DEFAULT, SPARK_WAIT_S_MIN, SPARK_WAIT_S_MAX),
        prefetch=_count(values, "prefetchCount", 250, 0, PREFETCH_MAX),
        include_body=_flag(values, "includeBody", True),
        fail_on_data_loss=_flag(values, "failOnDataLoss", True),
        pushdown=_flag(values, "pushdown", False),
        id_mode=_chosen(values, "messageIdMode", IdMode, IdMode.AUTO),
        job_id=_short(values, "jobId", SPARK_JOB_ID_CHARS_MAX),
        batch_size=_count(values, "batchSize", SPARK_SEND_MESSAGES_DEFAULT, 1, BATCH_MESSAGES_MAX),
        on_error=_chosen(values, "onError", OnError, OnError.FAIL),
        dead_letter_queue=_short(values, "deadLetterQueueName", ENTITY_PATH_CHARS_MAX),
        error_table=values.get("errorTablePath"),
        detection=_chosen(values, "duplicateDetection", Detection, Detection.WARN),
        use_entity_column=_flag(values, "useEntityColumn", entity is None),
    )


def _connection_string(values: dict[str, str]) -> str | None:
    """The connection string, given directly, by environment variable or by file; both are read by the driver."""
    given = [name for name in ("connectionString", "connectionStringEnv", "connectionStringFile") if name in values]
    if len(given) > 1:
        raise ConfigError(f"Give one of {' and '.join(given)}, not both.")
    if "connectionStringEnv" in values:
        name = values["connectionStringEnv"]
        if not (text := os.environ.get(name, "").strip()):
            raise ConfigError(
                f"connectionStringEnv: the environment variable {name!r} is not set where the query is planned. Set it "
                "before Spark starts."
            )
        return text
    if "connectionStringFile" in values:
        path = values["connectionStringFile"]
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read(CONFIG_FILE_BYTES_MAX).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"connectionStringFile: {path!r} cannot be read: {error}.") from None
        if not text:
            raise ConfigError(f"connectionStringFile: {path!r} is empty.")
        return text
    return values.get("connectionString")


def _entity(values: dict[str, str], entity_path: str | None) -> tuple[str | None, bool]:
    """The entity's path, and whether it is a topic."""
    queue, topic, subscription = (
        _short(values, name, ENTITY_PATH_CHARS_MAX) for name in ("queueName", "topicName", "subscriptionName")
    )
    if queue is not None and (topic is not None or subscription is not None):
        raise ConfigError("Give queueName, or topicName and subscriptionName, not both.")
    if subscription is not None and topic is None:
        raise ConfigError(f"The subscription {subscription!r} belongs to a topic: give topicName as well.")
    entity = queue
    if topic is not None:
        entity = topic if subscription is None else f"{topic}/Subscriptions/{subscription}"
    is_topic = topic is not None and subscription is None
    if entity_path is None:
        return entity, is_topic
    if entity is None:
        return entity_path, False
    if entity.split("/Subscriptions/")[0].lower() != entity_path.split("/Subscriptions/")[0].lower():
        raise ConfigError(
            f"The connection string is for {entity_path!r} (EntityPath) and the options name {entity!r}: "
            "remove one of them."
        )
    return entity, is_topic


def _sub_queue(values: dict[str, str]) -> str | None:
    text = values.get("subQueue")
    if text is None or not text.strip():
        return None
    found = _SUB_QUEUES.get(re.sub(r"[^a-z]", "", text.lower()))
    if found is None:
        raise ConfigError(f"subQueue {text!r} is not one of {', '.join(_SUB_QUEUES)}.")
    return found


# --- values -----------------------------------------------------------------------------------------------------------


def _flag(values: dict[str, str], name: str, default: bool) -> bool:
    text = values.get(name)
    if text is None:
        return default
    if text.strip().lower() not in _TRUTH:
        raise ConfigError(f"{name} {text!r} is not true or false.")
    return _TRUTH[text.strip().lower()]


def _chosen(values: dict[str, str], name: str, kind: type[E], default: E) -> E:
    text = values.get(name)
    if text is None:
        return default
    try:
        return kind(text.strip().lower())
    except ValueError:
        raise ConfigError(f"{name} {text!r} is not one of {', '.join(kind)}.") from None


def _whole(values: dict[str, str], name: str, default: int | None, least: int, most: int) -> int | None:
    text = values.get(name)
    if text is None:
        return default
    try:
        number = int(text.strip())
    except ValueError:
        raise ConfigError(f"{name} {text!r} is not a whole number.") from None
    return _within(name, number, least, most)


def _count(values: dict[str, str], name: str, default: int, least: int, most: int) -> int:
    number = _whole(values, name, default, least, most)
    assert number is not None
    return number


def _duration(values: dict[str, str], name: str, default: float, least: float, most: float) -> float:
    text = values.get(name)
    if text is None:
        return default
    match = _DURATION.match(text)
    if match is None:
        raise ConfigError(f"{name} {text!r} is not a time: write seconds, or 500ms, 30s, 5m.")
    unit = (match[2] or "").lower()
    seconds = float(match[1]) * _UNITS_S[unit if unit in _UNITS_S else unit.removesuffix("s")]
    return _within(name, seconds, least, most)


def _time(values: dict[str, str], name: str) -> int | None:
    """Milliseconds since the epoch, or ISO 8601; UTC if it has no zone."""
    text = values.get(name)
    if text is None:
        return None
    if text.strip().isdecimal():
        return _within(name, int(text), 0, _NUMBER_MAX)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigError(
            f"{name} {text!r} is not a time: write milliseconds since 1970, or 2026-11-15T08:30:00Z."
        ) from None
    return int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _short(values: dict[str, str], name: str, chars_max: int) -> str | None:
    text = values.get(name)
    if text is None:
        return None
    text = text.strip().strip("/")
    if not text:
        raise ConfigError(f"{name} is empty: set a value, or remove the option.")
    if len(text) > chars_max:
        raise ConfigError(f"{name} has {len(text)} characters; the maximum is {chars_max}.")
    return text


N = TypeVar("N", int, float)


def _within(name: str, number: N, least: N, most: N) -> N:
    if not least <= number <= most:
        raise ConfigError(f"{name} {number} is not between {least} and {most}.")
    return number


def for_reading(options: Options, *, stream: bool) -> Options:
    """Check that the options name a source, and return them."""
    if options.entity is None:
        raise ConfigError("No source given: set queueName, or topicName and subscriptionName.")
    if options.is_topic:
        raise ConfigError(
            f"The topic {options.entity!r} cannot be read, only its subscriptions: give subscriptionName as well."
        )
    if not stream:
        return options
    for name, value in (
        ("startingSequenceNumber", options.first_number),
        ("endingSequenceNumber", options.last_number),
        ("startingTimestamp", options.first_ms),
    ):
        if value is not None:
            raise ConfigError(
                f"{name} is for spark.read: a stream begins with the oldest message, because what it has read it takes "
                "out of the queue. Leave the option out."
            )
    if options.is_sub_queue and options.read_mode is ReadMode.BROWSE:
        raise ConfigError(
            "A sub-queue cannot be streamed with readMode browse: messages come to it in another order than their "
            "sequence numbers. Take readMode claim, or leave readMode out."
        )
    return options


def for_writing(options: Options) -> Options:
    """Check that the options name a destination, and return them."""
    if options.is_sub_queue:
        raise ConfigError("A sub-queue cannot be written: remove subQueue.")
    if options.entity is not None and "/Subscriptions/" in options.entity:
        raise ConfigError("A subscription cannot be written: remove subscriptionName and write to its topic.")
    if options.entity is None and not options.use_entity_column:
        raise ConfigError("No destination given: set queueName or topicName, or set useEntityColumn to true.")
    for kind, name, value in (
        (OnError.DEADLETTER, "deadLetterQueueName", options.dead_letter_queue),
        (OnError.TABLE, "errorTablePath", options.error_table),
    ):
        if options.on_error is kind and not value:
            raise ConfigError(f"onError is {kind.value!r}, and {name} is not set: say where refused rows go.")
        if options.on_error is not kind and value:
            raise ConfigError(f"{name} is set, and onError is not {kind.value!r}: set it, or remove {name}.")
    return options
