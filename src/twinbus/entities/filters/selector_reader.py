"""Parses a JMS message selector into the nodes of a SQL filter.

The grammar is in selector.lark. A name is a `UserProperty`, spelled exactly; a header of the message (JMSPriority) is a
`SystemProperty`. What JMS calls an error in a selector is refused here, before the first message.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from twinbus.errors import ArgumentError
from twinbus.limits import SELECTOR_CHARS_MAX

from . import nodes
from .reader import Branch, Reader, Token

if TYPE_CHECKING:
    from lark import Lark

SELECTOR: Final = "selector"

# The headers a selector can use. JMS has the first six; the rest are what clients show beside them.
HEADERS: Final = frozenset(
    {
        "JMSCorrelationID",
        "JMSDeliveryMode",
        "JMSMessageID",
        "JMSPriority",
        "JMSTimestamp",
        "JMSType",
        "JMSReplyTo",
        "JMSXDeliveryCount",
        "JMSXGroupID",
        "JMSXGroupSeq",
    }
)
_UNUSABLE: Final = frozenset({"JMSDestination", "JMSDeliveryTime", "JMSExpiration", "JMSRedelivered"})
_EQUALITIES: Final = frozenset({"=", "<>"})
# Texts repeat: consumers of one program use the same selector.
_READ_TEXTS_MAX: Final = 256


def read_selector(text: str) -> nodes.Condition:
    """Parse a selector; raises ArgumentError with the position and the reason."""
    if not text.strip():
        raise ArgumentError("The message selector is empty.")
    if len(text) > SELECTOR_CHARS_MAX:
        raise ArgumentError(f"The message selector has {len(text)} characters; it may have {SELECTOR_CHARS_MAX}.")
    return _selector(text)


@functools.lru_cache(maxsize=_READ_TEXTS_MAX)
def _selector(text: str) -> nodes.Condition:
    reader = _SelectorReader(text, SELECTOR)
    (condition,) = reader.tree().children
    return reader.condition(condition, 1)


@functools.cache
def _parser() -> Lark:
    from lark import Lark

    return Lark.open_from_package(
        __package__, "selector.lark", parser="lalr", lexer="basic", start=SELECTOR, propagate_positions=True
    )


class _SelectorReader(Reader):
    """Parses one selector."""

    @property
    def what(self) -> str:
        return "message selector"

    def parser(self) -> Lark:
        return _parser()

    def condition(self, branch: Branch, depth: int) -> nodes.Condition:
        parts = branch.children
        match branch.data:
            case "comparison":
                return self._comparison(branch, depth)
            case "is_between":
                return self._between(branch, depth)
            case "is_not_between":
                return nodes.Not(self._between(branch, depth))
            case "is_null" | "is_not_null" | "is_in" | "is_not_in" | "is_like" | "is_not_like":
                if parts[0].data != "property":
                    raise self.wrong(self.at(branch), "IS NULL, IN and LIKE need the name of a property before them")
        return super().condition(branch, depth)

    def value(self, branch: Branch, depth: int) -> nodes.Value:
        # The strings after IN, LIKE and ESCAPE are tokens, because nothing else may be there.
        if hasattr(branch, "type"):
            return nodes.Constant(self.constant(branch))
        return super().value(branch, depth)

    def _comparison(self, branch: Branch, depth: int) -> nodes.Condition:
        self.check_depth(branch, depth)
        parts = branch.children
        sign = str(parts[1].children[0])
        left, right = self.value(parts[0], depth + 1), self.value(parts[2], depth + 1)
        for side in (left, right):
            if sign not in _EQUALITIES and isinstance(side, nodes.Constant) and isinstance(side.value, str | bool):
                raise self.wrong(self.at(branch), "strings and booleans compare with = and <> only")
        return nodes.Comparison(sign, left, right)

    def _between(self, branch: Branch, depth: int) -> nodes.Condition:
        self.check_depth(branch, depth)
        operand, low, high = (self.value(part, depth + 1) for part in branch.children)
        for side in (operand, low, high):
            if isinstance(side, nodes.Constant) and isinstance(side.value, str | bool):
                raise self.wrong(self.at(branch), "BETWEEN takes numbers")
        return nodes.And((nodes.Comparison(">=", operand, low), nodes.Comparison("<=", operand, high)))

    def target(self, branch: Branch) -> nodes.Target:
        name = str(branch.children[0])
        if name in HEADERS:
            return nodes.SystemProperty(name)
        if name in _UNUSABLE:
            raise self.wrong(self.at(branch), f"a selector cannot use {name}; it can use {', '.join(sorted(HEADERS))}")
        return nodes.UserProperty(name)

    def integer(self, token: Token, sign: int) -> int:
        return self.in_range(token, sign * self._java_integer(token))

    def decimal(self, token: Token) -> float:
        return float(str(token).rstrip("dDfF"))

    def _java_integer(self, token: Token) -> int:
        digits = str(token).rstrip("lL")
        if digits[:2] in ("0x", "0X"):
            return int(digits, 16)
        if digits[0] == "0" and len(digits) > 1:
            try:
                return int(digits, 8)
            except ValueError:
                raise self.wrong(self.at(token), "a number that starts with 0 has digits from 0 to 7") from None
        return int(digits)
