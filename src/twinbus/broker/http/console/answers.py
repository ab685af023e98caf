"""The console's answers: JSON, errors with a reason, and strict security headers.

- Our page may load and run only what this port serves; no other page may frame or read it.
- Answers are never cached, because they may contain messages.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Final

from aiohttp import web

from twinbus.errors import ServiceError, UnauthorizedError

logger = logging.getLogger(__name__)

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "Twinbus",
}


class Refused(ServiceError):
    """An error that only the console has."""

    def __init__(self, http_status: int, text: str) -> None:
        super().__init__(text)
        self.http_status = http_status


def json_text(found: object) -> str:
    """JSON with everything but ASCII escaped, so that no intermediary can misread it."""
    return json.dumps(found, separators=(",", ":"))


def answer(found: Any, status: int = 200) -> web.Response:
    """A JSON response."""
    return web.Response(status=status, text=json_text(found), content_type="application/json", headers=HEADERS)


def refusal(error: Exception) -> web.Response:
    """The response to a failed request; an unexpected error is logged with its traceback."""
    if isinstance(error, Refused):
        return answer({"error": error.text}, error.http_status)
    if isinstance(error, UnauthorizedError):
        return answer({"error": error.text}, 403)
    if isinstance(error, ServiceError):
        return answer({"error": error.text}, error.status)
    logger.error("unexpected failure of a request of the console", exc_info=error)
    return answer({"error": "The request failed; the broker's log says why."}, 500)
