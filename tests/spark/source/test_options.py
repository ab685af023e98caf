from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from twinbus.errors import ConfigError
from twinbus.spark.source.options import (
    ALIASES,
    NAMES,
    Detection,
    IdMode,
    OnError,
    Options,
    ReadMode,
    for_reading,
    for_writing,
)

KEY = "PlantedKeyThatNobodyMaySee000000000000000000="
TEXT = f"Endpoint=sb://contoso.example;SharedAccessKeyName=Root;SharedAccessKey={KEY}"
QUEUE = {"connectionString": TEXT, "queueName": "orders"}


def test_defaults() -> None:
    options = Options.parse(QUEUE)
    assert options.path == options.entity == "orders"
    assert options.access.namespace == "contoso.example"
    assert (options.read_mode, options.id_mode, options.on_error, options.detection) == (
        ReadMode.BROWSE,
        IdMode.AUTO,
        OnError.FAIL,
        Detection.WARN,
    )
    assert options.include_body
    assert options.fail_on_data_loss
    assert not options.pushdown
    assert options.messages_max == 100_000
    assert options.wait_s == 10


def test_names_in_any_case_and_aliases() -> None:
    options = Options.parse({"CONNECTIONSTRING": TEXT, "queuename": "a", "MaxEventsPerTrigger": "7"})
    assert (options.entity, options.messages_max) == ("a", 7)
    assert Options.parse({**QUEUE, "maxOffsetsPerTrigger": "8"}).messages_max == 8
    # `load("orders")` sets `path`.
    assert Options.parse({"connectionString": TEXT, "path": "orders"}).entity == "orders"


def test_sparks_own_options_are_not_ours() -> None:
    assert Options.parse({**QUEUE, "checkpointLocation": "/somewhere"}) == Options.parse(QUEUE)


@pytest.mark.parametrize("name", [*NAMES, *ALIASES])
def test_a_slip_names_the_nearest_option(name: str) -> None:
    slip = name[:-2] + name[-1]
    with pytest.raises(ConfigError, match="Did you mean") as caught:
        Options.parse({**QUEUE, slip: "1"})
    assert repr(name) in str(caught.value)


def test_an_option_like_no_other_lists_them_all() -> None:
    with pytest.raises(ConfigError, match="It has connectionString, connectionStringEnv"):
        Options.parse({**QUEUE, "zzzzzz": "1"})


def test_entities() -> None:
    topic = Options.parse({"connectionString": TEXT, "topicName": "news", "subscriptionName": "sport"})
    assert topic.path == "news/Subscriptions/sport"
    dead = Options.parse({**QUEUE, "subQueue": "deadLetter"})
    assert dead.path == "orders/$DeadLetterQueue"
    # Sequence numbers in a sub-queue are not in the order of arrival.
    assert dead.read_mode is ReadMode.CLAIM
    assert Options.parse({**QUEUE, "subQueue": "transfer_dead_letter"}).path == "orders/$Transfer/$DeadLetterQueue"
    bound = Options.parse({"connectionString": TEXT + ";EntityPath=orders"})
    assert bound.entity == "orders"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "No namespace given"),
        ({"queueName": "q"}, "No namespace given"),
        ({"connectionString": TEXT, "queueName": "q", "topicName": "t"}, "not both"),
        ({"connectionString": TEXT, "subscriptionName": "s"}, "give topicName as well"),
        ({"connectionString": TEXT, "fullyQualifiedNamespace": "h", "queueName": "q"}, "not both"),
        ({"fullyQualifiedNamespace": TEXT, "queueName": "q"}, "option connectionString"),
        ({"connectionString": TEXT + ";EntityPath=a", "queueName": "b"}, "remove one of them"),
        ({"connectionString": TEXT, "topicName": "t", "subQueue": "deadletter"}, "subQueue is part of"),
        ({**QUEUE, "subQueue": "grave"}, "one of deadletter, transferdeadletter"),
        ({**QUEUE, "readMode": "peek"}, "one of browse, claim"),
        ({**QUEUE, "includeBody": "perhaps"}, "true or false"),
        ({**QUEUE, "maxMessagesPerTrigger": "0"}, "between 1 and"),
        ({**QUEUE, "maxMessagesPerTrigger": "many"}, "not a whole number"),
        ({**QUEUE, "maxWaitTime": "soon"}, "write seconds"),
        ({**QUEUE, "maxWaitTime": "2h"}, "between 0.1 and 3600"),
        ({**QUEUE, "startingTimestamp": "yesterday"}, "2026-11-15T08:30:00Z"),
        ({**QUEUE, "startingSequenceNumber": "9", "endingSequenceNumber": "8"}, "the range is empty"),
        ({**QUEUE, "maxEventsPerTrigger": "1", "maxOffsetsPerTrigger": "2"}, "keep one"),
        ({**QUEUE, "queueName": " "}, "queueName is empty"),
        ({**QUEUE, "batchSize": "5000"}, "between 1 and 4500"),
        ({**QUEUE, "jobId": "x" * 65}, "the maximum is 64"),
        ({**QUEUE, "startingTimestamp": "\N{SUPERSCRIPT TWO}"}, "is not a time"),
        # A connection string in the place of its own name, of a file, of an entity, of anything.
        ({"connectionStringEnv": TEXT, "queueName": "q"}, "connectionStringEnv contains a connection string"),
        ({"connectionStringFile": TEXT, "queueName": "q"}, "connectionStringFile contains a connection string"),
        ({"connectionString": TEXT, "path": TEXT}, "queueName contains a connection string"),
        ({**QUEUE, "readMode": TEXT.upper()}, "readMode contains a connection string"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        Options.parse(given)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "seconds"), [("2", 2), ("1.5", 1.5), ("500ms", 0.5), ("30s", 30), ("2 minutes", 120), ("1h", 3600)]
)
def test_times_to_wait(text: str, seconds: float) -> None:
    assert Options.parse({**QUEUE, "maxWaitTime": text}).wait_s == seconds


