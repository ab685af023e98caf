"""An independent, deliberately simple implementation of the filter language, and random texts to compare with.

`answer` and `worth` walk the nodes for every message, without the compiler's shortcuts; `written` prints nodes as text
with every possible parenthesis. If they and the package disagree, one of them has a bug.
"""

from __future__ import annotations

import math
import uuid
from fractions import Fraction
from typing import Any

from filter_view import ID
from hypothesis import strategies as st

from twinbus.entities.filters import SYSTEM_PROPERTIES, nodes

Message = tuple[dict[str, Any], dict[str, Any]]


class Failure(Exception):
    """The model's FilterEvaluationError."""


# --- conditions -----------------------------------------------------------------------------------------------------
def answer(node: nodes.Condition, message: Message) -> bool | None:
    match node:
        case nodes.And(parts):
            result: bool | None = True
            for part in parts:
                one = answer(part, message)
                if one is False:
                    return False
                result = None if one is None or result is None else True
            return result
        case nodes.Or(parts):
            # De Morgan, so that AND and OR cannot be wrong in the same way.
            inner = answer(nodes.And(tuple(nodes.Not(part) for part in parts)), message)
            return None if inner is None else not inner
        case nodes.Not(operand):
            one = answer(operand, message)
            return {True: False, False: True, None: None}[one]
        case nodes.Comparison(sign, left, right):
            return compared(sign, worth(left, message), worth(right, message))
        case nodes.IsNull(operand):
            return worth(operand, message) is None
        case nodes.In(operand, items):
            value = worth(operand, message)
            if value is None:
                return None
            unknown = False
            for item in items:
                equal = compared("=", value, worth(item, message))
                if equal is True:
                    return True
                unknown |= equal is None
            return None if unknown else False
        case nodes.Like(operand, pattern, escape):
            values = [worth(one, message) for one in (operand, pattern, *([] if escape is None else [escape]))]
            if None in values:
                return None
            text, form, sign = (*values, None)[:3]
            if not isinstance(form, str) or not (sign is None or (isinstance(sign, str) and len(sign) == 1)):
                raise Failure
            pieces = like_pieces(form, sign)
            return like(text, pieces) if isinstance(text, str) else None
        case nodes.Exists(nodes.UserProperty(name)):
            return any(own.lower() == name.lower() for own in message[0])
        case nodes.Exists(nodes.SystemProperty(name)):
            return message[1].get(name) is not None
        case nodes.Truth(operand):
            value = worth(operand, message)
            return value if value is True or value is False else None
    raise AssertionError(node)


def sort_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return {str: "text", uuid.UUID: "identifier"}.get(type(value), "other")


