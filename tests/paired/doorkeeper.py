"""A TCP proxy in its own thread that can stop answering without closing anything, like a frozen peer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.faults.outages_proxy import Proxy


@contextmanager
def doorkeeper(port: int, kind: type[Proxy] = Proxy) -> Iterator[Proxy]:
    """A proxy in front of `port`; `strike` freezes it, `heal` lets new connections through."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    proxy = kind(port)
    asyncio.run_coroutine_threadsafe(proxy.start(), loop).result(5)
    try:
        yield _OnItsLoop(proxy, loop)  # type: ignore[misc]
    finally:
        asyncio.run_coroutine_threadsafe(proxy.close(), loop).result(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


class _OnItsLoop:
    """The proxy, called from other threads."""

    def __init__(self, proxy: Proxy, loop: asyncio.AbstractEventLoop) -> None:
        self._proxy = proxy
        self._loop = loop
        self.port = proxy.port

    def strike(self, *, stall: bool) -> int:
        return self._call(lambda: self._proxy.strike(stall=stall))

    def heal(self) -> None:
        self._call(self._proxy.heal)

    def _call(self, work):  # type: ignore[no-untyped-def]
        async def run():  # type: ignore[no-untyped-def]
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(5)
