"""`twinbus apply`: update a running namespace to match a configuration file.

Rules:
- Entities missing from the namespace are created and those that differ are updated. Entities missing from the file are
  deleted only with --prune.
- Forwarding is set last, once every target exists; deletions come after everything else.
- A change to a setting that is fixed at creation is detected before the first change, and stops the run.
- Each step is durable by itself. To complete an interrupted run, run it again.
- Policies and keys are not changed; use `twinbus policy` for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.confirmation import confirm
from twinbus.cli.directory import in_conversation
from twinbus.cli.settings import Json, Yes, rows
from twinbus.cli.target import TargetNamespace, connected
from twinbus.cli.view import counted, plain, show_json
from twinbus.clock import SystemClock
from twinbus.entities.filters.stored import bare
from twinbus.entities.settings import SETTINGS
from twinbus.errors import ConfigError, ServiceError

if TYPE_CHECKING:
    from twinbus.broker.configuration.config import NamespaceConfig
    from twinbus.client.management import Management

_FIXED = {setting.name for setting in SETTINGS if setting.fixed}
_FORWARDS = ("forward_to", "forward_dead_letters_to")
_SIGNS = {"create": "+", "update": "~", "delete": "-"}
_ORDER = ("queue", "topic", "subscription", "rule")

# Identifies an entity: its kind, then the names from the outermost on, in lower case.
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One change to the namespace."""

    verb: str
    kind: str
    name: str
    request: dict[str, Any]
    # Changed settings: before and after.
    changes: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        changes = {name: {"before": before, "after": after} for name, (before, after) in self.changes.items()}
        return {"change": self.verb, "kind": self.kind, "name": self.name, "settings": changes}


