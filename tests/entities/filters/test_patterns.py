"""LIKE: common patterns, escapes, and texts designed to be slow."""

from __future__ import annotations

from random import Random

import pytest
import sql_model as model
from hypothesis import given, settings
from hypothesis import strategies as st
from test_rules_cost import steps

from twinbus.entities.filters.patterns import PatternError, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "escape", "yes", "no"),
    [
        ("abc", None, ["abc"], ["", "ab", "abcd", "Abc", "xabc"]),
        ("", None, [""], ["a"]),
        ("%", None, ["", "a", "any\nthing"], []),
        ("%%", None, ["", "a"], []),
        ("abc%", None, ["abc", "abcd"], ["ab", "xabc", "ABC"]),
        ("%abc", None, ["abc", "xabc"], ["abcx", "bc"]),
        ("%abc%", None, ["abc", "xabcx"], ["ab c"]),
        ("a%c", None, ["ac", "abc", "acc"], ["a", "c", "acb"]),
        ("a%a", None, ["aa", "aba"], ["a"]),
        ("a%b%c", None, ["abc", "axbxc", "abbcc"], ["acb", "ab"]),
        ("_", None, ["a", "%", "é", "\n"], ["", "ab"]),
        ("a_c", None, ["abc", "a_c", "a\nc"], ["ac", "abbc"]),
        ("_%", None, ["a", "ab"], [""]),
        ("%_", None, ["a", "ab"], [""]),
        ("a_%_c", None, ["abbc", "axxxc"], ["abc", "ac"]),
        ("%a_c%", None, ["abc", "xxaacx", "aabc"], ["ac", "abbc"]),
        ("%a_a%b", None, ["aaab", "xabaxb", "aaaab"], ["aab", "aaba"]),
        ("a.c", None, ["a.c"], ["abc"]),
        ("[ab]%", None, ["[ab]", "[ab]x"], ["a"]),
        (r"ABC\%", "\\", ["ABC%"], ["ABC", "ABCD", "ABC\\%"]),
        (r"ABC\%", None, ["ABC\\", "ABC\\x"], ["ABC%"]),
        ("10!%!_!!", "!", ["10%_!"], ["10%x!"]),
        ("!a%", "!", ["a", "ab"], ["!a"]),
        ("%%%%", "%", ["%%"], ["%", "%%%"]),
    ],
)
def test_forms(pattern: str, escape: str | None, yes: list[str], no: list[str]) -> None:
    matches = compile_pattern(pattern, escape)
    assert [text for text in yes if not matches(text)] == []
    assert [text for text in no if matches(text)] == []


def test_an_escape_is_one_character_with_something_behind_it() -> None:
    with pytest.raises(PatternError, match="one character, not 0"):
        compile_pattern("a", "")
    with pytest.raises(PatternError, match="cannot end"):
        compile_pattern("a!!!", "!")
    with pytest.raises(PatternError, match="at most 1024"):
        compile_pattern("a" * 1025, None)


@settings(max_examples=400, deadline=None)
@given(st.text("ab%_!", max_size=9), st.text("ab%\n", max_size=12), st.sampled_from([None, "!"]))
def test_patterns_match_what_the_model_says(pattern: str, text: str, escape: str | None) -> None:
    try:
        expected: bool | str = model.like(text, model.like_pieces(pattern, escape))
    except model.Failure:
        expected = "failure"
    try:
        got: bool | str = compile_pattern(pattern, escape)(text)
    except PatternError:
        got = "failure"
    assert got is expected


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.text("ab_éж\U0001f600", min_size=1, max_size=40), min_size=1, max_size=4),
    st.sampled_from(["ab", "aé", "abж", "a\U0001f600", "ab\ud800"]),
    st.integers(0, 1_200),
    st.randoms(use_true_random=False),
)
def test_long_texts_match_what_the_model_says(pieces: list[str], signs: str, size: int, chance: Random) -> None:
    text = "".join(chance.choices(signs, k=size))
    for piece in pieces:
        # Put most pieces into the text, or nothing would ever match.
        if chance.random() < 0.7:
            at = chance.randrange(len(text) + 1)
            text = text[:at] + "".join(chance.choice(signs) if sign == "_" else sign for sign in piece) + text[at:]
    pattern = "%".join(["", *pieces, ""])
    assert compile_pattern(pattern, None)(text) is model.like(text, model.like_pieces(pattern, None))


def test_a_long_piece_in_a_long_text_is_searched_by_its_own_length() -> None:
    matches = compile_pattern("%" + "a_" * 20 + "c%", None)
    assert not matches("x" * 1_000)
    text = "ab" * 15_000
    # Not by the 30,000 characters of the text.
    assert steps(lambda: matches(text)) < 1_000
    assert matches(text + "c")


@pytest.mark.parametrize(
    "pattern",
    [
        "%a" * 500 + "b",
        "%" + "a" * 1000 + "b%",
        "%" + "a" * 500 + "_" + "a" * 500 + "b%",
        "%a_" * 340 + "b",
        "%_a%" * 250,
    ],
)
def test_no_pattern_is_slow(pattern: str) -> None:
    matches = compile_pattern(pattern, None)
    text = "a" * 32_000
    # A backtracking matcher would need years; the test's timeout would catch it.
    assert matches(text) is (pattern == "%_a%" * 250)
