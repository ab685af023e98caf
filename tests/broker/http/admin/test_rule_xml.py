"""Any filter and action, written by us, read by the SDK's model, written by the SDK and read by us, are the same."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from typing import Any
from xml.etree import ElementTree

import pytest
from azure.servicebus.management._generated.models import CreateRuleBody, CreateRuleBodyContent, RuleDescriptionEntry
from azure.servicebus.management._models import RuleProperties
from azure.servicebus.management._utils import deserialize_rule_key_values, serialize_rule_key_values
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.http.admin.desk import body
from twinbus.broker.http.admin.feed import Entry, Site, entry_text
from twinbus.broker.http.admin.rule_xml import action_in, filter_in, rule_content
from twinbus.broker.http.admin.value_xml import duration_text, values_in, values_out
from twinbus.broker.http.admin.xml_in import description_in
from twinbus.broker.http.admin.xml_out import SERVICE, description
from twinbus.entities.filters import CorrelationFilter, FalseFilter, Filter, SqlAction, SqlFilter, TrueFilter
from twinbus.entities.filters.numbers import Int8, Int16, Int32, Single, UInt8, UInt16, UInt32, UInt64
from twinbus.errors import ArgumentError

SITE = Site("localhost:5300", "contoso", "2024-05")

texts = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), min_size=1, max_size=50
)
# What the SDK reads and writes without loss: it has no zones, and its durations end at six decimal digits.
sdk_values = (
    texts
    | st.booleans()
    | st.integers(-(2**31), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.datetimes(datetime.datetime(1900, 1, 1)).map(lambda moment: moment.replace(microsecond=0))  # noqa: DTZ001
    | st.integers(0, 10**8).map(lambda seconds: datetime.timedelta(seconds=seconds))
)
# Some short words are keywords of the grammar.
names = st.from_regex(r"p[a-z]{1,10}", fullmatch=True)
sql_filters = st.builds(
    lambda values: SqlFilter(
        " AND ".join(f"{name} = @{name}" for name in values) or "a < 3 AND b LIKE '<&>%'",
        {f"@{name}": value for name, value in values.items()},
    ),
    st.dictionaries(names, sdk_values, max_size=4),
)
fields = st.none() | texts
correlation_filters = st.builds(
    CorrelationFilter,
    correlation_id=texts,
    message_id=fields,
    to=fields,
    reply_to=fields,
    label=fields,
    session_id=fields,
    reply_to_session_id=fields,
    content_type=fields,
    properties=st.dictionaries(names, sdk_values, max_size=4),
)
filters = st.just(TrueFilter()) | st.just(FalseFilter()) | sql_filters | correlation_filters
actions = st.none() | st.builds(
    lambda value: SqlAction("SET Priority = @value; REMOVE x", {"@value": value}), sdk_values
)


def read_by_sdk(rule_filter: Filter, action: SqlAction | None) -> RuleProperties:
    content = rule_content("r", rule_filter, action, 1_700_000_000_123)
    text = entry_text(Entry("t/Subscriptions/s/Rules/r", "r", 0, 0, content), SITE, root=True)
    element = ElementTree.fromstring(text)
    entry = RuleDescriptionEntry.deserialize(element)
    rule = RuleProperties._from_internal_entity("r", entry.content.rule_description)
    deserialize_rule_key_values(element, rule)
    return rule


def written_by_sdk(rule: RuleProperties) -> bytes:
    """As `update_rule` does it, including the pipeline's own cleanup of prefixes."""
    internal = rule._to_internal_entity()
    element = CreateRuleBody(content=CreateRuleBodyContent(rule_description=internal)).serialize(is_xml=True)
    serialize_rule_key_values(element, rule)
    return ElementTree.tostring(element, encoding="utf-8").replace(b"ns1:", b"").replace(b":ns1", b"")


@settings(deadline=None)
@given(filters, actions)
def test_the_sdk_and_we_understand_each_other(rule_filter: Filter, action: SqlAction | None) -> None:
    rule = read_by_sdk(rule_filter, action)
    if isinstance(rule_filter, CorrelationFilter):
        assert rule.filter.correlation_id == rule_filter.correlation_id
        assert (rule.filter.properties or {}) == rule_filter.properties
    else:
        assert rule.filter.sql_expression == rule_filter.expression
    assert (rule.action is None) == (action is None)
    kind, given_back = description_in(written_by_sdk(rule))
    assert kind == "RuleDescription"
    assert filter_in(given_back) == rule_filter
    assert action_in(given_back) == action


def test_a_rule_is_this_text() -> None:
    """Literally, because one client finds types by prefixes and their positions."""
    text = rule_content("r", SqlFilter("a = @p", {"@p": Int32(5)}), None, 0)
    assert text == description(
        "RuleDescription",
        '<Filter i:type="SqlFilter"><SqlExpression>a = @p</SqlExpression><CompatibilityLevel>20</CompatibilityLevel>'
        "<Parameters><KeyValueOfstringanyType><Key>@p</Key><Value "
        'i:type="d6p1:int" xmlns:d6p1="http://www.w3.org/2001/XMLSchema">5</Value></KeyValueOfstringanyType>'
        '</Parameters></Filter><Action i:type="EmptyRuleAction"/><CreatedAt>1970-01-01T00:00:00.000Z</CreatedAt>'
        "<Name>r</Name>",
    )
    assert '<Filter i:type="TrueFilter"><SqlExpression>1=1</SqlExpression>' in rule_content("r", TrueFilter(), None, 0)
    assert "<SqlExpression>1=0</SqlExpression>" in rule_content("r", FalseFilter(), None, 0)