def compared(sign: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None or sort_of(left) != sort_of(right) or sort_of(left) == "other":
        return None
    if sort_of(left) in ("boolean", "identifier") and sign not in ("=", "<>"):
        return None
    if (isinstance(left, float) and math.isnan(left)) or (isinstance(right, float) and math.isnan(right)):
        return sign == "<>"
    if sort_of(left) == "text":
        # Character by character.
        left, right = [ord(one) for one in left], [ord(one) for one in right]
    equal = left == right
    less = not equal and sort_of(left) != "boolean" and sort_of(left) != "identifier" and left < right
    return {
        "=": equal,
        "<>": not equal,
        "<": less,
        "<=": less or equal,
        ">": not less and not equal,
        ">=": not less,
    }[sign]


def like_pieces(pattern: str, escape: str | None) -> list[tuple[str, str]]:
    pieces, at = [], 0
    while at < len(pattern):
        if pattern[at] == escape:
            if at + 1 == len(pattern):
                raise Failure
            pieces.append(("is", pattern[at + 1]))
            at += 2
        else:
            pieces.append({"%": ("run", ""), "_": ("any", "")}.get(pattern[at], ("is", pattern[at])))
            at += 1
    return pieces


def like(text: str, pieces: list[tuple[str, str]]) -> bool:
    """A table of the prefixes that the pieces so far can match; nothing clever."""
    reach = [True] + [False] * len(text)
    for kind, sign in pieces:
        after = [False] * (len(text) + 1)
        for at in range(len(text) + 1):
            if kind == "run":
                after[at] = any(reach[: at + 1])
            elif at > 0:
                after[at] = reach[at - 1] and (kind == "any" or text[at - 1] == sign)
        reach = after
    return reach[-1]


# --- values ---------------------------------------------------------------------------------------------------------
def worth(node: nodes.Value, message: Message) -> Any:
    match node:
        case nodes.Constant(value):
            return value
        case nodes.UserProperty(name):
            return next((value for own, value in message[0].items() if own.lower() == name.lower()), None)
        case nodes.SystemProperty(name):
            return message[1].get(name)
        case nodes.NewId():
            return ID
        case nodes.PropertyNamed(argument):
            name = worth(argument, message)
            if name is None:
                return None
            if not isinstance(name, str):
                raise Failure
            return worth(nodes.UserProperty(name), message)
        case nodes.Sign(sign, operand):
            value = worth(operand, message)
            if value is None:
                return None
            if sort_of(value) != "number":
                raise Failure
            return calculated("*", value, 1 if sign == "+" else -1)
        case nodes.Arithmetic(first, rest):
            value = worth(first, message)
            for sign, operand in rest:
                other = worth(operand, message)
                value = None if value is None or other is None else calculated(sign, value, other)
            return value
    raise AssertionError(node)


def calculated(sign: str, left: Any, right: Any) -> Any:
    sorts = {sort_of(left), sort_of(right)}
    if sorts != {"number"}:
        if sign != "+" or "text" not in sorts or "other" in sorts:
            raise Failure
        return shown(left) + shown(right)
    if isinstance(left, float) or isinstance(right, float):
        return floating(sign, float(left), float(right))
    if sign in "/%" and right == 0:
        raise Failure
    whole = math.trunc(Fraction(left, right)) if sign in "/%" else 0
    result = {"+": left + right, "-": left - right, "*": left * right, "/": whole, "%": left - whole * right}[sign]
    if not -(2**63) <= result < 2**63:
        raise Failure
    return result


def floating(sign: str, left: float, right: float) -> float:
    if sign == "/" and right == 0:
        if left == 0 or math.isnan(left):
            return math.nan
        return math.inf if (math.copysign(1, left) > 0) == (math.copysign(1, right) > 0) else -math.inf
    if sign == "%":
        return math.nan if right == 0 or math.isinf(left) else math.fmod(left, right)
    return {"+": left + right, "-": left - right, "*": left * right, "/": left / right if right else 0.0}[sign]


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, float):
        special = {math.inf: "Infinity", -math.inf: "-Infinity"}
        if math.isnan(value):
            return "NaN"
        return special.get(value) or str(value).removesuffix(".0").upper()
    return str(value)


# --- printing -------------------------------------------------------------------------------------------------------
def written(node: Any) -> str:
    match node:
        case nodes.And(parts):
            return " AND ".join(f"({written(part)})" for part in parts)
        case nodes.Or(parts):
            return " or ".join(f"({written(part)})" for part in parts)
        case nodes.Not(nodes.In() as inner):
            return written(inner).replace(" IN (", " NOT IN (", 1)
        case nodes.Not(operand):
            return f"NOT ({written(operand)})"
        case nodes.Comparison(sign, left, right):
            return f"({written(left)}){sign}({written(right)})"
        case nodes.IsNull(operand):
            return f"({written(operand)}) IS NULL"
        case nodes.In(operand, items):
            return f"({written(operand)}) IN ({', '.join(written(item) for item in items)})"
        case nodes.Like(operand, pattern, escape):
            ending = "" if escape is None else f" ESCAPE ({written(escape)})"
            return f"({written(operand)}) LIKE ({written(pattern)}){ending}"
        case nodes.Exists(target):
            return f"EXISTS({written(target)})"
        case nodes.Truth(operand):
            return written(operand)
        case nodes.Constant(None):
            return "NULL"
        case nodes.Constant(bool(value)):
            return str(value).upper()
        case nodes.Constant(str(value)):
            return "'" + value.replace("'", "''") + "'"
        case nodes.Constant(value):
            return repr(value)
        case nodes.UserProperty(name):
            return "user.[" + name.replace("]", "]]") + "]"
        case nodes.SystemProperty(name):
            return f"sys.{name}"
        case nodes.NewId():
            return "newid()"
        case nodes.PropertyNamed(argument):
            return f"p({written(argument)})"
        case nodes.Sign(sign, operand):
            return f"{sign}({written(operand)})"
        case nodes.Arithmetic(first, rest):
            return f"({written(first)})" + "".join(f" {sign} ({written(one)})" for sign, one in rest)
        case nodes.Set(target, value):
            return f"SET {written(target)} = {written(value)}"
        case nodes.Remove(target):
            return f"REMOVE {written(target)}"
    raise AssertionError(node)


