"""Invalid texts, and what the errors say."""

from __future__ import annotations

import subprocess
import sys

import pytest

from twinbus.entities.filters import SqlAction, SqlFilter
from twinbus.entities.filters.nodes import Comparison, Constant, Not, Or, Sign, Truth, UserProperty
from twinbus.entities.filters.reader import read_filter
from twinbus.errors import ArgumentError
from twinbus.limits import SQL_DEPTH_MAX, SQL_TEXT_CHARS_MAX


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "The SQL filter is empty."),
        ("  \n", "The SQL filter is empty."),
        ("a" * (SQL_TEXT_CHARS_MAX + 1), "has 1025 characters; it may have 1024"),
        ("a = ", "at its end: expected "),
        ("a = = 5", "at character 5, near '= 5': expected ( or REMOVE or SET or a property or a value or "),
        ("a = 1 )", "at character 7, near ')': expected the end."),
        ("a = 'open", 'at character 5, near "\'open": this string is empty or does not end.'),
        ("[open = 1", "near '[open = 1': this delimited name is empty or does not end."),
        ('"" = 1', "this quoted name is empty or does not end."),
        ("a ~ 1", "at character 3, near '~ 1': this character has no meaning here."),
        (
            "sys.Lable = 'a'",
            "near \"sys.Lable = 'a'\": there is no system property sys.Lable; the nearest is sys.Label.",
        ),
        ("x = 1 AND sys.EnqueuedTme > 1", "at character 11, near 'sys.EnqueuedTme > 1': there is no system property"),
        ("a.b = 1", "the scope is sys or user; a name with a dot in it is written [a.b]"),
        ("x²= 1", "other names are written [x²]"),
        ("_x = 1", "this character has no meaning here"),
        ("1", "expected a condition, not a value"),
        ("'a' AND 1=1", "expected a condition, not a value"),
        ("a + 1", "at character 1, near 'a + 1': expected a condition"),
        ("newid()", "expected a condition"),
        ("(a = 1) = 2", "expected a value, not a condition"),
        ("a IN (b = 1)", "at character 9, near '= 1)': expected ) or ,."),
        ("a + (b = 1) = 2", "at character 6, near 'b = 1) = 2': expected a value, not a condition"),
        ("a IN ()", "expected"),
        ("EXISTS('a')", "at character 8, near \"'a')\": expected REMOVE or SET or a property."),
        ("EXISTS(a + 1)", "expected"),
        ("and = 1", "expected"),
        ("a = 1 SET", "expected"),
        ("9223372036854775808 = a", "this whole number does not fit into 64 bits"),
        ("a = -9223372036854775809", "this whole number does not fit into 64 bits"),
        ("a = 1e999", "this number is beyond a double"),
        ("a LIKE 5", "at character 8, near '5': LIKE takes a string as pattern and as escape"),
        ("a LIKE 'x' ESCAPE TRUE", "LIKE takes a string"),
        ("a LIKE 'x' ESCAPE 'xy'", "the escape of LIKE is one character, not 2"),
        (
            "a LIKE 'x!' ESCAPE '!'",
            "at character 8, near \"'x!' ESCAPE '!'\": a LIKE pattern cannot end with its escape",
        ),
        ("nofunction(1) = 1", "there is no such function; there are newid(), property(name) and p(name)"),
        ("newid(1) = 1", "newid() takes no argument"),
        ("p() = 1", "p(name) takes one argument"),
        ("property('a', 'b') = 1", "property(name) takes one argument"),
        ("p(1) = 1", "p(name) takes a string"),
        ("NOT " * SQL_DEPTH_MAX + "a = 1", "it is nested deeper than 64 levels"),
        ("-" * SQL_DEPTH_MAX + "a = 1", "it is nested deeper than 64 levels"),
    ],
)
def test_filters_that_are_refused(text: str, error: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        SqlFilter(text)
    assert error in str(caught.value)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (";;", "The SQL action has no statement; it needs a SET or a REMOVE."),
        ("SET a = 1;" * 33, "has 33 statements; it may have 32"),
        ("UPDATE a = 1", "at character 1, near 'UPDATE a = 1': expected ; or REMOVE or SET"),
        ("SET a", "at its end: expected =."),
        ("SET a = ", "at its end"),
        ("SET a < 1", "expected"),
        ("SET a = 1, SET b = 2", "near ', SET b = 2'"),
        ("SET a = b = 1", "expected"),
        ("SET a = (b = 1)", "expected a value, not a condition"),
        ("SET 'a' = 1", "expected"),
        (
            "SET sys.SequenceNumber = 1",
            "near 'sys.SequenceNumber = 1': sys.SequenceNumber is read-only; an action can change ContentType, ",
        ),
        ("REMOVE sys.Size", "sys.Size is read-only"),
        ("SET sys.Lable = 'a'", "the nearest is sys.Label"),
        ("SET a = @p", "The parameter @p has no value; the rule came with none."),
    ],
)
def test_actions_that_are_refused(text: str, error: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        SqlAction(text)
    assert error in str(caught.value)


def test_a_text_that_is_none_is_refused() -> None:
    with pytest.raises(ArgumentError, match="The SQL filter is empty"):
        SqlFilter(None)  # type: ignore[arg-type]


def test_chains_are_flat_and_parentheses_free() -> None:
    many = " OR ".join(["a=1"] * 120)
    assert len(read_filter(many).parts) == 120  # type: ignore[union-attr]
    assert read_filter("(" * 400 + "a=1" + ")" * 400) == Comparison("=", UserProperty("a"), Constant(1))
    # Explicit parentheses are kept.
    assert read_filter("(a OR b) OR c") == Or(
        (Or((Truth(UserProperty("a")), Truth(UserProperty("b")))), Truth(UserProperty("c")))
    )


def test_spellings_of_the_same() -> None:
    assert read_filter("a != 1") == read_filter("A <> 1".replace("A", "a"))
    assert read_filter("a IS NOT NULL") == read_filter("NOT a IS NULL")
    assert read_filter("a NOT IN (1)") == read_filter("not a in (1)")
    assert read_filter("a NOT LIKE 'x'") == Not(read_filter("a LIKE 'x'"))
    assert read_filter("a = -1") == Comparison("=", UserProperty("a"), Constant(-1))
    assert read_filter("a = -1.5") == Comparison("=", UserProperty("a"), Sign("-", Constant(1.5)))
    assert read_filter("a = 1") != read_filter("a = 1.0")
    assert read_filter("a = 1") != read_filter("a = TRUE")


def test_lark_is_imported_for_the_first_text_only() -> None:
    code = (
        "import sys; from twinbus.entities.filters import SqlFilter, TrueFilter, filter_from_json\n"
        "stored = filter_from_json({'type': 'sql', 'expression': 'a = 1', 'parameters': {}})\n"
        "assert 'lark' not in sys.modules; SqlFilter('a = 1'); assert 'lark' in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
