"""A planted fault: a management link keeps the entity it found first, even after that was deleted and recreated."""

from __future__ import annotations

from twinbus.broker.nodes.management import EntityManagement
from twinbus.broker.nodes.requests import Request
from twinbus.entities.queue import Queue
from twinbus.entities.topic import Topic

_operate = EntityManagement._operate
_kept: dict[int, tuple[EntityManagement, Queue | Topic]] = {}


def stale(self: EntityManagement, request: Request) -> None:
    entities = self._host.entities
    if id(self) not in _kept:
        _kept[id(self)] = (self, entities.entity(self._path))
    entities.entity = lambda path: _kept[id(self)][1]  # type: ignore[method-assign]
    try:
        _operate(self, request)
    finally:
        del entities.entity  # type: ignore[method-assign]


EntityManagement._operate = stale  # type: ignore[method-assign]
