"""Message selectors of JMS: their grammar, three-valued logic and rules for numbers, strings and names."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from twinbus.entities.filters import FilterView, MessageSelector, Properties, SqlFilter, filter_from_json
from twinbus.errors import ArgumentError, FilterEvaluationError
from twinbus.limits import SELECTOR_CHARS_MAX


class Shown:
    """A message with properties and headers."""

    def __init__(self, properties: dict[str, Any], headers: dict[str, Any]) -> None:
        self.properties = Properties(properties)
        self._headers = headers

    def system(self, name: str) -> Any:
        raise AssertionError("a selector has no system properties")

    def new_id(self) -> uuid.UUID:
        raise AssertionError("a selector has no functions")

    def header(self, name: str) -> Any:
        if name == "JMSType":
            raise FilterEvaluationError("unreadable")
        return self._headers.get(name)


VIEW: FilterView = Shown(
    {"a": 1, "s": "x_y", "yes": True, "no": False, "f": 2.5, "big": 2**62, "$d": 1, "_u": 2, "Ä": 3, "raw": b"x"},
    {"JMSPriority": 4, "JMSDeliveryMode": "PERSISTENT"},
)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("a = 1", True),
        ("A = 1", None),  # names are case-sensitive
        ("AND_more IS NULL", True),
        ("nullable is null", True),
        ("$d = 1 and _u = 2 And Ä = 3", True),
        ("a = 1.0", True),
        ("a BETWEEN 0 AND 2 AND yes", True),
        ("a NOT BETWEEN 0 AND 2", False),
        ("missing BETWEEN 0 AND 2", None),
        ("f between a and a + 2", True),
        (r"s LIKE 'x\_%' ESCAPE '\'", True),
        (r"s LIKE 'x\_' ESCAPE '\'", False),
        ("s LIKE 'X%'", False),
        ("a LIKE '1'", False),
        ("missing LIKE '%'", None),
        ("s NOT LIKE 'x__'", False),
        ("s IN ('q', 'x_y')", True),
        ("s NOT IN ('q')", True),
        ("missing IN ('q')", None),
        ("missing NOT IN ('q')", None),
        ("a IN ('1')", False),
        ("missing IS NULL", True),
        ("missing IS NOT NULL", False),
        ("s IS NOT NULL", True),
        # Three-valued logic.
        ("missing = 1 OR a = 1", True),
        ("missing = 1 AND a = 1", None),
        ("missing = 1 AND a = 2", False),
        ("NOT missing = 1", None),
        ("missing <> 1", None),
        # Values of different kinds: false, and so is the inequality.
        ("s = 1", False),
        ("s <> 1", False),
        ("NOT (s = 1)", True),
        ("s > a", False),
        ("yes = no", False),
        ("yes = TRUE", True),
        ("yes <> false", True),
        ("yes", True),
        ("no", False),
        ("NOT no", True),
        ("s", None),
        ("raw = 'x'", False),
        # Arithmetic.
        ("a + f * 2 = 6", True),
        ("(a + f) * 2 = 7", True),
        ("-a < 0", True),
        ("+a = 1", True),
        ("7 / 2 = 3", True),
        ("7.0 / 2 = 3.5", True),
        ("a / 0 = 1", None),
        ("big * 4 > 0", None),
        ("s + 1 = 2", None),
        ("-s = 1", None),
        ("a - missing = 1", None),
        # Java's literals.
        ("0x10 = 16L", True),
        ("010 = 8", True),
        ("1.5d < f", True),
        ("1e3 = 1000", True),
        (".5 < 1.", True),
        ("7f = 7", True),
        ("s = 'it''s'", False),
        # Headers.
        ("JMSPriority > 3", True),
        ("JMSDeliveryMode = 'PERSISTENT'", True),
        ("JMSCorrelationID IS NULL", True),
        ("JMSType = 'unreadable'", None),
        ("JMSType = 'unreadable' OR a = 1", None),
    ],
)
def test_an_answer(text: str, answer: bool | None) -> None:
    selector = MessageSelector(text)
    assert selector.evaluate(VIEW) is answer
    assert selector.matches(VIEW) is (answer is True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("a =", "at its end"),
        ("5", "expected a condition"),
        ("a + 1", "expected a condition"),
        ("(a = 1", "expected )"),
        ("a != 1", "character 3"),
        ("a = 1 % 2", "character 7"),
        ("s > 'a'", "= and <> only"),
        ("TRUE < a", "= and <> only"),
        ("a BETWEEN 'x' AND 'y'", "BETWEEN takes numbers"),
        ("a IN (1)", "character 7"),
        ("s LIKE a", "character 8"),
        ("s LIKE 'x' ESCAPE 'ab'", "escape of LIKE is one character"),
        ("1 IS NULL", "name of a property"),
        ("'s' LIKE 's'", "name of a property"),
        ("a = null", "character 5"),
        ("089 = 1", "digits from 0 to 7"),
        ("a = 9223372036854775808", "64 bits"),
        ("a = 1e999", "beyond a double"),
        ("JMSExpiration > 0", "cannot use JMSExpiration"),
        ("JMSDestination = 'q'", "cannot use JMSDestination"),
        ("sys.Label = 'x'", "character 4"),
        ("a = @p", "character 5"),
        ("s = 'open", "does not end"),
        ("NOT " * 200 + "yes", "nested deeper"),
    ],
)
def test_an_invalid_selector_says_where_and_why(text: str, words: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        MessageSelector(text)
    assert words in raised.value.text
    assert raised.value.text.startswith("The message selector")


def test_the_longest_selector_and_one_character_more() -> None:
    text = "a = 1".ljust(SELECTOR_CHARS_MAX)
    assert MessageSelector(text).matches(VIEW)
    with pytest.raises(ArgumentError, match=f"it may have {SELECTOR_CHARS_MAX}"):
        MessageSelector(text + " ")


def test_a_stored_selector_stays_one() -> None:
    selector = MessageSelector("A = 1")
    again = filter_from_json(selector.to_json())
    assert isinstance(again, MessageSelector)
    assert again == selector
    assert hash(again) == hash(selector)
    assert again != SqlFilter("A = 1")
    assert again != MessageSelector("a = 1")
    assert not again.matches(VIEW), "names are case-sensitive after a restart, too"
    assert again.needs.properties
    assert repr(again) == "MessageSelector('A = 1')"
