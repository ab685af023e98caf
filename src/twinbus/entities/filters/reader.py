"""Parses the text of a rule into nodes.

The grammar is in grammar.lark. lark is imported, and the grammar loaded, with the first text: a broker without SQL
rules never pays for it. A syntax error is an ArgumentError that says where it is, what was expected and what was found.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from twinbus.errors import ArgumentError
from twinbus.limits import SQL_DEPTH_MAX, SQL_STATEMENTS_MAX, SQL_TEXT_CHARS_MAX

from . import nodes
from .names import SETTABLE, fold, nearest, system_name
from .patterns import PatternError, compile_pattern
from .values import INTEGER_MAX, INTEGER_MIN

if TYPE_CHECKING:
    from lark import Lark
    from lark.exceptions import UnexpectedInput

# lark's trees and tokens. The grammar determines a node's children; types cannot express that.
Branch: TypeAlias = Any
Token: TypeAlias = Any

FILTER: Final = "filter"
ACTION: Final = "action"

_NEAR_CHARS: Final = 24
# Texts repeat: the same rule on many subscriptions is parsed once.
_READ_TEXTS_MAX: Final = 256

_VALUE: Final = "a value"
# Readable names of the grammar's terminals; a terminal without one is shown as it is.
_WORDS: Final = {
    "STRING": _VALUE,
    "INTEGER": _VALUE,
    "DECIMAL": _VALUE,
    "TRUE": _VALUE,
    "FALSE": _VALUE,
    "NULL": _VALUE,
    "PARAMETER": _VALUE,
    "NAME": "a property",
    "QUOTED": "a property",
    "DELIMITED": "a property",
    "PLUS": "an arithmetic operator",
    "MINUS": "an arithmetic operator",
    "STAR": "an arithmetic operator",
    "SLASH": "an arithmetic operator",
    "PERCENT": "an arithmetic operator",
    "EQUAL": "a comparison",
    "NOT_EQUAL": "a comparison",
    "LESS": "a comparison",
    "LESS_OR_EQUAL": "a comparison",
    "MORE": "a comparison",
    "MORE_OR_EQUAL": "a comparison",
    "_OPEN": "(",
    "_CLOSE": ")",
    "_COMMA": ",",
    "_DOT": ".",
    "_SEMICOLON": ";",
    "$END": "the end",
}
_OPENERS: Final = {"'": "string", '"': "quoted name", "[": "delimited name"}


def read_filter(text: str) -> nodes.Condition:
    """Parse the condition of a SQL filter."""
    _check(text, FILTER)
    return _filter(text)


def read_action(text: str) -> tuple[nodes.Statement, ...]:
    """Parse the statements of a SQL action, in order."""
    _check(text, ACTION)
    return _action(text)


def _check(text: str, start: str) -> None:
    if not isinstance(text, str) or not text.strip():
        raise ArgumentError(f"The SQL {start} is empty.")
    if len(text) > SQL_TEXT_CHARS_MAX:
        raise ArgumentError(f"The SQL {start} has {len(text)} characters; it may have {SQL_TEXT_CHARS_MAX}.")


@functools.lru_cache(maxsize=_READ_TEXTS_MAX)
def _filter(text: str) -> nodes.Condition:
    reader = Reader(text, FILTER)
    (condition,) = reader.tree().children
    return reader.condition(condition, 1)


@functools.lru_cache(maxsize=_READ_TEXTS_MAX)
def _action(text: str) -> tuple[nodes.Statement, ...]:
    reader = Reader(text, ACTION)
    branches = reader.tree().children
    if not branches:
        raise ArgumentError("The SQL action has no statement; it needs a SET or a REMOVE.")
    if len(branches) > SQL_STATEMENTS_MAX:
        raise ArgumentError(f"The SQL action has {len(branches)} statements; it may have {SQL_STATEMENTS_MAX}.")
    return tuple(reader.statement(branch) for branch in branches)


@functools.cache
def _parser() -> Lark:
    from lark import Lark

    # The basic lexer reserves keywords everywhere; the contextual one would accept some as names.
    return Lark.open_from_package(
        __package__, "grammar.lark", parser="lalr", lexer="basic", start=[FILTER, ACTION], propagate_positions=True
    )


class Reader:
    """Parses one text."""

    def __init__(self, text: str, start: str) -> None:
        # The whole text, to quote what is near a mistake.
        self.text = text
        # The rule of the grammar to start with.
        self.start = start

    @property
    def what(self) -> str:
        """What the text is, in errors."""
        return f"SQL {self.start}"

    def parser(self) -> Lark:
        return _parser()

    def tree(self) -> Branch:
        from lark.exceptions import UnexpectedInput

        try:
            return self.parser().parse(self.text, start=self.start)
        except UnexpectedInput as error:
            raise self.unexpected(error) from None

    # --- mistakes ---------------------------------------------------------------------------------------------------
    def wrong(self, at: int, what: str) -> ArgumentError:
        near = self.text[at : at + _NEAR_CHARS]
        place = f"at character {at + 1}, near {near!r}" if near else "at its end"
        return ArgumentError(f"The {self.what} is not valid {place}: {what}.")

    def unexpected(self, error: UnexpectedInput) -> ArgumentError:
        from lark.exceptions import UnexpectedToken

        if isinstance(error, UnexpectedToken):
            at = len(self.text) if error.token.type == "$END" else error.token.start_pos or 0
            words = {self.word(terminal) for terminal in error.accepts or error.expected}
            return self.wrong(at, "expected " + " or ".join(sorted(words)))
        at = error.pos_in_stream or 0
        opened = _OPENERS.get(self.text[at])
        if opened is not None:
            return self.wrong(at, f"this {opened} is empty or does not end")
        return self.wrong(at, "this character has no meaning here")

    def word(self, terminal: str) -> str:
        if terminal == "EQUAL" and self.start == ACTION:
            return "="
        return _WORDS.get(terminal, terminal.lstrip("_"))

    def at(self, part: Branch | Token) -> int:
        return int(part.start_pos if hasattr(part, "start_pos") else part.meta.start_pos)

    # --- statements -------------------------------------------------------------------------------------------------
    def statement(self, branch: Branch) -> nodes.Statement:
        target = self.target(branch.children[1])
        if isinstance(target, nodes.SystemProperty) and target.name not in SETTABLE:
            raise self.wrong(
                self.at(branch.children[1]),
                f"sys.{target.name} is read-only; an action can change {', '.join(sorted(SETTABLE))}",
            )
        if branch.data == "remove":
            return nodes.Remove(target)
        return nodes.Set(target, self.value(branch.children[3], 1))

    # --- conditions -------------------------------------------------------------------------------------------------
    def condition(self, branch: Branch, depth: int) -> nodes.Condition:
        self.check_depth(branch, depth)
        parts = branch.children
        inner = depth + 1
        match branch.data:
            case "disjunction":
                return nodes.Or(tuple(self.condition(part, inner) for part in parts))
            case "conjunction":
                return nodes.And(tuple(self.condition(part, inner) for part in parts))
            case "negation":
                return nodes.Not(self.condition(parts[0], inner))
            case "comparison":
                sign = str(parts[1].children[0]).replace("!=", "<>")
                return nodes.Comparison(sign, self.value(parts[0], inner), self.value(parts[2], inner))
            case "is_null":
                return nodes.IsNull(self.value(parts[0], inner))
            case "is_not_null":
                return nodes.Not(nodes.IsNull(self.value(parts[0], inner)))
            case "is_in":
                return self.membership(parts, inner)
            case "is_not_in":
                return nodes.Not(self.membership(parts, inner))
            case "is_like":
                return self.likeness(parts, inner)
            case "is_not_like":
                return nodes.Not(self.likeness(parts, inner))
            case "exists":
                return nodes.Exists(self.target(parts[0]))
        value = self.value(branch, depth)
        if isinstance(value, nodes.Sign | nodes.Arithmetic | nodes.NewId) or (
            isinstance(value, nodes.Constant) and not isinstance(value.value, bool | None)
        ):
            raise self.wrong(self.at(branch), "expected a condition, not a value; compare it with something")
        return nodes.Truth(value)

    def membership(self, parts: list[Branch], depth: int) -> nodes.In:
        return nodes.In(self.value(parts[0], depth), tuple(self.value(part, depth) for part in parts[1:]))

    def likeness(self, parts: list[Branch], depth: int) -> nodes.Like:
        operand, pattern, *rest = (self.value(part, depth) for part in parts)
        escape = rest[0] if rest else None
        # Literals are checked here, where the position is known; other operands when they are evaluated.
        for part, node in zip(parts[1:], [pattern, *rest], strict=True):
            if isinstance(node, nodes.Constant) and not isinstance(node.value, str | None):
                raise self.wrong(self.at(part), "LIKE takes a string as pattern and as escape")
        form = pattern.value if isinstance(pattern, nodes.Constant) else None
        sign = escape.value if isinstance(escape, nodes.Constant) else None
        if isinstance(form, str) and (isinstance(sign, str) or escape is None):
            try:
                compile_pattern(form, cast("str | None", sign))
            except PatternError as error:
                raise self.wrong(self.at(parts[1]), str(error)) from error
        return nodes.Like(operand, pattern, escape)

    # --- values -----------------------------------------------------------------------------------------------------
    def value(self, branch: Branch, depth: int) -> nodes.Value:
        self.check_depth(branch, depth)
        parts = branch.children
        match branch.data:
            case "sum" | "product":
                operands = [self.value(part, depth + 1) for part in parts[::2]]
                signs = [str(sign) for sign in parts[1::2]]
                return nodes.Arithmetic(operands[0], tuple(zip(signs, operands[1:], strict=True)))
            case "sign":
                return self.sign(branch, depth)
            case "constant":
                return nodes.Constant(self.constant(parts[0]))
            case "parameter":
                return nodes.Parameter(str(parts[0])[1:])
            case "property" | "scoped":
                return self.target(branch)
            case "function":
                return self.function(branch, depth)
        raise self.wrong(self.at(branch), "expected a value, not a condition")

    def sign(self, branch: Branch, depth: int) -> nodes.Value:
        sign, operand = str(branch.children[0]), branch.children[1]
        if sign == "-" and operand.data == "constant" and operand.children[0].type == "INTEGER":
            # One literal, because -2**63 has no positive counterpart.
            return nodes.Constant(self.integer(operand.children[0], -1))
        return nodes.Sign(sign, self.value(operand, depth + 1))

    def constant(self, token: Token) -> str | int | float | bool | None:
        match token.type:
            case "STRING":
                return str(token)[1:-1].replace("''", "'")
            case "INTEGER":
                return self.integer(token, 1)
            case "DECIMAL":
                number = self.decimal(token)
                if number in (float("inf"), float("-inf")):
                    raise self.wrong(self.at(token), "this number is beyond a double")
                return number
            case "TRUE":
                return True
            case "FALSE":
                return False
        return None

    def decimal(self, token: Token) -> float:
        return float(token)

    def integer(self, token: Token, sign: int) -> int:
        return self.in_range(token, sign * int(token))

    def in_range(self, token: Token, number: int) -> int:
        if not INTEGER_MIN <= number <= INTEGER_MAX:
            raise self.wrong(self.at(token), "this whole number does not fit into 64 bits")
        return number

    def function(self, branch: Branch, depth: int) -> nodes.Value:
        name, arguments = fold(str(branch.children[0])), branch.children[1:]
        if name == "newid":
            if arguments:
                raise self.wrong(self.at(arguments[0]), "newid() takes no argument")
            return nodes.NewId()
        if name in ("property", "p"):
            if len(arguments) != 1:
                raise self.wrong(self.at(branch), f"{name}(name) takes one argument")
            argument = self.value(arguments[0], depth + 1)
            if isinstance(argument, nodes.Constant) and not isinstance(argument.value, str | None):
                raise self.wrong(self.at(arguments[0]), f"{name}(name) takes a string")
            return nodes.PropertyNamed(argument)
        raise self.wrong(self.at(branch), "there is no such function; there are newid(), property(name) and p(name)")

    # --- names ------------------------------------------------------------------------------------------------------
    def target(self, branch: Branch) -> nodes.Target:
        names = [self.name(part.children[0]) for part in branch.children]
        if len(names) == 1:
            return nodes.UserProperty(names[0])
        scope, name = fold(names[0]), names[1]
        if scope == "user":
            return nodes.UserProperty(name)
        if scope != "sys":
            raise self.wrong(
                self.at(branch),
                f"the scope is sys or user; a name with a dot in it is written [{names[0]}.{name}]",
            )
        canonical = system_name(name)
        if canonical is None:
            raise self.wrong(
                self.at(branch), f"there is no system property sys.{name}; the nearest is sys.{nearest(name)}"
            )
        return nodes.SystemProperty(canonical)

    def name(self, token: Token) -> str:
        text = str(token)
        match token.type:
            case "QUOTED":
                return text[1:-1].replace('""', '"')
            case "DELIMITED":
                return text[1:-1].replace("]]", "]")
        if not text[0].isalpha() or not all(sign == "_" or sign.isalpha() or sign.isdecimal() for sign in text):
            raise self.wrong(
                self.at(token), f"a name of letters, digits and _ is expected; other names are written [{text}]"
            )
        return text

    def check_depth(self, branch: Branch, depth: int) -> None:
        # Everything that walks the nodes later recurses as deep as they are nested.
        if depth > SQL_DEPTH_MAX:
            raise self.wrong(self.at(branch), f"it is nested deeper than {SQL_DEPTH_MAX} levels")