def test_moments() -> None:
    moment_ms = 1_700_000_000_000
    for text in (str(moment_ms), "2023-11-14T22:13:20Z", "2023-11-14T22:13:20", "2023-11-14T23:13:20+01:00"):
        assert Options.parse({**QUEUE, "startingTimestamp": text}).first_ms == moment_ms


@pytest.mark.parametrize("name", ["startingSequenceNumber", "endingSequenceNumber", "startingTimestamp"])
def test_a_stream_begins_with_the_oldest(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is for spark.read"):
        for_reading(Options.parse({**QUEUE, name: "5"}), stream=True)


def test_what_cannot_be_read_or_written() -> None:
    topic = Options.parse({"connectionString": TEXT, "topicName": "news"})
    with pytest.raises(ConfigError, match="give subscriptionName as well"):
        for_reading(topic, stream=False)
    with pytest.raises(ConfigError, match="No source given"):
        for_reading(Options.parse({"connectionString": TEXT}), stream=False)
    with pytest.raises(ConfigError, match="another order"):
        for_reading(Options.parse({**QUEUE, "subQueue": "deadletter", "readMode": "browse"}), stream=True)
    with pytest.raises(ConfigError, match="sub-queue cannot be written"):
        for_writing(Options.parse({**QUEUE, "subQueue": "deadletter"}))
    with pytest.raises(ConfigError, match="write to its topic"):
        for_writing(Options.parse({"connectionString": TEXT, "topicName": "t", "subscriptionName": "s"}))
    with pytest.raises(ConfigError, match="useEntityColumn to true"):
        for_writing(Options.parse({"connectionString": TEXT, "useEntityColumn": "false"}))
    assert for_writing(Options.parse({"connectionString": TEXT})).use_entity_column
    assert not for_writing(Options.parse(QUEUE)).use_entity_column


def test_no_text_has_the_key() -> None:
    options = Options.parse(QUEUE)
    assert KEY not in repr(options) + str(options) + repr(options.access) + str(options.access.bus())
    # It still travels to the workers.
    assert pickle.loads(pickle.dumps(options)) == options
    assert options.access.secret == TEXT


def test_the_page_tells_every_option() -> None:
    page = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
    missing = [name for name in (*NAMES, *ALIASES) if f"`{name}`" not in page]
    assert missing == []


def test_the_connection_string_from_the_environment_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_BUS", f" {TEXT}\n")
    file = tmp_path / "secret.txt"
    file.write_text(f"{TEXT}\n")
    for given in ({"connectionStringEnv": "ORDERS_BUS"}, {"connectionStringFile": str(file)}):
        options = Options.parse({**given, "queueName": "orders"})
        assert options.access.secret == TEXT
        assert KEY not in repr(options)
        with pytest.raises(ConfigError, match="Give one of connectionString and") as caught:
            Options.parse({**given, **QUEUE})
        assert KEY not in str(caught.value)
    empty = tmp_path / "empty.txt"
    empty.write_text("\n")
    for wrong, text in (
        ({"connectionStringEnv": "NO_SUCH_VARIABLE"}, "'NO_SUCH_VARIABLE' is not set"),
        ({"connectionStringFile": str(tmp_path / "none.txt")}, "cannot be read"),
        ({"connectionStringFile": str(empty)}, "is empty"),
    ):
        with pytest.raises(ConfigError, match=text):
            Options.parse({**wrong, "queueName": "orders"})


def test_the_names_that_kafkas_connector_has() -> None:
    options = Options.parse(
        {
            **QUEUE,
            "minPartitions": "3",
            "minOffsetsPerTrigger": "50",
            "maxTriggerDelay": "5m",
            "maxBytesPerTrigger": "9",
        }
    )
    assert (options.partitions, options.messages_min, options.delay_s, options.bytes_max) == (3, 50, 300, 9)
    assert (Options.parse(QUEUE).messages_min, Options.parse(QUEUE).delay_s) == (1, 900)
