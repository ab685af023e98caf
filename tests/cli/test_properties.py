"""Values on the command line and in JSON survive the round trip."""

from __future__ import annotations

import json
import math
from typing import Any
from uuid import UUID

import pytest

from twinbus.amqp import Described, Symbol, Timestamp, UInt
from twinbus.cli.properties import from_json, pairs, to_json
from twinbus.errors import ConfigError


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (5, 5),
        (UInt(5), 5),
        (1.5, 1.5),
        (-math.inf, {"$float": "-inf"}),
        ("text", "text"),
        (Symbol("symbol"), "symbol"),
        (Timestamp(1_000), {"$timestamp_ms": 1_000}),
        (UUID(int=7), {"$uuid": "00000000-0000-0000-0000-000000000007"}),
        (b"\xff\x00", {"$base64": "/wA="}),
        ([1, [b"a"]], [1, [{"$base64": "YQ=="}]]),
        ({"a": {"b": UUID(int=7)}}, {"a": {"b": {"$uuid": "00000000-0000-0000-0000-000000000007"}}}),
    ],
)
def test_values_go_out_as_json_and_come_back(value: Any, shown: Any) -> None:
    assert to_json(value) == shown
    assert type(to_json(value)) is type(shown)
    assert from_json(json.loads(json.dumps(shown))) == value


def test_what_is_no_number_comes_back_too() -> None:
    assert math.isnan(from_json(to_json(math.nan)))


def test_what_only_amqp_has_is_shown() -> None:
    assert to_json(Described(Symbol("a:b"), 5)) == {"$described": ["a:b", 5]}


def test_pairs() -> None:
    texts = ["a=b", "c=", "d=x=y", "e:=5", "f:=1.5", "g:=false", "h:=-3", "i=true", "j:k=l"]
    assert pairs("--property", texts) == {
        "a": "b",
        "c": "",
        "d": "x=y",
        "e": 5,
        "f": 1.5,
        "g": False,
        "h": -3,
        "i": "true",
        "j:k": "l",
    }


@pytest.mark.parametrize("text", ["a", "=b", ":=5", "a:=", "a:=text", "a:=null", 'a:="b"', "a:=[1]"])
def test_pairs_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="--property"):
        pairs("--property", [text])
