"""Actions: what they change, how values keep their types, and what they leave unchanged."""

from __future__ import annotations

import datetime
import uuid
from typing import Any

import pytest
from filter_view import ID, View, view

from twinbus.entities.filters import REMOVED, Changes, Needs, SqlAction
from twinbus.errors import FilterEvaluationError


def changed(text: str, properties: dict[str, Any] | None = None, **system: Any) -> Changes:
    return SqlAction(text).apply(view(properties, **system))


def test_the_documented_example() -> None:
    text = "SET quantity = quantity / 2; REMOVE priority;SET sys.CorrelationId = 'low';"
    before = {"color": "red", "quantity": 5, "priority": "high"}
    assert changed(text, before, CorrelationId="high") == Changes(
        {"quantity": 2, "priority": REMOVED}, {"CorrelationId": "low"}
    )
    assert before == {"color": "red", "quantity": 5, "priority": "high"}


def test_statements_run_in_order_and_see_each_other() -> None:
    assert changed("SET a = 1 SET b = a + 1 SET a = b * 10").properties == {"a": 20, "b": 2}
    assert changed("SET sys.Label = 'x'; SET old = sys.Label + '!'").properties == {"old": "x!"}
    assert changed("REMOVE a; SET b = a", {"a": 1}).properties == {"a": REMOVED, "b": None}
    assert changed("SET a = 1; REMOVE a").properties == {}
    assert changed("REMOVE a; SET a = 'new'", {"a": 1}).properties == {"a": "new"}
    assert changed("REMOVE sys.Label; SET there = sys.Label", Label="x") == Changes({"there": None}, {"Label": REMOVED})


def test_names_keep_the_senders_spelling() -> None:
    assert changed("SET COLOR = 'red'; REMOVE SIZE", {"Color": "blue", "Size": 1}).properties == {
        "Color": "red",
        "Size": REMOVED,
    }
    assert changed("SET [New Name] = 1; SET [NEW name] = 2").properties == {"New Name": 2}


def test_what_is_not_there_is_no_error() -> None:
    assert changed("REMOVE nothing; SET a = nothing; SET b = nothing + 1").properties == {"a": None, "b": None}


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        (1, "'5'", 5),
        (1, "' -5 '", -5),
        (1, "'five'", "five"),
        (1, "'99999999999999999999'", "99999999999999999999"),
        (1, "2.5", 2.5),
        (1.5, "2", 2.0),
        (1.5, "'2.5'", 2.5),
        (1.5, "'x'", "x"),
        (1.5, "TRUE", True),
        (True, "'FALSE'", False),
        (True, "'x'", "x"),
        (True, "1", 1),
        ("text", "5", 5),
        ("text", "TRUE", True),
        (uuid.UUID(int=5), f"'{ID}'", ID),
        (uuid.UUID(int=5), "'x'", "x"),
        (1, "NULL", None),
        ([1], "'x'", "x"),
    ],
)
def test_a_property_keeps_its_type_where_it_can(before: Any, value: str, after: Any) -> None:
    got = changed(f"SET x = {value}", {"x": before}).properties["x"]
    assert got == after
    assert type(got) is type(after)


@pytest.mark.parametrize(
    ("statement", "system"),
    [
        ("SET sys.SessionId = newid()", {"SessionId": str(ID)}),
        ("SET sys.SessionId = user.OrderNum + newid()", {"SessionId": f"7{ID}"}),
        ("SET sys.Subject = 5", {"Label": "5"}),
        ("SET sys.label = TRUE", {"Label": "True"}),
        ("SET sys.To = NULL", {"To": REMOVED}),
        ("REMOVE sys.ReplyTo", {"ReplyTo": REMOVED}),
        ("SET sys.TimeToLive = '00:01:30'", {"TimeToLive": 90_000}),
        ("SET sys.TimeToLive = '1.02:03:04.5678'", {"TimeToLive": ((26 * 60 + 3) * 60 + 4) * 1000 + 567}),
        ("SET sys.TimeToLive = 5000", {"TimeToLive": 5000}),
        ("SET sys.TimeToLive = @span", {"TimeToLive": 1500}),
        ("SET sys.ScheduledEnqueueTimeUtc = '2024-01-01T00:00:00Z'", {"ScheduledEnqueueTimeUtc": 1_704_067_200_000}),
        ("SET sys.ScheduledEnqueueTime = @time", {"ScheduledEnqueueTimeUtc": 1_704_067_200_000}),
        ("SET sys.ForcePersistence = 'true'", {"ForcePersistence": True}),
        ("SET sys.ForcePersistence = FALSE", {"ForcePersistence": False}),
    ],
)
def test_system_properties_take_their_own_type(statement: str, system: dict[str, Any]) -> None:
    parameters = {
        "@span": datetime.timedelta(seconds=1.5),
        "@time": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
    }
    assert SqlAction(statement, parameters).apply(view({"OrderNum": "7"})) == Changes({}, system)


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("SET sys.TimeToLive = 'soon'", "sys.TimeToLive cannot be set to a string that is no span"),
        ("SET sys.TimeToLive = TRUE", "cannot be set to a boolean"),
        ("SET sys.TimeToLive = 1e300", "cannot be set to a number"),
        ("SET sys.ScheduledEnqueueTimeUtc = 'soon'", "that is no time"),
        ("SET sys.ForcePersistence = 1", "that is no flag"),
        ("SET sys.Label = blob", "A binary cannot be written as a string"),
        ("SET sys.SessionId = long", "sys.SessionId was set to 129 characters; it may have 128"),
        ("SET a = 1 / 0", "divided by zero"),
    ],
)
def test_failures_on_a_message(statement: str, error: str) -> None:
    action = SqlAction(statement)
    with pytest.raises(FilterEvaluationError, match=error):
        action.apply(view({"blob": b"x", "long": "x" * 129}))


def test_a_parameter_is_set_as_it_is() -> None:
    moment = datetime.datetime(2020, 7, 5, 11, 12, 13)  # noqa: DTZ001 - what the Python client sends
    assert SqlAction("SET Priority = @param", {"@param": moment}).apply(view()).properties == {"Priority": moment}


def test_needs() -> None:
    assert SqlAction("SET a = 1").needs == Needs(properties=True)
    assert SqlAction("REMOVE a").needs == Needs(properties=True)
    assert SqlAction("SET sys.To = sys.ReplyTo").needs == Needs(system=frozenset({"ReplyTo"}))
    one = View({"a": 1}, ReplyTo="x")
    assert SqlAction("SET sys.To = sys.ReplyTo; REMOVE sys.ReplyTo").apply(one).system == {
        "To": "x",
        "ReplyTo": REMOVED,
    }
    assert one.asked == {"ReplyTo"}


def test_stored_form_and_equality() -> None:
    action = SqlAction("SET a = @b", {"@b": 5})
    again = SqlAction.from_json(action.to_json())
    assert again == action
    assert hash(again) == hash(action)
    assert again.apply(view()).properties == {"a": 5}
    assert again.needs.properties
    assert action != SqlAction("SET a = @b", {"@b": True})
    assert action != SqlAction("SET a = @b ", {"@b": 5})
    assert action != "SET a = @b"
    assert repr(action) == "SqlAction('SET a = @b')"
    assert repr(REMOVED) == "REMOVED"


def test_a_stored_text_that_is_no_longer_good_fails_on_the_message() -> None:
    broken = SqlAction.from_json({"type": "sql", "expression": "SET", "parameters": {}})
    with pytest.raises(FilterEvaluationError, match="The SQL action is not valid"):
        broken.apply(view())
