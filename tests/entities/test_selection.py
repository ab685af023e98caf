"""All rules of a topic together: the same answers as one by one, for less work, at once or in steps."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from test_rules_cost import steps
from topic_house import JsonView, TopicHouse, post, rule

from twinbus.entities.filters import CorrelationFilter, FalseFilter, TrueFilter
from twinbus.entities.rule import Rule
from twinbus.entities.selection import Choice, Selection
from twinbus.errors import FilterEvaluationError
from twinbus.limits import SELECT_US_MAX

COLORS = ["red", "blue", "Red", 1, 1.0, True, None]
TEXTS = [
    "color = 'red'",
    "color LIKE '%e_%'",
    "NOT (weight > 5)",
    "weight / 0 = 1",
    "colour IS NULL",
    "weight > 2 OR color = 1",
]
ACTIONS = [None, None, "SET seen = 'yes'", "SET n = 1 / 0", "REMOVE color; SET sys.Label = 'x'"]


def any_rule(name: str, chance: random.Random) -> Rule:
    action = chance.choice(ACTIONS)
    match chance.randrange(6):
        case 0:
            return rule(name, TrueFilter(), action)
        case 1:
            return rule(name, FalseFilter(), action)
        case 2:
            return rule(name, chance.choice(TEXTS), action)
    names = chance.sample(["color", "Color", "weight", "a", "b"], chance.randrange(1, 4))
    values = {each: chance.choice(COLORS[:-1]) for each in names if each != "Color" or "color" not in names}
    label = chance.choice([None, None, "a"])
    return rule(name, CorrelationFilter(label=label, properties=values), action)


def any_view(chance: random.Random) -> JsonView:
    names = chance.sample(["color", "COLOR", "weight", "a", "B"], chance.randrange(5))
    properties: dict[str, Any] = {name: chance.choice([*COLORS, 7]) for name in names}
    if chance.random() < 0.1:
        properties["unreadable"] = True
    return JsonView(post("m", system={"Label": chance.choice([None, "a"])}, **properties).body, None)


def readable(view: JsonView) -> bool:
    try:
        return view.properties is not None
    except FilterEvaluationError:
        return False


def one_by_one(house: TopicHouse, view: JsonView) -> list[Any]:
    """What each rule says on its own, put together as the service does."""
    found: list[Any] = []
    filters = [each.filter for subscription in house.topic.subscriptions for each in subscription.rules]
    # Correlation filters look at a message together: if it cannot be read, all of them fail.
    together = any(isinstance(each, CorrelationFilter) and each.user_key for each in filters) and not readable(view)
    for subscription in house.topic.subscriptions:
        plain, failed = False, False
        copies: list[Any] = []
        for each in subscription.rules:
            try:
                if together and isinstance(each.filter, CorrelationFilter):
                    raise FilterEvaluationError("unreadable")
                if not each.filter.matches(view):
                    continue
                if each.action is None:
                    plain = True
                    continue
                changes = each.action.apply(view)
                copies.append((subscription.name, view.encode(changes) or None, changes.system, False))
            except FilterEvaluationError:
                failed = True
        if plain:
            copies.append((subscription.name, None, {}, False))
        if not copies and failed and subscription.settings.dead_letter_on_filter_error:
            copies.append((subscription.name, None, {}, True))
        found += copies
    return sorted(found, key=repr)


def shown(choices: list[Choice]) -> list[Any]:
    return sorted(
        ((each.subscription.name, each.changes, each.system, each.error is not None) for each in choices), key=repr
    )


def in_steps(
    selection: Selection, view: Any, between: Callable[[int], None] = lambda _: None
) -> tuple[list[Choice], int]:
    """The choices, and how many steps came before."""
    work = selection.select_in_steps(view)
    count = 0
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value, count
        between(count)
        count += 1


@pytest.mark.parametrize("seed", range(40))
def test_together_they_say_what_each_says_alone(seed: int) -> None:
    chance = random.Random(seed)
    house = TopicHouse()
    for name in "abcd":
        house.subscribe(name, any_rule("$Default", chance).filter, dead_letter_on_filter_error=chance.random() < 0.5)
    for number in range(30):
        subscription = house.subscription(chance.choice("abcd"))
        if number % 4 == 3 and subscription.rules:
            subscription.remove_rule(chance.choice(subscription.rules).name, house.now, house.facts)
        else:
            subscription.add_rule(any_rule(str(number), chance), house.now, house.facts)
        house.commit()
        for _ in range(3):
            view = any_view(chance)
            expected = one_by_one(house, view)
            assert shown(house.topic.selection.select(view)) == expected
            assert shown(in_steps(house.topic.selection, view)[0]) == expected
    house.crash()
    view = any_view(chance)
    assert shown(house.topic.selection.select(view)) == one_by_one(house, view)
    for name in "abcd":
        house.namespace.delete_subscription("t", name, house.now, house.facts)
    assert not house.topic.selection.looks
    assert house.topic.selection.cost_us(1_000, 10**9) == 0
    assert house.topic.selection.acting_count == 0


def house_with(filters: list[Any]) -> TopicHouse:
    house = TopicHouse()
    house.subscribe("s", FalseFilter())
    for number, each in enumerate(filters):
        house.subscription("s").add_rule(rule(str(number), each), house.now, house.facts)
    house.commit()
    return house


@pytest.mark.parametrize("kind", ["equal", "one property", "sharing a property"])
def test_a_message_costs_the_same_with_many_correlation_rules(kind: str) -> None:
    def filters(count: int) -> list[CorrelationFilter]:
        if kind == "equal":
            return [CorrelationFilter(properties={"p": "x"}) for _ in range(count)]
        if kind == "one property":
            return [CorrelationFilter(properties={"p": str(number)}) for number in range(count)]
        return [CorrelationFilter(properties={"p": "x", f"q{number}": "y"}) for number in range(count)]

    def work_at(count: int) -> int:
        house = house_with(filters(count))
        view = JsonView(post("m", p="x").body, None)
        return steps(lambda: house.topic.selection.select(view))

    assert work_at(2_000) <= work_at(20) + 20


def test_an_unreadable_message_costs_one_look_per_subscription() -> None:
    def work_at(count: int) -> int:
        house = house_with([CorrelationFilter(label=str(number)) for number in range(count)])
        view = JsonView(post("m", system={"unreadable": True}).body, None)
        assert [each.error for each in house.topic.selection.select(view)] == ["Rule '0': unreadable"]
        return steps(lambda: house.topic.selection.select(view))

    assert work_at(1_000) == work_at(10)


def test_long_searches_take_a_step_each() -> None:
    house = house_with([f"p LIKE '%{'a_' * 20}{number}%'" for number in range(100)])
    selection = house.topic.selection
    short, long = (JsonView(post("m", p="ab" * count).body, None) for count in (10, 15_000))
    choices, short_steps = in_steps(selection, short)
    assert (choices, short_steps) == ([], 1)
    choices, long_steps = in_steps(selection, long)
    assert choices == []
    assert long_steps > 10
    assert selection.cost_us(1, short.looked_bytes()) < SELECT_US_MAX < selection.cost_us(1, long.looked_bytes())


def test_rules_that_come_and_go_between_steps_change_nothing() -> None:
    house = house_with(["p LIKE '%x_y%'" for _ in range(200)])
    subscription = house.subscription("s")
    view = JsonView(post("m", p="ab" * 15_000).body, None)

    def change(number: int) -> None:
        if number < 5:
            subscription.remove_rule(str(number * 7), house.now, house.facts)
            subscription.add_rule(rule(f"new{number}", TrueFilter()), house.now, house.facts)

    assert in_steps(house.topic.selection, view, change)[0] == []


# --- messages without a sender who waits ------------------------------------------------------------------------------


def heavy() -> TopicHouse:
    house = house_with([f"p LIKE '%{'a_' * 20}{number}%'" for number in range(200)])
    house.subscribe("all")
    return house


def ticks(house: TopicHouse) -> int:
    """Ticks until nothing is due."""
    count = 0
    while (at_ms := house.namespace.next_deadline()) is not None and at_ms <= house.now:
        house.namespace.tick(house.now, house.facts)
        house.commit()
        count += 1
    return count


def test_a_scheduled_message_is_judged_over_several_ticks() -> None:
    house = heavy()
    later_ms = house.now + 1_000
    numbers = house.topic.schedule(
        [post(name, p="ab" * 15_000, scheduled_ms=later_ms) for name in "abc"], house.now, house.facts
    )
    house.commit()
    house.clock.step(seconds=2)
    house.namespace.tick(house.now, house.facts)
    house.commit()
    assert house.topic.scheduled_count == 3
    # It can still be cancelled, and another takes its turn.
    house.topic.cancel(numbers[:1], house.now, house.facts)
    assert ticks(house) > 4
    assert house.finish(house.sub("all")) == ["b", "c"]
    assert house.finish(house.sub("s")) == []
    assert house.bodies == 0


def test_a_forwarded_message_is_judged_over_several_ticks() -> None:
    house = heavy()
    source = house.create("source", forward_to="t")
    source.send([post(name, p="ab" * 15_000) for name in "ab"], house.now, house.facts)
    house.commit()
    house.namespace.tick(house.now, house.facts)
    house.commit()
    assert source.counts.active == 2
    assert ticks(house) > 4
    assert house.finish(house.sub("all")) == ["a", "b"]
    house.sweep()
    assert house.bodies == 0


def test_a_subscription_deleted_between_two_ticks_gets_nothing() -> None:
    house = heavy()
    source = house.create("source", forward_to="t")
    source.send([post("a", p="ab" * 15_000)], house.now, house.facts)
    house.commit()
    house.namespace.tick(house.now, house.facts)
    house.commit()
    house.namespace.delete_subscription("t", "all", house.now, house.facts)
    house.commit()
    ticks(house)
    house.sweep()
    assert source.counts.active == 0
    assert house.bodies == 0
