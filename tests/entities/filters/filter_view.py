"""A message for the filter tests: a view over plain dicts, with predictable identifiers."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from twinbus.entities.filters import SYSTEM_PROPERTIES, FilterView, Properties

ID = uuid.UUID("00000000-0000-4000-8000-000000000001")


class View:
    """`View({"color": "blue"}, Label="important")`; records what is read."""

    def __init__(self, properties: Mapping[str, Any] | None = None, **system: Any) -> None:
        assert set(system) <= set(SYSTEM_PROPERTIES)
        self._properties = Properties(properties or {})
        self._system = system
        self.asked: set[str] = set()

    @property
    def properties(self) -> Properties:
        self.asked.add("properties")
        return self._properties

    def system(self, name: str) -> Any:
        assert name in SYSTEM_PROPERTIES, "asked by its canonical name"
        self.asked.add(name)
        return self._system.get(name)

    def new_id(self) -> uuid.UUID:
        return ID


def view(properties: Mapping[str, Any] | None = None, **system: Any) -> FilterView:
    return View(properties, **system)
