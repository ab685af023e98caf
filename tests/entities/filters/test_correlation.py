"""Correlation filters, on their own and in the index."""

from __future__ import annotations

import datetime
import itertools
import math
import uuid
from typing import Any

import pytest
from filter_view import View, view
from hypothesis import given, settings
from hypothesis import strategies as st

from twinbus.entities.filters import CorrelationFilter, CorrelationIndex, Needs, filter_from_json
from twinbus.errors import ArgumentError

SYSTEM = {
    "correlation_id": "CorrelationId",
    "message_id": "MessageId",
    "to": "To",
    "reply_to": "ReplyTo",
    "label": "Label",
    "session_id": "SessionId",
    "reply_to_session_id": "ReplyToSessionId",
    "content_type": "ContentType",
}


@pytest.mark.parametrize(("field", "name"), SYSTEM.items())
def test_each_field_has_its_system_property(field: str, name: str) -> None:
    one = CorrelationFilter(**{field: "Red"})
    assert one.needs == Needs(system=frozenset({name}))
    assert one.matches(view(**{name: "Red"}))
    assert not one.matches(view(**{name: "red"}))
    assert not one.matches(view())
    assert getattr(one, field) == "Red"


def test_everything_given_must_match() -> None:
    one = CorrelationFilter(label="Important", reply_to="john@example.org", properties={"color": "Red"})
    good: dict[str, Any] = {"Label": "Important", "ReplyTo": "john@example.org"}
    assert one.matches(view({"COLOR": "Red"}, **good))
    assert not one.matches(view({"color": "Blue"}, **good))
    assert not one.matches(view({}, **good))
    assert not one.matches(view({"color": None}, **good))
    assert not one.matches(view({"color": "Red"}, Label="Important"))
    assert one.needs == Needs(True, frozenset({"Label", "ReplyTo"}))


MOMENT = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("wanted", "equal", "other"),
    [
        (1, [1, 1.0], [2, "1", True, None, [1]]),
        (1.0, [1, 1.0], [True]),
        (0.5, [0.5], [0, "0.5"]),
        (True, [True], [1, "True", False]),
        (False, [False], [0, None]),
        ("1", ["1"], [1, b"1"]),
        (uuid.UUID(int=1), [uuid.UUID(int=1)], [str(uuid.UUID(int=1))]),
        (b"x", [b"x"], ["x"]),
        (MOMENT, [1_704_067_200_000, MOMENT], [1_704_067_200_001]),
        (math.inf, [math.inf], [math.nan]),
    ],
)
def test_values_by_kind_and_value(wanted: Any, equal: list[Any], other: list[Any]) -> None:
    one = CorrelationFilter(properties={"x": wanted})
    index: CorrelationIndex[str] = CorrelationIndex()
    index.add("one", one)
    for value in equal:
        assert one.matches(view({"x": value}))
        assert index.match(view({"x": value})) == ["one"]
    for value in other:
        assert not one.matches(view({"x": value}))
        assert index.match(view({"x": value})) == []


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, "has no condition"),
        ({"properties": {}}, "has no condition"),
        ({"label": 5}, "The label of a correlation filter is int; it must be a string"),
        ({"label": "x" * 40_000}, "has 40000 characters"),
        ({"properties": {"a": None}}, "'a' is NoneType"),
        ({"properties": {"a": [1]}}, "'a' is list"),
        ({"properties": {"a": math.nan}}, "which equals nothing"),
        ({"properties": {"a": 1, "A": 2}}, "given twice"),
        ({"properties": {"": 1}}, "is not a text"),
        ({"properties": {"a": "x" * 40_000}}, "has a value of 40000"),
        ({"properties": {f"p{n}": n for n in range(257)}}, "a rule may have 256"),
    ],
)
def test_filters_that_are_refused(given: dict[str, Any], error: str) -> None:
    with pytest.raises(ArgumentError, match=error):
        CorrelationFilter(**given)


def test_stored_form_and_equality() -> None:
    one = CorrelationFilter(label="a", properties={"n": 1, "at": MOMENT})
    again = filter_from_json(one.to_json())
    assert again == one
    assert hash(again) == hash(one)
    assert again != CorrelationFilter(label="a", properties={"n": True, "at": MOMENT})
    assert again != CorrelationFilter(label="b", properties={"n": 1, "at": MOMENT})
    assert one != "label"
    assert repr(CorrelationFilter(to="x", properties={"n": 1})) == "CorrelationFilter(to='x', properties={'n': 1})"


