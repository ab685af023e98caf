"""A subscription's rule: which messages of the topic it selects, and what it changes on their copies."""

from __future__ import annotations

import dataclasses
import json
from functools import cached_property
from typing import Any, Final

from twinbus.limits import RULE_NAME_CHARS_MAX, RULE_OBJECT_BYTES

from .filters import Filter, SqlAction, TrueFilter, filter_from_json
from .topic_settings import check_name

# The rule of a new subscription unless another is given.
DEFAULT_RULE: Final = "$Default"


@dataclasses.dataclass(frozen=True, eq=False)
class Rule:
    """One rule. Rules compare by identity, because filters define an equality of their own."""

    name: str
    filter: Filter
    action: SqlAction | None
    created_ms: int

    def __post_init__(self) -> None:
        check_name(self.name, RULE_NAME_CHARS_MAX, "rule")

    @cached_property
    def held_bytes(self) -> int:
        """The memory it takes. Texts count twice: as they came, and in the compiled form."""
        return RULE_OBJECT_BYTES + 2 * len(json.dumps(self.to_json()))

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "filter": self.filter.to_json(),
            "action": None if self.action is None else self.action.to_json(),
            "created_ms": self.created_ms,
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Rule:
        action = fields["action"]
        return cls(
            fields["name"],
            filter_from_json(fields["filter"]),
            None if action is None else SqlAction.from_json(action),
            int(fields["created_ms"]),
        )


def default_rule(now_ms: int) -> Rule:
    """Selects everything and changes nothing."""
    return Rule(DEFAULT_RULE, TrueFilter(), None, now_ms)
