"""A real HTTP CONNECT proxy in its own thread, the only route to host names that nobody else can resolve."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

USER, PASSWORD = "who", "p@ss:word"
_LOGIN = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


class ConnectProxy:
    """Connects to the local port of each host name it knows, for clients that send the password."""

    def __init__(self, ports: Mapping[str, int]) -> None:
        self._ports = ports
        # Tunnels opened, and requests refused, by host name.
        self.tunnels: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.port = 0

    def options(self, scheme: str = "") -> dict[str, Any]:
        """The SDK's proxy options; its asyncio client needs the scheme."""
        return {
            "proxy_hostname": f"{scheme}127.0.0.1",
            "proxy_port": self.port,
            "username": USER,
            "password": PASSWORD,
        }

    async def start(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
            method, target, _ = head.split("\r\n", 1)[0].split(" ")
            host = target.rsplit(":", 1)[0]
            if method != "CONNECT" or host not in self._ports or f"Basic {_LOGIN}" not in head:
                self.refused[host] += 1
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                return
            self.tunnels[host] += 1
            there, back = await asyncio.open_connection("127.0.0.1", self._ports[host])
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(_pump(reader, back), _pump(there, writer))
        finally:
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextmanager
def connect_proxy(ports: Mapping[str, int]) -> Iterator[ConnectProxy]:
    """A proxy that runs until the end of the block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    proxy = ConnectProxy(ports)
    asyncio.run_coroutine_threadsafe(proxy.start(), loop).result(5)
    try:
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(_end(), loop).result(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


async def _end() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
