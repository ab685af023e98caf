"""The sending links of an entity; a topic has no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twinbus.amqp.states import AmqpError
from twinbus.broker.links.publisher import Publisher
from twinbus.entities.queue import Queue
from twinbus.entities.topic import Topic

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost
    from twinbus.broker.links.browser import Browser
    from twinbus.broker.links.consumer import Consumer


class Senders:
    """Keeps track of an entity's senders; a deletion must reach each of them."""

    __slots__ = ("entity", "host", "publishers")

    def __init__(self, host: NamespaceHost, entity: Queue | Topic) -> None:
        self.host = host
        self.entity = entity
        self.publishers: set[Publisher] = set()
        entity.on_deleted = host.bury

    def join_publisher(self, publisher: Publisher) -> None:
        self.publishers.add(publisher)
        self._count_links()

    def leave_publisher(self, publisher: Publisher) -> None:
        self.publishers.discard(publisher)
        self._count_links()

    @property
    def owners(self) -> Sequence[Browser | Consumer | Publisher]:
        """The owners of the entity's links."""
        return [*self.publishers]

    def close(self, error: AmqpError) -> None:
        """The entity was deleted: detach its links."""
        for owner in self.owners:
            owner.detach(error)

    def _count_links(self) -> None:
        """Update the number of links: an entity with links is not idle."""
        self.entity.links = len(self.owners)
        self.entity.touch(self.host.clock.now_ms())
