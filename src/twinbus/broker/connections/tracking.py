"""Errors as clients see them: condition, text, and a tracking id to find the occurrence in the log."""

from __future__ import annotations

import logging
import uuid
from datetime import UTC, datetime

from twinbus.amqp.states import AmqpError
from twinbus.broker.metering.refusals import Refusals
from twinbus.clock import Clock
from twinbus.errors import ArgumentError, InternalError, ProtocolError, ServiceError, UnauthorizedError

logger = logging.getLogger(__name__)


class Tracker:
    """Creates wire errors for one namespace."""

    def __init__(self, namespace: str, clock: Clock, refusals: Refusals) -> None:
        self._namespace = namespace
        self._clock = clock
        # Records clients that lack a right.
        self.refusals = refusals

    def wire_error(self, error: Exception, entity: str | None = None, address: str = "") -> AmqpError:
        """Convert an error for the client at `address`; an unexpected one becomes an internal error, logged with its
        traceback."""
        if isinstance(error, ServiceError):
            failure: ServiceError = error
        elif isinstance(error, ProtocolError):
            failure = ArgumentError(f"The request could not be read: {error}")
        else:
            logger.error("unexpected failure on %s", entity, exc_info=error)
            failure = InternalError("The service was unable to process the request; please retry the operation.")
        text, tracking_id = self.text(failure.text, entity)
        logger.info("%s %s on %s/%s: %s", tracking_id, failure.condition, self._namespace, entity or "", failure.text)
        if isinstance(failure, UnauthorizedError):
            self.refusals.add(
                failure.reason, address, policy=failure.policy, entity=entity or "", tracking_id=tracking_id
            )
        return AmqpError(failure.condition, text, None)

    def text(self, text: str, entity: str | None = None) -> tuple[str, str]:
        """The text with the tracking tail, and the tracking id."""
        tracking_id = str(uuid.uuid4())
        stamp = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        system = f"{self._namespace}:{entity}" if entity else self._namespace
        return f"{text} TrackingId:{tracking_id}, SystemTracker:{system}, Timestamp:{stamp}", tracking_id
