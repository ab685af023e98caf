"""Reads stored filters by their type name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from twinbus.errors import ArgumentError

from .correlation import CorrelationFilter
from .fixed import FalseFilter, TrueFilter
from .selector import MessageSelector
from .sql import SqlFilter

Filter: TypeAlias = TrueFilter | FalseFilter | SqlFilter | CorrelationFilter


def filter_from_json(fields: Mapping[str, Any]) -> Filter:
    """The filter that `to_json` wrote as these fields."""
    match fields.get("type"):
        case "true":
            return TrueFilter()
        case "false":
            return FalseFilter()
        case "sql":
            return SqlFilter.from_json(fields)
        case "selector":
            return MessageSelector.from_json(fields)
        case "correlation":
            return CorrelationFilter.from_json(fields)
    raise ArgumentError(f"There is no filter of type {fields.get('type')!r}.")
