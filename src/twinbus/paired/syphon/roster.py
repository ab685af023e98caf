"""Which backlog queues a syphon empties: those of its primary, after the primary has said who it is.

- The secondary's list of queues says which they are, whatever their names. Without the right to read it, the names
  that the primary's backlog may have are tried one by one.
- A queue that is not surely the primary's is never emptied. If it may be, and messages wait in it, it is reported.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar, cast

from twinbus.client import BusClient
from twinbus.errors import (
    ConnectionForcedError,
    EntityNotFoundError,
    OperationTimeoutError,
    ServiceError,
    UnauthorizedError,
)
from twinbus.paired.homes import Home, Relation
from twinbus.paired.options import backlog_names

T = TypeVar("T")

# A plain function may block, so it runs in a thread.
HomeSource = Callable[[], Home] | Callable[[], Awaitable[Home]]
# All backlog queues of the secondary, with their user metadata.
QueueSource = Callable[[], Mapping[str, str | None]] | Callable[[], Awaitable[Mapping[str, str | None]]]


@dataclass(frozen=True, slots=True)
class Roster:
    """The backlog queues of a primary. `homeless` may be its own or another's, and hold messages."""

    home: Home
    own: tuple[str, ...]
    homeless: tuple[str, ...] = ()


class BacklogRoster:
    """Finds the backlog queues of one primary in one secondary.

    `queues` is None if the secondary's list of queues cannot be read. `secondary` creates a client for it. `name` is
    the primary's name as far as it is known before the primary has answered; None if it is not.
    """

    def __init__(
        self,
        home: HomeSource,
        queues: QueueSource | None,
        secondary: Callable[[], BusClient],
        *,
        count: int,
        name: str | None = None,
    ) -> None:
        self._home = home
        self._queues = queues
        self._secondary = secondary
        self._count = count
        self._name = name

    @property
    def expected(self) -> list[str]:
        """The queues that the backlog is probably in, before the primary has answered."""
        return [] if self._name is None else backlog_names(self._name, self._count)

    async def find(self) -> Roster:
        """Ask the primary who it is, and the secondary which queues it has. Raises ServiceError without an answer."""
        home = await _called(self._home)
        if not home.answered:
            raise ConnectionForcedError(f"The primary at {home.address.place} cannot be reached.")
        found = await self._listed()
        async with self._secondary() as client:
            if found is None:
                found = await self._tried(home, client)
            relations = {name: home.relation(name, metadata) for name, metadata in found.items()}
            own = [name for name, relation in relations.items() if relation is Relation.OWN]
            if home.sure:
                # Those that do not exist yet may be created at any time.
                lower = {name.lower() for name in relations}
                own += [name for name in home.names(self._count) if name.lower() not in lower]
            unsure = [name for name, relation in relations.items() if relation is Relation.NONE]
            homeless = [name for name in unsure if await _holds_messages(client, name)]
        return Roster(home, tuple(own), tuple(homeless))

    def find_now(self) -> Roster:
        """The same for callers without an event loop."""
        return asyncio.run(self.find())

    async def _listed(self) -> Mapping[str, str | None] | None:
        """The backlog queues by the administration API; None if it cannot be used."""
        if self._queues is None:
            return None
        try:
            return await _called(self._queues)
        except (ServiceError, OSError):
            raise
        except Exception:
            # Of the SDK: not allowed, or not reached. The queues themselves may be.
            return None

    async def _tried(self, home: Home, client: BusClient) -> dict[str, str | None]:
        """The queues of the names that the backlog may have, by asking each."""
        found: dict[str, str | None] = {}
        others = home.other_names(self._count)
        for name in dict.fromkeys([*home.names(self._count), *others, *home.guessed_names(self._count)]):
            try:
                found[name] = (await described(client, name)).home
            except (EntityNotFoundError, UnauthorizedError):
                continue
            except (ConnectionForcedError, OperationTimeoutError):
                raise
            except ServiceError:
                # Not a Twinbus broker, so it does not say: the name decides.
                found[name] = home.mark if name in others else None
        return found


class BacklogDescription(NamedTuple):
    """What a Twinbus broker says about a backlog queue: its mark, and how many receivers it has."""

    home: str | None
    receivers: int


async def described(client: BusClient, queue: str) -> BacklogDescription:
    """Ask for the mark and the receivers of a queue; other brokers raise ServiceError."""
    body = await (await client.management(queue)).ask("twinbus:get-home", {})
    home = body.get("home")
    return BacklogDescription(None if home is None else str(home), int(body.get("receivers", 0)))


async def _holds_messages(client: BusClient, queue: str) -> bool:
    try:
        return bool(await (await client.management(queue)).peek(1))
    except ServiceError:
        return False


async def _called(function: Callable[[], T] | Callable[[], Awaitable[T]]) -> T:
    if inspect.iscoroutinefunction(function):
        return cast(T, await function())
    return cast(T, await asyncio.to_thread(function))