# --- the index ------------------------------------------------------------------------------------------------------
def test_add_replace_remove() -> None:
    index: CorrelationIndex[int] = CorrelationIndex()
    red, blue = (CorrelationFilter(properties={"color": color}) for color in ("red", "blue"))
    assert index.needs == Needs()
    index.add(1, red)
    index.add(2, red)
    index.add(3, CorrelationFilter(label="x"))
    assert index.match(view({"color": "red"}, Label="x")) == [3, 1, 2]
    assert index.needs == Needs(True, frozenset({"Label"}))
    index.add(1, blue)
    assert index.match(view({"Color": "red"})) == [2]
    assert index.match(view({"Color": "blue"})) == [1]
    assert len(index) == 3
    assert 1 in index
    for key in (1, 2, 9):
        index.remove(key)
    assert 1 not in index
    assert index.match(view({"color": "red"}, Label="x")) == [3]
    assert index.needs == Needs(system=frozenset({"Label"}))
    index.remove(3)
    assert index.needs == Needs()
    assert len(index) == 0


_filters = st.builds(
    CorrelationFilter,
    label=st.sampled_from([None, "a", "b"]),
    to=st.sampled_from([None, "a"]),
    properties=st.dictionaries(st.sampled_from(["x", "Y"]), st.sampled_from([1, 1.0, True, "a", 0.5]), min_size=0).map(
        lambda found: found or {"x": 1}
    ),
)
_messages = st.builds(
    lambda properties, system: view(properties, **system),
    st.dictionaries(st.sampled_from(["X", "y", "z"]), st.sampled_from([1, True, "a", 0.5, None, [1], 1.0])),
    st.fixed_dictionaries({}, optional={"Label": st.sampled_from(["a", "b"]), "To": st.sampled_from(["a", "c"])}),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_filters, max_size=8), st.sets(st.integers(0, 7)), st.lists(_messages, min_size=1, max_size=4))
def test_the_index_finds_what_a_scan_finds(
    filters: list[CorrelationFilter], removed: set[int], messages: list[View]
) -> None:
    index: CorrelationIndex[int] = CorrelationIndex()
    for key, one in enumerate(filters):
        index.add(key, one)
    for key in removed:
        index.remove(key)
    left = {key: one for key, one in enumerate(filters) if key not in removed}
    assert len(index) == len(left)
    for message in messages:
        assert sorted(index.match(message)) == [key for key, one in left.items() if one.matches(message)]


class Counting(View):
    """Counts how often its properties are read."""

    looks = 0

    def system(self, name: str) -> Any:
        self.looks += 1
        return super().system(name)


def test_work_does_not_grow_with_the_number_of_filters() -> None:
    for count in (10, 10_000):
        index: CorrelationIndex[int] = CorrelationIndex()
        for key in range(count):
            index.add(key, CorrelationFilter(label=f"l{key}", to="x"))
        one = Counting(Label="l7", To="x")
        assert index.match(one) == [7]
        assert one.looks <= 3


def test_filters_that_share_an_equality_lie_under_others() -> None:
    for count in (10, 10_000):
        index: CorrelationIndex[int] = CorrelationIndex()
        for key in range(count):
            index.add(key, CorrelationFilter(label="a", properties={"p": "x", f"q{key}": "y"}))
        assert len(index.candidates(view({"p": "x", "q7": "z"}, Label="a"))) <= 3
        assert index.match(view({"p": "x", "q7": "y"}, Label="a")) == [7]
        assert index.reach >= 1


def test_filters_of_pairs_lie_evenly() -> None:
    index: CorrelationIndex[int] = CorrelationIndex()
    for key, pair in enumerate(itertools.product(range(50), range(50))):
        index.add(key, CorrelationFilter(label="a", properties={f"p{pair[0]}": 1, f"q{pair[1]}": 1}))
    one = Counting({"p3": 1, "q4": 1}, Label="a")
    assert index.match(one) == [3 * 50 + 4]
    # A few dozen of the 2,500 lie under each of the three equalities.
    assert len(index.candidates(one)) <= 150
    assert one.looks <= 150


def test_equal_filters_are_one_entry() -> None:
    index: CorrelationIndex[int] = CorrelationIndex()
    spelled = ["color", "Color", "COLOR", "coLor"]
    for key in range(1_000):
        index.add(key, CorrelationFilter(properties={spelled[key % 4]: 1 if key % 2 else 1.0}))
    one = view({"Color": 1})
    assert len(index.candidates(one)) == 1
    assert index.match(one) == list(range(1_000))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), _filters)), max_size=30), _messages)
def test_the_reach_is_never_too_low(commands: list[tuple[int, CorrelationFilter | None]], message: View) -> None:
    index: CorrelationIndex[int] = CorrelationIndex()
    for key, one in commands:
        if one is None:
            index.remove(key)
        else:
            index.add(key, one)
        assert len(index.candidates(message)) <= index.reach
    for key in range(6):
        index.remove(key)
    assert (index.reach, index.needs) == (0, Needs())
