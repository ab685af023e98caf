"""Reads and writes a rule's description: filter, action, name.

The action is always written, even if empty, and every SQL filter has its text, even the fixed ones: without them
clients fail or guess wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.broker.http.admin.value_xml import values_in, values_out
from twinbus.broker.http.admin.xml_in import child_of, child_text, type_of
from twinbus.broker.http.admin.xml_out import description, element, moment, optional
from twinbus.entities.filters import CorrelationFilter, FalseFilter, Filter, SqlAction, SqlFilter, TrueFilter
from twinbus.errors import ArgumentError

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

KIND = "RuleDescription"

# Element and field of a correlation filter, in the service's order.
_CORRELATION = (
    ("CorrelationId", "correlation_id"),
    ("MessageId", "message_id"),
    ("To", "to"),
    ("ReplyTo", "reply_to"),
    ("Label", "label"),
    ("SessionId", "session_id"),
    ("ReplyToSessionId", "reply_to_session_id"),
    ("ContentType", "content_type"),
)
_LEVEL = "<CompatibilityLevel>20</CompatibilityLevel>"


def filter_in(rule: Element) -> Filter:
    """The filter of a description; a missing one selects everything."""
    given = child_of(rule, "Filter")
    if given is None:
        return TrueFilter()
    kind = type_of(given)
    if kind == "TrueFilter":
        return TrueFilter()
    if kind == "FalseFilter":
        return FalseFilter()
    if kind == "SqlFilter":
        return SqlFilter(_expression(given, "SqlFilter"), values_in(given, "Parameters"))
    if kind == "CorrelationFilter":
        fields = {field: child_text(given, name) for name, field in _CORRELATION}
        return CorrelationFilter(**fields, properties=values_in(given, "Properties"))
    raise ArgumentError(
        f"The filter is a {kind[:60]!r}; it must be a SqlFilter, a TrueFilter, a FalseFilter or a CorrelationFilter."
    )


def action_in(rule: Element) -> SqlAction | None:
    given = child_of(rule, "Action")
    if given is None:
        return None
    kind = type_of(given)
    if kind in ("", "EmptyRuleAction"):
        return None
    if kind != "SqlRuleAction":
        raise ArgumentError(f"The action is a {kind[:60]!r}; it must be a SqlRuleAction or an EmptyRuleAction.")
    return SqlAction(_expression(given, "SqlRuleAction"), values_in(given, "Parameters"))


def _expression(given: Element, kind: str) -> str:
    text = child_text(given, "SqlExpression")
    if text is None:
        raise ArgumentError(f"The {kind} has no SqlExpression.")
    return text


def rule_content(name: str, rule_filter: Filter, action: SqlAction | None, created_ms: int) -> str:
    return description(
        KIND,
        _filter_out(rule_filter),
        _action_out(action),
        element("CreatedAt", moment(created_ms)),
        element("Name", name),
    )


def _filter_out(rule_filter: Filter) -> str:
    if isinstance(rule_filter, CorrelationFilter):
        fields = "".join(optional(name, getattr(rule_filter, field)) for name, field in _CORRELATION)
        return f'<Filter i:type="CorrelationFilter">{fields}{values_out("Properties", rule_filter.properties)}</Filter>'
    parameters = rule_filter.parameters if isinstance(rule_filter, SqlFilter) else {}
    # A message selector is shown as a SQL filter, because clients know no other.
    kind = "SqlFilter" if isinstance(rule_filter, SqlFilter) else type(rule_filter).__name__
    return f'<Filter i:type="{kind}">{_sql_out(rule_filter.expression, parameters)}</Filter>'


def _action_out(action: SqlAction | None) -> str:
    if action is None:
        return '<Action i:type="EmptyRuleAction"/>'
    return f'<Action i:type="SqlRuleAction">{_sql_out(action.expression, action.parameters)}</Action>'


def _sql_out(expression: str, parameters: dict[str, object]) -> str:
    return element("SqlExpression", expression) + _LEVEL + values_out("Parameters", parameters)
