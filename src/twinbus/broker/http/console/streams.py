"""Live views of the console as server-sent events, sent again whenever they change.

- A stream evaluates its view once a second, whatever the message rate. Without streams nothing runs.
- All streams together take a small share of the loop: an expensive view is evaluated less often.
- A browser that does not read is disconnected; one whose login has expired is told so and must log in again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from twinbus.broker.http.console.answers import HEADERS, Refused, json_text, refusal
from twinbus.limits import (
    CONSOLE_STREAM_INTERVAL_MS,
    CONSOLE_STREAM_QUIET_MS,
    CONSOLE_STREAMS_MAX,
    PEER_STALL_TIMEOUT_MS,
)

if TYPE_CHECKING:
    View = Callable[[], Any]

# The share of the loop's time for all streams together.
_SHARE = 0.05


class Streams:
    """The open streams of the process."""

    def __init__(self) -> None:
        self.count = 0
        self._stopping = asyncio.Event()

    def close(self) -> None:
        """End all streams."""
        self._stopping.set()

    async def serve(self, request: web.BaseRequest, view: View) -> web.StreamResponse:
        """Send what `view` returns until the browser is gone or the view raises."""
        if self.count >= CONSOLE_STREAMS_MAX:
            raise Refused(
                503, f"There are {CONSOLE_STREAMS_MAX} live pages open already: close one, or reload by hand."
            )
        self.count += 1
        try:
            # An immediate error is a plain answer, not a stream.
            first = json_text(view())
            response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
            try:
                await response.prepare(request)
                await self._send(response, f"retry: {CONSOLE_STREAM_INTERVAL_MS}\ndata: {first}\n\n")
                await self._repeat(request, response, view, first)
            except (ConnectionError, TimeoutError):
                # Gone or not reading: there is nobody to tell.
                if request.transport is not None:
                    request.transport.abort()
            return response
        finally:
            self.count -= 1

    async def _repeat(self, request: web.BaseRequest, response: web.StreamResponse, view: View, last: str) -> None:
        quiet_s = 0.0
        wait_s = CONSOLE_STREAM_INTERVAL_MS / 1000
        while await self._pause(wait_s):
            transport = request.transport
            if transport is None or transport.is_closing():
                return
            started_s = time.perf_counter()
            try:
                now = json_text(view())
            except Exception as error:
                # The response has already started, so send the error's status as the last event.
                told = refusal(error)
                await self._send(response, f"event: end\ndata: {json_text({'status': told.status})}\n\n")
                return
            took_s = time.perf_counter() - started_s
            quiet_s += wait_s
            if now != last:
                await self._send(response, f"data: {now}\n\n")
                last, quiet_s = now, 0.0
            elif quiet_s >= CONSOLE_STREAM_QUIET_MS / 1000:
                await self._send(response, ":\n\n")
                quiet_s = 0.0
            wait_s = max(CONSOLE_STREAM_INTERVAL_MS / 1000, took_s * self.count / _SHARE)

    async def _pause(self, seconds: float) -> bool:
        """Wait; False if the broker stops meanwhile."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return True
        return False

    async def _send(self, response: web.StreamResponse, text: str) -> None:
        # Disconnect a browser that does not read for that long.
        async with asyncio.timeout(PEER_STALL_TIMEOUT_MS / 1000):
            await response.write(text.encode())
