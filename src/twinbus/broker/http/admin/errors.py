"""Error responses for admin clients: a status, a sub-code, and a text with a tracking id for the log.

Permanent errors never get 408, 429 or 5xx, because clients retry those for minutes.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from twinbus.broker.connections.tracking import Tracker
from twinbus.broker.http.admin.xml_out import escaped
from twinbus.errors import (
    ArgumentError,
    EntityExistsError,
    EntityNotFoundError,
    NotAllowedError,
    QuotaExceededError,
    ServerBusyError,
    ServiceError,
    UnauthorizedError,
)

logger = logging.getLogger(__name__)

# The status title in the text.
_TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    410: "Gone",
    412: "Precondition Failed",
    413: "Request Entity Too Large",
    422: "Unprocessable Entity",
    500: "Internal Server Error",
    503: "Server Busy",
}
_HELP = "To know more visit https://aka.ms/sbResourceMgrExceptions."


class AdminError(ServiceError):
    """An error that only this API has. `sub_code` is the service's finer number."""

    def __init__(
        self,
        http_status: int,
        text: str,
        sub_code: int = 0,
        headers: dict[str, str] | None = None,
        *,
        bare: bool = False,
        reason: str | None = None,
    ) -> None:
        super().__init__(text)
        # The text is the whole detail, because clients look for it at the start.
        self.bare = bare
        # The reason phrase; None for the standard one.
        self.reason = reason
        self.http_status = http_status
        # The number in the service's list of errors.
        self.sub_code = sub_code or http_status * 100
        # Extra headers of the response.
        self.headers = headers or {}


@dataclass(frozen=True)
class AdminResponse:
    """A response, independent of the server. The repr omits the body, because descriptions contain keys."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)
    reason: str | None = None
    # Why the caller was not let in, and the tracking id; None if it was.
    unauthorized: UnauthorizedError | None = None
    tracking_id: str = ""


# Words for what a request lacks, by the service's number.
_MISSING = {40103: "MissingToken", 40104: "MalformedToken"}


def refusal(error: Exception, tracker: Tracker, path: str) -> AdminResponse:
    """The response to a request that failed with `error`; an unexpected error is logged with its traceback."""
    status, sub_code, text, headers = _meaning(error, path)
    own = error if isinstance(error, AdminError) else None
    whole = text if own is not None and own.bare else f"SubCode={sub_code}. {_TITLES[status]}. {text} {_HELP}"
    detail, tracking_id = tracker.text(whole, path or None)
    logger.info("%s admin request on /%s refused with %d: %s", tracking_id, path, status, text)
    body = f"<Error><Code>{status}</Code><Detail>{escaped(detail)}</Detail></Error>"
    headers = {"Content-Type": "application/xml; charset=utf-8", **headers}
    unauthorized = error if isinstance(error, UnauthorizedError) else None
    if status == 401 and unauthorized is None:
        unauthorized = UnauthorizedError(text, _MISSING.get(sub_code, "Unauthorized"))
    reason = own.reason if own is not None else None
    return AdminResponse(status, headers, body.encode(), reason, unauthorized, tracking_id)


def _meaning(error: Exception, path: str) -> tuple[int, int, str, dict[str, str]]:
    if isinstance(error, AdminError):
        return error.http_status, error.sub_code, error.text, error.headers
    if isinstance(error, ArgumentError | NotAllowedError):
        return 400, 40000, error.text, {}
    if isinstance(error, UnauthorizedError):
        return 401, 40100, error.text, {}
    if isinstance(error, QuotaExceededError):
        return 403, 40300, error.text, {}
    if isinstance(error, EntityNotFoundError):
        return 404, 40400, error.text, {}
    if isinstance(error, EntityExistsError):
        return 409, 40900, error.text, {}
    if isinstance(error, ServerBusyError):
        return 503, 50300, error.text, {}
    if isinstance(error, ServiceError) and error.status < 500:
        # Errors of the data plane only: a lost lock, a disabled entity.
        return error.status, error.status * 100, error.text, {}
    logger.error("unexpected failure of an admin request on /%s", path, exc_info=error)
    return 500, 50000, "The service was unable to process the request; please retry the operation.", {}