def rule_of(inner: str) -> ElementTree.Element:
    return description_in(body("RuleDescription", inner).encode())[1]


def test_what_is_left_out() -> None:
    assert filter_in(rule_of("")) == TrueFilter()
    assert action_in(rule_of("")) is None
    assert action_in(rule_of('<Action x:type="EmptyRuleAction"/>')) is None
    # The Python client has its own text for "nothing".
    assert (
        filter_in(rule_of('<Filter x:type="FalseFilter"><SqlExpression>1>1</SqlExpression></Filter>')) == FalseFilter()
    )


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        ('<Filter x:type="OtherFilter"/>', "OtherFilter"),
        ("<Filter/>", "must be a SqlFilter"),
        ('<Filter x:type="SqlFilter"/>', "no SqlExpression"),
        ('<Filter x:type="SqlFilter"><SqlExpression>a =</SqlExpression></Filter>', "not valid at its end"),
        ('<Filter x:type="CorrelationFilter"/>', "no condition"),
    ],
)
def test_bad_filters(inner: str, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        filter_in(rule_of(inner))


def test_bad_actions() -> None:
    for inner, words in [
        ('<Action x:type="OtherAction"/>', "OtherAction"),
        ('<Action x:type="SqlRuleAction"/>', "no SqlExpression"),
        ('<Action x:type="SqlRuleAction"><SqlExpression>DROP x</SqlExpression></Action>', "not valid"),
    ]:
        with pytest.raises(ArgumentError, match=words):
            action_in(rule_of(inner))


def values(inner: str) -> dict[str, Any]:
    return values_in(rule_of(f"<Properties>{inner}</Properties>"), "Properties")


def pair(kind: str, text: str, key: str = "k") -> str:
    return (
        f'<KeyValueOfstringanyType><Key>{key}</Key><Value x:type="d6p1:{kind}">{text}</Value></KeyValueOfstringanyType>'
    )


@pytest.mark.parametrize(
    "value",
    [
        2**63 - 1,
        -(2**63),
        True,
        0.1,
        1e300,
        float("inf"),
        Decimal("12.50"),
        uuid.UUID(int=5),
        b"\x00\xff",
        "",
        " <&> ",
        datetime.datetime(2020, 7, 5, 11, 12, 13, 456789),  # noqa: DTZ001
        datetime.datetime(2020, 7, 5, 11, 12, 13, tzinfo=datetime.UTC),
        datetime.timedelta(days=1, hours=2, minutes=3, microseconds=5),
        -datetime.timedelta(seconds=90),
        datetime.timedelta(0),
    ],
)
def test_every_type_of_value_comes_back(value: Any) -> None:
    text = description("RuleDescription", values_out("Properties", {"k": value}))
    back = values_in(ElementTree.fromstring(text), "Properties")["k"]
    assert (type(back), back) == (type(value), value)


def test_types_that_only_others_write() -> None:
    read = values(pair("unsignedLong", str(2**64 - 1)) + pair("float", "1.5", "f") + pair("char", "x", "c"))
    assert read == {"k": 2**64 - 1, "f": 1.5, "c": "x"}
    assert values(pair("dateTime", "2020-07-05T11:12:13.1234567Z"))["k"].microsecond == 123456
    plain = "<KeyValueOfstringanyType><Key>k</Key><Value>text</Value></KeyValueOfstringanyType>"
    assert values(plain) == {"k": "text"}


@pytest.mark.parametrize(
    "inner",
    [
        pair("int", "five"),
        pair("int", "9" * 30),
        pair("boolean", "maybe"),
        pair("double", ""),
        pair("decimal", "x"),
        pair("dateTime", "yesterday"),
        pair("duration", "P"),
        pair("duration", "PT"),
        pair("duration", "P999999999DT25H"),
        pair("guid", "x"),
        pair("base64Binary", "*"),
        pair("QName", "x"),
        pair("int", "1") + pair("int", "2"),
        pair("int", "1", ""),
        "<KeyValueOfstringanyType><Key>k</Key></KeyValueOfstringanyType>",
    ],
)
def test_bad_values(inner: str) -> None:
    with pytest.raises(ArgumentError):
        values(inner)


def test_namespace_counts() -> None:
    assert values_in(ElementTree.fromstring(f'<R xmlns="{SERVICE}"/>'), "Properties") == {}
    assert duration_text(datetime.timedelta(days=2)) == "P2D"
    assert duration_text(datetime.timedelta(0)) == "PT0S"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Int32(5), "int"),
        (5, "long"),
        (2**40, "long"),
        (Int8(-5), "byte"),
        (Int16(5), "short"),
        (UInt8(5), "unsignedByte"),
        (UInt16(5), "unsignedShort"),
        (UInt32(5), "unsignedInt"),
        (UInt64(2**64 - 1), "unsignedLong"),
        (1.0, "double"),
        (Single(0.5), "float"),
    ],
)
def test_a_number_keeps_its_type(value: Any, kind: str) -> None:
    written = values_out("Properties", {"n": value})
    assert f'i:type="d6p1:{kind}"' in written
    parent = ElementTree.fromstring(description("Holder", written))
    again = values_in(parent, "Properties")["n"]
    assert (type(again), again) == (type(value), value)


def test_a_number_too_large_for_its_type_is_a_long() -> None:
    written = values_out("Properties", {"n": Int32(5)}).replace(">5<", ">5000000000<")
    again = values_in(ElementTree.fromstring(description("Holder", written)), "Properties")["n"]
    assert (type(again), again) == (int, 5_000_000_000)
