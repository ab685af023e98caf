"""The package compared with the independent model `sql_model`, and texts with themselves."""

from __future__ import annotations

import re

import pytest
import sql_model as model
from filter_view import view
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from twinbus.entities.filters import SqlAction, SqlFilter, nodes, reader
from twinbus.entities.filters.compiler import Compiler
from twinbus.errors import ArgumentError, FilterEvaluationError
from twinbus.limits import SQL_TEXT_CHARS_MAX


@settings(max_examples=300, deadline=None)
@given(model.conditions, st.lists(model.messages, min_size=1, max_size=4))
def test_conditions_mean_what_the_model_says(node: nodes.Condition, messages: list[model.Message]) -> None:
    compiler = Compiler({})
    test = compiler.condition(node).run
    for properties, system in messages:
        try:
            expected: bool | str | None = model.answer(node, (properties, system))
        except model.Failure:
            expected = "failure"
        one = view(properties, **system)
        try:
            got: bool | str | None = test(one)
        except FilterEvaluationError:
            got = "failure"
        assert got is expected
        asked = one.asked  # type: ignore[attr-defined]
        assert asked - {"properties"} <= compiler.needs.system
        assert compiler.needs.properties or "properties" not in asked


@settings(max_examples=200, deadline=None)
@given(model.conditions)
def test_what_is_written_is_read_back(node: nodes.Condition) -> None:
    text = model.written(node)
    assume(len(text) <= SQL_TEXT_CHARS_MAX)
    assert reader.read_filter(text) == node


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(st.builds(nodes.Set, model.targets, model.values), st.builds(nodes.Remove, model.targets)),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(["; ", " ", ";;\n"]),
)
def test_actions_are_read_back(statements: list[nodes.Statement], separator: str) -> None:
    assume(all(statement.target != nodes.SystemProperty("SequenceNumber") for statement in statements))
    text = separator.join(model.written(statement) for statement in statements)
    assume(len(text) <= SQL_TEXT_CHARS_MAX)
    assert reader.read_action(text) == tuple(statements)


_pieces = st.sampled_from(
    re.findall(
        r"\S+",
        "a 1 'x' ( ) , . ; = <> != < <= > >= + - * / % AND OR NOT IN LIKE ESCAPE IS NULL EXISTS TRUE SET REMOVE @p "
        'sys user [a] "b" newid property p 1.5 1e9 .5 \' [ " 99999999999999999999 sys.Label sys.Lab ² _ ~ \x00 \ud800',
    )
)
_texts = st.one_of(
    st.text(max_size=40),
    st.lists(_pieces, max_size=14).map(" ".join),
    st.lists(_pieces, max_size=9).map("".join),
)


def refusal(kind: type[SqlFilter] | type[SqlAction], text: str) -> str | None:
    try:
        kind(text)
    except ArgumentError as error:
        return str(error)
    return None


@settings(max_examples=300, deadline=None)
@given(_texts)
def test_a_text_is_taken_or_refused_and_nothing_else(text: str) -> None:
    for kind in (SqlFilter, SqlAction):
        why = refusal(kind, text)
        assert why is None or why.startswith(("The SQL ", "The parameter "))


@pytest.mark.parametrize(
    "text",
    ["(" * 1000, "NOT " * 255 + "a", "-" * 1020 + "a=1", "a+" * 511 + "a"],
)
def test_depth_is_bounded(text: str) -> None:
    assert str(refusal(SqlFilter, text)).startswith("The SQL filter is not valid")


def test_long_chains_and_parentheses_are_no_depth() -> None:
    for text in ("(" * 500 + "a" + ")" * 500 + "=1", "a+" * 509 + "a=510", "a=1 OR " * 146 + "a"):
        assert SqlFilter(text).matches(view({"a": 1}))