# --- generating -----------------------------------------------------------------------------------------------------
NAMES = ["color", "Quantity", "flag", "a b", "no]ne", "price"]
SYSTEM = ["Label", "MessageId", "SequenceNumber", "To"]
assert set(SYSTEM) <= set(SYSTEM_PROPERTIES)

words = st.sampled_from(["", "a", "b", "blue", "Blue", "a%b", "it's", "%a_", "color", "é"])
whole = st.one_of(st.integers(-3, 3), st.sampled_from([2**63 - 1, -(2**63), 2**31]))
floats = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 1e300])
constants = st.one_of(words, whole, floats, st.booleans(), st.none()).map(nodes.Constant)
targets = st.one_of(
    st.sampled_from(NAMES).map(nodes.UserProperty),
    st.sampled_from(SYSTEM).map(nodes.SystemProperty),
)


def _arithmetic(inner: st.SearchStrategy[nodes.Value]) -> st.SearchStrategy[nodes.Value]:
    def chain(signs: str) -> st.SearchStrategy[nodes.Arithmetic]:
        rest = st.lists(st.tuples(st.sampled_from(signs), inner), min_size=1, max_size=2).map(tuple)
        return st.builds(nodes.Arithmetic, inner, rest)

    positive = inner.filter(lambda node: not (isinstance(node, nodes.Constant) and type(node.value) is int))
    names = inner.filter(lambda node: not isinstance(node, nodes.Constant) or isinstance(node.value, str | None))
    return st.one_of(
        chain("+-"),
        chain("*/%"),
        st.builds(nodes.Sign, st.sampled_from("+-"), positive),
        st.builds(nodes.PropertyNamed, names),
    )


values: st.SearchStrategy[nodes.Value] = st.recursive(
    st.one_of(constants, targets, targets, st.just(nodes.NewId())), _arithmetic, max_leaves=4
)

# Literal patterns and escapes are checked when the text is parsed; these are valid.
_patterns = st.one_of(
    st.sampled_from(["%", "a%", "%a_", "_", "b!%", "%lu%", "!_%"]).map(nodes.Constant),
    targets,
    st.just(nodes.Constant(None)),
)
_likes = st.builds(
    nodes.Like, values, _patterns, st.one_of(st.none(), st.just(nodes.Constant("!")), st.just(nodes.Constant(None)))
)
_truths = st.one_of(st.booleans().map(nodes.Constant), targets).map(nodes.Truth)
_tests: st.SearchStrategy[nodes.Condition] = st.one_of(
    st.builds(nodes.Comparison, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), values, values),
    st.builds(nodes.IsNull, values),
    st.builds(nodes.In, values, st.lists(values, min_size=1, max_size=4).map(tuple)),
    _likes,
    st.builds(nodes.Exists, targets),
    _truths,
)


def _conditions(inner: st.SearchStrategy[nodes.Condition]) -> st.SearchStrategy[nodes.Condition]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(st.builds(nodes.And, several), st.builds(nodes.Or, several), st.builds(nodes.Not, inner))


conditions: st.SearchStrategy[nodes.Condition] = st.recursive(_tests, _conditions, max_leaves=4)

_held = st.one_of(words, whole, floats, st.booleans(), st.none(), st.just(ID), st.just([1]))
messages: st.SearchStrategy[Message] = st.tuples(
    st.dictionaries(st.sampled_from([*NAMES, "blue", "a"]), _held, max_size=5),
    st.fixed_dictionaries(
        {},
        optional={"Label": words, "MessageId": words, "SequenceNumber": st.integers(1, 3), "To": words},
    ),
)
