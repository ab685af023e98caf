"""How tests of the source and the sink use a namespace directly: fill, peek, count."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from twinbus.amqp.reader import Fields, read_fields
from twinbus.client import BusClient, Message
from twinbus.client.blocking import BlockingBus
from twinbus.ledger.words import Kind
from twinbus.spark.source.options import Options
from twinbus.spark.source.source import ServiceBusSource
from twinbus.testing import Broker


class Desk:
    """A namespace, seen by a client."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.text = broker.connection_string()
        self.bus = BlockingBus(lambda: BusClient.from_connection_string(self.text))

    def __enter__(self) -> Desk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bus.close()

    def send(self, path: str, messages: Iterable[Message]) -> None:
        """One delivery, so that all have the same enqueued time."""
        outcomes = self.bus.start_send(path, [[message.encode() for message in messages]]).result()
        assert outcomes == [None]

    def fill(self, path: str, ids: Sequence[str], **fields: Any) -> None:
        """One delivery for each id, as from many senders."""
        parcels = [[Message(f"body of {each}", message_id=each, **fields).encode()] for each in ids]
        assert not any(self.bus.start_send(path, parcels).result())

    def look(self, path: str) -> list[Fields]:
        """All messages of an entity."""
        found: list[Fields] = []
        while page := self.bus.peek(path, 250, first=found[-1].sequence_number + 1 if found else 1):
            found += [read_fields(message.payload) for message in page]
        return found

    def ids(self, path: str) -> list[str]:
        return [str(each.message_id) for each in self.look(path)]

    def left(self, path: str, wanted: Sequence[str] = ()) -> list[str]:
        """The ids in an entity as soon as they are the wanted ones, or after a while: a broker shows messages that were
        taken by request until they are deleted on disk."""
        deadline = time.monotonic() + 120
        while (found := self.ids(path)) != list(wanted) and time.monotonic() < deadline:
            time.sleep(0.02)
        return found

    def operations(self, path: str) -> Counter[Kind]:
        """The operations that the broker has counted on an entity."""
        name = next(iter(self.broker.endpoints))
        counted = self.broker.call(
            lambda server: [(each.kind, each.count) for each in server.hosts[name].meter.entity(path)]
        )
        found: Counter[Kind] = Counter()
        for kind, count in counted:
            found[kind] += count
        return found

    # --- the source as Spark makes it -----------------------------------------------------------------------------

    def source(self, **options: Any) -> ServiceBusSource:
        given = {"connectionString": self.text, **{name: str(value) for name, value in options.items()}}
        return ServiceBusSource(CaseInsensitiveDict(given))

    def options(self, **options: Any) -> Options:
        return Options.parse({"connectionString": self.text, **{name: str(value) for name, value in options.items()}})

    def reader(self, schema: StructType | None = None, **options: Any) -> Any:
        source = self.source(**options)
        return source.reader(schema or source.schema())

    def stream(self, **options: Any) -> Any:
        source = self.source(**options)
        return source.streamReader(source.schema())


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def read_all(reader: Any) -> list[dict[str, Any]]:
    return [row for partition in reader.partitions() for row in rows_of(reader.read(partition))]


def read_between(reader: Any, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for partition in reader.partitions(start, end) for row in rows_of(reader.read(partition))]
