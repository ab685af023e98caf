"""Receive from one session while holding its lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.amqp import Link, Symbol, UInt
from twinbus.client.receiver import Receiver
from twinbus.errors import InternalError
from twinbus.limits import CLIENT_TIMEOUT_MS

if TYPE_CHECKING:
    from twinbus.client.connection import BusConnection

SESSION_FILTER = Symbol("com.microsoft:session-filter")
TIMEOUT = Symbol("com.microsoft:timeout")
LOCKED_UNTIL = Symbol("com.microsoft:locked-until-utc")

# .NET ticks: units of 100 ns since the year 1.
_TICKS_AT_EPOCH = 621_355_968_000_000_000
_TICKS_PER_MS = 10_000


class SessionReceiver(Receiver):
    """Holds one session; created by `BusClient.accept_session`."""

    def __init__(
        self,
        connection: BusConnection,
        path: str,
        *,
        name: str,
        session_id: str | None,
        prefetch: int = 0,
        delete: bool = False,
        timeout_ms: int = CLIENT_TIMEOUT_MS,
    ) -> None:
        super().__init__(
            connection,
            path,
            name=name,
            prefetch=prefetch,
            delete=delete,
            filters={SESSION_FILTER: session_id},
            properties={TIMEOUT: UInt(timeout_ms)},
        )
        # The requested session, then the accepted one.
        self._session_id = session_id
        # Expiry of the session lock, in milliseconds since the Unix epoch; None if the service did not say.
        self.locked_until_ms: int | None = None

    @property
    def session_id(self) -> str | None:
        return self._session_id

    def on_attached(self, link: Link) -> None:
        given = (link.source.filter or {}).get(SESSION_FILTER) if link.source is not None else None
        if not isinstance(given, str):
            self.fail(InternalError("The service did not name the accepted session."))
            self._leave()
            return
        self._session_id = given
        ticks = (link.properties or {}).get(LOCKED_UNTIL)
        if isinstance(ticks, int):
            self.locked_until_ms = (int(ticks) - _TICKS_AT_EPOCH) // _TICKS_PER_MS
        super().on_attached(link)

    async def renew_session(self) -> int:
        """Renew the session lock; return when it expires."""
        self.locked_until_ms = await self.management.renew_session(self._held())
        return self.locked_until_ms

    async def get_state(self) -> bytes | None:
        return await self.management.session_state(self._held())

    async def set_state(self, state: bytes | None) -> None:
        await self.management.set_session_state(self._held(), state)

    def _held(self) -> str:
        return self._session_id or ""
