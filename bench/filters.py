"""What a subscription rule costs: `python bench/filters.py` prints one JSON object.

A view stands for a message whose properties are already decoded, as when a hundred rules look at one message. Each
figure is the best of several runs, because other work on the machine can only add to it.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from typing import Any

from twinbus.entities.filters import CorrelationFilter, CorrelationIndex, Properties, SqlAction, SqlFilter
from twinbus.entities.filters import reader as sql_reader

RUNS = 7

FILTERS = {
    "equal_text": "color = 'blue'",
    "two_equal": "color = 'blue' AND quantity = 10",
    "missing_property": "absent = 'blue'",
    "system_like": "sys.Label LIKE '%order%'",
    "in_list": "StoreId IN ('Store1', 'Store2', 'Store3', 'Store4')",
    "arithmetic": "quantity * 2 + 1 > 20",
    "long": (
        "user.color = 'red' OR (quantity > 10 AND sys.Label LIKE 'a%') OR "
        "(StoreId IN ('Store1', 'Store2') AND NOT EXISTS(archived) AND price / 2 < 50)"
    ),
}


class View:
    """A message with some properties."""

    def __init__(self, properties: dict[str, Any], system: dict[str, Any]) -> None:
        self.properties = Properties(properties)
        self.system = system.get

    def new_id(self) -> uuid.UUID:
        return uuid.UUID(int=0)


def best_us(call: Callable[[], object], times: int) -> float:
    best = float("inf")
    for _ in range(RUNS):
        started = time.perf_counter()
        for _ in range(times):
            call()
        best = min(best, time.perf_counter() - started)
    return round(best / times * 1e6, 3)


def index_of(count: int) -> CorrelationIndex[int]:
    index: CorrelationIndex[int] = CorrelationIndex()
    for number in range(count):
        index.add(number, CorrelationFilter(label="order", properties={"customer": f"c{number}"}))
    return index


def main() -> None:
    started = time.perf_counter()
    SqlFilter("a = 1")
    first_ms = round((time.perf_counter() - started) * 1e3, 1)

    properties = {"color": "blue", "quantity": 10, "StoreId": "Store3", "price": 42.5, "customer": "c7"}
    view = View(properties, {"Label": "order", "MessageId": "m"})
    filters = {name: SqlFilter(text) for name, text in FILTERS.items()}
    hundred = [SqlFilter(f"color = 'blue' AND quantity > {number}") for number in range(100)]

    def compile_long() -> None:
        sql_reader._filter.cache_clear()
        SqlFilter(FILTERS["long"])

    indexes = {count: index_of(count) for count in (10, 10_000)}
    assert all(index.match(view) == [7] for index in indexes.values())
    action = SqlAction("SET quantity = quantity / 2; REMOVE price; SET sys.CorrelationId = 'low'")
    print(
        json.dumps(
            {
                "first_compile_with_import_ms": first_ms,
                "compile_us": {"long": best_us(compile_long, 50)},
                "fold_five_properties_us": best_us(lambda: Properties(properties), 2_000),
                "sql_us": {name: best_us(lambda one=one: one.matches(view), 2_000) for name, one in filters.items()},
                "hundred_subscriptions_us": best_us(lambda: [one.matches(view) for one in hundred], 50),
                "action_us": best_us(lambda: action.apply(view), 2_000),
                "index_match_us": {
                    str(count): best_us(lambda index=index: index.match(view), 2_000)
                    for count, index in indexes.items()
                },
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