@connected
def apply(
    target: TargetNamespace,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="config.json of the emulator, or TOML.")],
    source: Annotated[
        str | None, typer.Option("--from", metavar="NAME", help="Namespace in FILE, if it has several.")
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete entities that are not in FILE, with their messages.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the difference.")] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Update a running namespace to match a configuration file. Entities missing from FILE stay unless --prune.

    Policies and keys are not changed.

    \b
    Example:
      twinbus apply config.json --dry-run
      twinbus apply twinbus.toml
      twinbus apply twinbus.toml --prune --yes
    """
    from twinbus.broker.configuration.file import load_config
    from twinbus.cli.export import exported

    wanted = _wanted(_chosen(load_config(file).namespaces, file, source))
    steps = difference(_present(exported(target)), wanted)
    kept = [each for each in steps if each.verb == "delete"] if not prune else []
    steps = [each for each in steps if each not in kept]
    for step in steps:
        fixed = sorted(_FIXED & set(step.changes))
        if fixed and step.verb == "update":
            raise ConfigError(
                f"{fixed[0].replace('_', '-')} of {step.kind} {step.name} cannot be changed: delete it first, with its "
                "messages, or change the file. Nothing was changed."
            )
    deletions = [each for each in steps if each.verb == "delete" and each.kind != "rule"]
    if deletions and not dry_run and not yes:
        confirm(f"Delete {_names(deletions)}, with {'its' if len(deletions) == 1 else 'their'} messages?")
    done = 0 if dry_run else in_conversation(target.broker, lambda node: _run(node, steps), ca_file=target.ca_file)
    _tell(steps, kept, done, dry_run, json)


def _chosen(namespaces: list[NamespaceConfig], file: Path, name: str | None) -> NamespaceConfig:
    names = ", ".join(each.name for each in namespaces) or "none"
    found = [each for each in namespaces if name is None or each.name.lower() == name.lower()]
    if len(found) != 1:
        raise ConfigError(f"{file} has the namespaces {names}: choose one with --from.")
    return found[0]


def _wanted(namespace: NamespaceConfig) -> dict[Key, dict[str, Any]]:
    from twinbus.broker.configured import configured_rule
    from twinbus.entities.rule import default_rule

    now_ms = SystemClock().now_ms()
    found: dict[Key, dict[str, Any]] = {}
    for queue in namespace.queues:
        found["queue", queue.path.lower()] = queue.to_json()
    for topic in namespace.topics:
        found["topic", topic.path.lower()] = topic.settings.to_json()
        for each in topic.subscriptions:
            place = (topic.path.lower(), each.name.lower())
            found["subscription", *place] = each.settings.to_json()
            for rule in [configured_rule(config, now_ms) for config in each.rules] or [default_rule(now_ms)]:
                fields = {"topic": topic.path, "subscription": each.name, **rule.to_json()}
                found["rule", *place, rule.name.lower()] = fields
    return found


def _present(namespace: Any) -> dict[Key, dict[str, Any]]:
    found: dict[Key, dict[str, Any]] = {
        ("queue", each.settings["path"].lower()): each.settings for each in namespace.queues
    }
    for topic in namespace.topics:
        path = str(topic.settings["path"])
        found["topic", path.lower()] = topic.settings
        for each in topic.subscriptions:
            place = (path.lower(), str(each.settings["name"]).lower())
            found["subscription", *place] = each.settings
            for rule in each.rules:
                fields = {"topic": path, "subscription": each.settings["name"], **rule}
                found["rule", *place, str(rule["name"]).lower()] = fields
    return found


def difference(present: dict[Key, dict[str, Any]], wanted: dict[Key, dict[str, Any]]) -> list[Step]:
    """Return the changes in an order in which they can be applied."""
    create: list[Step] = []
    update: list[Step] = []
    delete: list[Step] = []
    firsts: set[Key] = set()
    for key, fields in sorted(wanted.items(), key=_place):
        kind, name = key[0], _name(key[0], fields)
        if key not in present:
            if kind == "rule" and key[:3] in firsts:
                continue  # created with its subscription
            request = dict(fields)
            if kind == "subscription":
                first = next(rule for rule in sorted(wanted) if rule[0] == "rule" and rule[1:3] == key[1:])
                firsts.add(("rule", *key[1:]))
                create += _created(kind, name, request | _rule_fields(wanted[first], "rule-name"))
                create += [
                    Step("create", "rule", _name("rule", wanted[rule]), _rule_fields(wanted[rule]))
                    for rule in sorted(wanted)
                    if rule[0] == "rule" and rule[1:3] == key[1:] and rule != first
                ]
            else:
                create += _created(kind, name, _rule_fields(fields) if kind == "rule" else request)
            if any(fields.get(each) for each in _FORWARDS):
                update.append(
                    Step("update", kind, name, fields, {each: (None, fields.get(each)) for each in _FORWARDS})
                )
            continue
        before = present[key]
        compared = ("filter", "action") if kind == "rule" else fields
        changes = {
            each: (before.get(each), fields[each])
            for each in compared
            if _comparable(before.get(each)) != _comparable(fields[each])
        }
        changes = {each: change for each, change in changes.items() if each not in ("path", "topic", "name")}
        if changes:
            update.append(Step("update", kind, name, _rule_fields(fields) if kind == "rule" else fields, changes))
    for key, fields in sorted(present.items(), key=_place, reverse=True):
        parent_goes = key[0] in ("subscription", "rule") and _parent(key) in present and _parent(key) not in wanted
        if key not in wanted and not parent_goes:
            delete.append(Step("delete", key[0], _name(key[0], fields), _named(key[0], fields)))
    return [*create, *update, *delete]


def _comparable(value: Any) -> Any:
    """A setting without the types of numbers in a filter: a file has none, and they select the same messages."""
    if not isinstance(value, dict) or "properties" not in value:
        return value
    return {**value, "properties": {name: bare(each) for name, each in value["properties"].items()}}


def _created(kind: str, name: str, fields: dict[str, Any]) -> list[Step]:
    return [Step("create", kind, name, {each: value for each, value in fields.items() if each not in _FORWARDS})]


def _parent(key: Key) -> Key:
    return ("subscription", *key[1:3]) if key[0] == "rule" else ("topic", key[1])


def _place(item: tuple[Key, Any]) -> tuple[int, Key]:
    return _ORDER.index(item[0][0]), item[0]


def _name(kind: str, fields: dict[str, Any]) -> str:
    if kind == "rule":
        return f"{fields['topic']}/{fields['subscription']}/{fields['name']}"
    return f"{fields['topic']}/{fields['name']}" if kind == "subscription" else str(fields["path"])


def _named(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    if kind in ("queue", "topic"):
        return {"name": fields["path"]}
    return {each: fields[each] for each in ("topic", "subscription", "name") if each in fields}


def _rule_fields(rule: dict[str, Any], name: str = "name") -> dict[str, Any]:
    """Return a rule in the form that requests use."""
    selects = dict(rule["filter"])
    kind = selects.pop("type")
    if kind == "correlation":
        chosen = {each.replace("_", "-"): value for each, value in selects.items()}
        description: dict[str, Any] = {"correlation-filter": chosen}
    else:
        description = {"sql-filter": {"expression": selects.get("expression", "1=1" if kind == "true" else "1=0")}}
    if rule["action"] is not None:
        description["sql-rule-action"] = {"expression": rule["action"]["expression"]}
    place = {"topic": rule["topic"], "subscription": rule["subscription"]} if name == "name" else {}
    return {**place, name: rule["name"], "rule-description": description}


async def _run(node: Management, steps: list[Step]) -> int:
    for number, step in enumerate(steps):
        request = {name: value for name, value in step.request.items() if value is not None}
        try:
            await node.ask(f"twinbus:{step.verb}-{step.kind}", request)
        except ServiceError as error:
            raise type(error)(
                f"{step.verb.capitalize()} {step.kind} {step.name}: {error.text} {counted(number, 'change')} of "
                f"{len(steps):,} done; the rest was not tried."
            ) from None
    return len(steps)


def _tell(steps: list[Step], kept: list[Step], done: int, dry_run: bool, json: bool) -> None:
    if json:
        show_json(
            {
                "changes": [step.to_json() for step in steps],
                "applied": done,
                "not_in_file": [f"{step.kind} {step.name}" for step in kept],
            }
        )
        return
    for step in steps:
        typer.echo(f"{_SIGNS[step.verb]} {step.kind} {plain(step.name)}")
        for name, (before, after) in step.changes.items():
            label = rows({name: None})[0][0]
            typer.echo(plain(f"    {label}: {_shown(name, before)} -> {_shown(name, after)}"))
    if not steps:
        typer.echo("No difference.")
    elif dry_run:
        typer.echo(f"{counted(len(steps), 'change')} to make; nothing was changed.")
    else:
        typer.echo(f"{counted(done, 'change')} made.")
    if kept:
        them = "it" if len(kept) == 1 else "them"
        typer.echo(f"Not in the file, and kept: {_names(kept)}. --prune deletes {them}.", err=True)


def _names(steps: list[Step]) -> str:
    names = ", ".join(plain(f"{step.kind} {step.name}") for step in steps[:5])
    return f"{names} and {len(steps) - 5} more" if len(steps) > 5 else names


def _shown(name: str, value: Any) -> str:
    return str(value.get("expression") or value) if isinstance(value, dict) else rows({name: value})[0][1]
