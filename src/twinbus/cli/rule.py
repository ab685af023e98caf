"""`twinbus rule create|list|show|delete`: which messages a subscription receives, and how they are changed.

Rules:
- A rule has a SQL filter or a correlation filter; without either it selects everything.
- A subscription receives what any of its rules selects, so the initial rule $Default must be deleted before others can
  narrow the selection.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from twinbus.cli.completion import subscription_names, topic_names
from twinbus.cli.group import group
from twinbus.cli.properties import pairs, to_json
from twinbus.cli.settings import Json
from twinbus.cli.target import TargetNamespace, connected
from twinbus.cli.view import show_deleted, show_json, show_table, time_text
from twinbus.errors import ConfigError, EntityNotFoundError

rules = group(
    """Create, show and delete the rules of a subscription.

\b
Example:
  twinbus rule create news europe eu --sql "region = 'eu'" --only
  twinbus rule list news europe
"""
)

DEFAULT = "$Default"

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", autocompletion=topic_names)]
Subscription = Annotated[
    str, typer.Argument(metavar="SUBSCRIPTION", help="The subscription.", autocompletion=subscription_names)
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The rule.")]

# Fields of a correlation filter, in the order of responses. Azure's newer name for the label is subject.
FIELDS = (
    "correlation-id",
    "message-id",
    "to",
    "reply-to",
    "label",
    "session-id",
    "reply-to-session-id",
    "content-type",
)
_EVERYTHING = "1=1"


@rules.command()
@connected
def create(
    target: TargetNamespace,
    topic: Topic,
    subscription: Subscription,
    name: Name,
    sql: Annotated[str | None, typer.Option(metavar="EXPRESSION", help="Select messages by a SQL condition.")] = None,
    correlation: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=TEXT", help=f"Select messages by equality; repeatable. FIELD is one of {', '.join(FIELDS)}."
        ),
    ] = None,
    property: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TEXT", help="Match an application property; repeatable. NAME:=5 matches a number."),
    ] = None,
    action: Annotated[
        str | None, typer.Option(metavar="STATEMENTS", help="SQL statements that change the message.")
    ] = None,
    only: Annotated[bool, typer.Option("--only", help="Delete the rule $Default, which selects everything.")] = False,
    json: Json = False,
) -> None:
    """Create a rule.

    \b
    Example:
      twinbus rule create news europe eu --sql "region = 'eu' AND amount > 100" --only
      twinbus rule create news europe vip --correlation label=order --property vip:=true
      twinbus rule create news europe marked --sql "1=1" --action "SET priority = 'high'"
    """
    description: dict[str, Any] = {}
    if correlation or property:
        if sql is not None:
            raise ConfigError("A rule has one filter: --sql, or --correlation and --property.")
        description["correlation-filter"] = _correlation(correlation or [], property or [])
    else:
        description["sql-filter"] = {"expression": sql if sql is not None else _EVERYTHING}
    if action is not None:
        description["sql-rule-action"] = {"expression": action}
    place = {"topic": topic, "subscription": subscription}
    target.ask("create-rule", {**place, "name": name, "rule-description": description})
    if only and name.lower() != DEFAULT.lower() and any(each["name"] == DEFAULT for each in _listed(target, place)):
        # Delete it only now; otherwise messages in between would match no rule and be lost.
        target.ask("delete-rule", {**place, "name": DEFAULT})
    if json:
        show_json(_found(target, place, name))
    else:
        typer.echo(f"Created rule {name} of {topic}/{subscription}.")


def _correlation(fields: list[str], properties: list[str]) -> dict[str, Any]:
    chosen = pairs("--correlation", fields)
    if "subject" in chosen:
        chosen["label"] = chosen.pop("subject")
    for field in chosen:
        if field not in FIELDS:
            raise ConfigError(f"--correlation {field}: use one of {', '.join(FIELDS)}, or --property for your own.")
    return {**chosen, "properties": pairs("--property", properties)}


@rules.command(name="list")
@connected
def list_rules(target: TargetNamespace, topic: Topic, subscription: Subscription, json: Json = False) -> None:
    """List the rules of a subscription.

    \b
    Example:
      twinbus rule list news europe
    """
    found = _listed(target, {"topic": topic, "subscription": subscription})
    if json:
        show_json(found)
    else:
        rows = [[rule["name"], _filter_text(rule["filter"]), rule["action"] or "-"] for rule in found]
        show_table(["rule", "selects", "action"], rows)


@rules.command()
@connected
def show(target: TargetNamespace, topic: Topic, subscription: Subscription, name: Name, json: Json = False) -> None:
    """Show one rule.

    \b
    Example:
      twinbus rule show news europe eu
    """
    rule = _found(target, {"topic": topic, "subscription": subscription}, name)
    if json:
        show_json(rule)
        return
    rows = [["name", rule["name"]], ["selects", _filter_text(rule["filter"])], ["action", rule["action"] or "-"]]
    show_table(["setting", "value"], [*rows, ["created", time_text(rule["created_ms"])]])


@rules.command()
@connected
def delete(target: TargetNamespace, topic: Topic, subscription: Subscription, name: Name, json: Json = False) -> None:
    """Delete a rule. A subscription without rules receives no messages.

    \b
    Example:
      twinbus rule delete news europe '$Default'
    """
    target.ask("delete-rule", {"topic": topic, "subscription": subscription, "name": name})
    show_deleted("rule", name, json)


def _found(target: TargetNamespace, place: dict[str, str], name: str) -> dict[str, Any]:
    listed = _listed(target, place)
    for rule in listed:
        if rule["name"].lower() == name.lower():
            return rule
    names = ", ".join(rule["name"] for rule in listed) or "none"
    raise EntityNotFoundError(f"{place['topic']}/{place['subscription']} has no rule {name!r}; it has {names}.")


def _listed(target: TargetNamespace, place: dict[str, str]) -> list[dict[str, Any]]:
    found = [rule_fields(each["rule-description"]) for each in target.ask("list-rules", place)["rules"]]
    return sorted(found, key=lambda rule: str(rule["name"]).lower())


def rule_fields(rule: Any) -> dict[str, Any]:
    """Convert a directory's response to a rule's fields; Azure's are already in this form."""
    if isinstance(rule, dict):
        return rule
    selects, action, name, created_ms = rule.value
    return {
        "name": str(name),
        "filter": _filter(selects),
        "action": str(action.value[0]) if action.value else None,
        "created_ms": int(created_ms),
    }


def _filter(selects: Any) -> dict[str, Any]:
    from twinbus.broker.nodes.rule_wire import CORRELATION_FILTER, FALSE_FILTER, TRUE_FILTER

    if selects.descriptor == TRUE_FILTER:
        return {"type": "true"}
    if selects.descriptor == FALSE_FILTER:
        return {"type": "false"}
    if selects.descriptor != CORRELATION_FILTER:
        return {"type": "sql", "expression": str(selects.value[0])}
    *values, properties = selects.value
    fields = {
        name.replace("-", "_"): to_json(value) for name, value in zip(FIELDS, values, strict=True) if value is not None
    }
    return {"type": "correlation", **fields, "properties": to_json(properties or {})}


def _filter_text(selects: dict[str, Any]) -> str:
    if selects["type"] == "sql":
        return str(selects["expression"])
    if selects["type"] != "correlation":
        return "everything" if selects["type"] == "true" else "nothing"
    fields = [f"{key.replace('_', '-')} = {value!r}" for key, value in selects.items() if isinstance(value, str)][1:]
    return ", ".join([*fields, *(f"{key} = {value!r}" for key, value in selects["properties"].items())])
