"""What the console answers with: JSON, refusals that say why, and headers that keep browsers strict.

Rules:
- A page of ours may load and run what this port serves, and nothing else; no other page may frame or read it.
- What is answered is never kept by a cache: it may hold messages.
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
}


class Refused(ServiceError):
    """A refusal that only the console has."""

    def __init__(self, http_status: int, text: str) -> None:
        super().__init__(text)
        self.http_status = http_status


def json_text(found: object) -> str:
    """JSON as it is sent: what is not ASCII is escaped, so that nothing in between can misread it."""
    return json.dumps(found, separators=(",", ":"))


def answer(found: Any, status: int = 200) -> web.Response:
    """A JSON answer."""
    return web.Response(status=status, text=json_text(found), content_type="application/json", headers=HEADERS)


def refusal(error: Exception) -> web.Response:
    """The answer to a request that failed; what is not ours is logged with its trace."""
    if isinstance(error, Refused):
        return answer({"error": error.text}, error.http_status)
    if isinstance(error, UnauthorizedError):
        return answer({"error": error.text}, 403)
    if isinstance(error, ServiceError):
        return answer({"error": error.text}, error.status)
    logger.error("unexpected failure of a request of the console", exc_info=error)
    return answer({"error": "The request failed; the broker's log says why."}, 500)
