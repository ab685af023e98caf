"""What both kinds of stream share: the driver's connection, limits, and the end of an AvailableNow run.

- A reader is pickled to workers before it is used, so it connects on first use, and connections are not pickled.
- Spark does not call `stop` but ends the process, so nothing may depend on it.
- Configuration errors are reported when the stream starts, with the next step.
- An offset names its entity. The numbers of another entity's checkpoint say nothing about this one: nothing may be
  removed by them.
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql.types import StructType

from twinbus.client.blocking import BlockingBus
from twinbus.clock import Clock, MonotonicClock, SystemClock
from twinbus.errors import ConfigError, NotAllowedError
from twinbus.limits import SPARK_TRIGGER_MESSAGES_MAX
from twinbus.spark.source.batches import BatchMaker
from twinbus.spark.source.browsing import EntityBrowser
from twinbus.spark.source.options import Options
from twinbus.spark.versions import (
    LimitedStream,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

_logger = logging.getLogger(__name__)


class Stream(LimitedStream, SupportsTriggerAvailableNow):
    """A stream of one entity."""

    def __init__(self, options: Options, schema: StructType) -> None:
        assert options.path is not None
        self._options = options
        self._path = options.path
        self._schema = schema
        self._clock: Clock = MonotonicClock()
        # The last number of an AvailableNow run; None if there is no end.
        self._target: int | None = None
        self._last = 0
        # For the query's progress: how many messages there were when the batch was planned, and their age.
        self._waiting: dict[str, Any] = {}
        # The driver's connection; None until needed, and in workers.
        self._bus: BlockingBus | None = None
        self._warned = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._path!r} of {self._options.access.namespace!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_bus": None}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.messages_max)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return {"sequenceNumber": self._last, **self._waiting} if self._last else None

    def prepareForTriggerAvailableNow(self) -> None:
        head = self._browser.first(1)
        self._target = 0 if head is None else self._browser.last(head.sequence_number)
        self._last = self._target

    def stop(self) -> None:
        bus, self._bus = self._bus, None
        if bus is not None:
            bus.close()

    # --- for the two kinds --------------------------------------------------------------------------------------------

    @property
    def _opened(self) -> BlockingBus:
        """The driver's connection, with a link to the entity."""
        if self._bus is None:
            bus = self._options.access.bus()
            try:
                bus.open_receiver(self._path)
            except NotAllowedError as error:
                bus.close()
                if "session" in str(error).lower():
                    raise ConfigError(
                        f"{self._path!r} requires sessions, and a stream cannot hold sessions over its batches. Read "
                        "it with spark.read, or forward it to a queue without sessions and stream that."
                    ) from error
                raise
            except BaseException:
                bus.close()
                raise
            self._bus = bus
        return self._bus

    @property
    def _browser(self) -> EntityBrowser:
        return EntityBrowser(self._opened, self._path)

    def _named(self, offset: dict[str, Any]) -> dict[str, Any]:
        """An offset with the entity that it is of."""
        return {**offset, "entity": self._name}

    def _is_foreign(self, offset: dict[str, Any]) -> bool:
        """Whether an offset is of another entity, which is an error unless `failOnDataLoss` is false."""
        name = offset.get("entity")
        # Earlier versions did not write it.
        if name is None or str(name).lower() == self._name.lower():
            return False
        text = (
            f"The checkpoint is of {name}, and the stream reads {self._name}: give it a checkpointLocation of its own."
        )
        if self._options.fail_on_data_loss:
            raise ConfigError(
                f"{text} If the entity has moved, set failOnDataLoss to false: the stream then reads all that is there."
            )
        if not self._warned:
            self._warned = True
            _logger.warning("%s failOnDataLoss is false: reading all that is there.", text)
        return True

    @property
    def _name(self) -> str:
        return f"{self._options.access.namespace}/{self._path}"

    def _limits(self, limit: ReadLimit) -> tuple[int, int | None]:
        """How many messages and bytes the next batch may have."""
        messages, size = self._options.messages_max, self._options.bytes_max
        if isinstance(limit, ReadMaxRows):
            messages = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        elif isinstance(limit, ReadAllAvailable):
            messages, size = SPARK_TRIGGER_MESSAGES_MAX, None
        return max(messages, 1), size

    def _saw(self, depth: int, behind: int, oldest_ms: int | None) -> None:
        """Record for the progress: the depth, the messages behind the batch, and the age of the oldest."""
        lag_s = 0.0 if oldest_ms is None else max(SystemClock().now_ms() - oldest_ms, 0) / 1000
        self._waiting = {"depth": depth, "lagMessages": behind, "lagSeconds": lag_s}

    def _deadline_ms(self) -> int:
        """Until when a batch that is too small is held back; an AvailableNow run holds back nothing."""
        return self._clock.now_ms() + (0 if self._target is not None else round(self._options.delay_s * 1000))

    def _maker(self) -> BatchMaker:
        return BatchMaker(self._schema, entity=self._path, namespace=self._options.access.namespace)
