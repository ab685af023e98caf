"""The commands `create|list|show|update|status|delete` for one kind of entity.

The connection string's policy needs the Manage right. Queues, topics and subscriptions differ in their arguments,
settings, examples and the counts in a list; each kind has a file that defines those.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from twinbus.cli import settings as of
from twinbus.cli.confirmation import confirm
from twinbus.cli.group import group
from twinbus.cli.settings import Json, Yes
from twinbus.cli.target import TargetNamespace, connected
from twinbus.cli.view import counted, show_deleted, show_json, show_table
from twinbus.errors import ConfigError
from twinbus.spelling import did_you_mean

DURATIONS = "Durations are PT30S, P14D, or 30s, 5m, 14d."
# Columns of a list, and the fields they show.
MESSAGE_COUNTS = {
    "active": "active_messages",
    "scheduled": "scheduled_messages",
    "deferred": "deferred_messages",
    "dead-letter": "dead_letter_messages",
}


@dataclass(frozen=True, kw_only=True)
class EntityGroup:
    """The definition of one kind of entity."""

    kind: str
    # The arguments that identify an entity, and the one that names a new entity.
    arguments: dict[str, Any]
    new_name: Any
    # The heading of the name column, and the count columns with the fields they show.
    title: str
    counts: dict[str, str]
    # What is deleted with the entity: a noun, and the fields that count it.
    owned: str
    owned_counts: tuple[str, ...]
    # Additional help text by command.
    notes: dict[str, str]
    # Example command lines by command; those of the group are under the empty name.
    examples: dict[str, tuple[str, ...]]
    statuses: str

    def ask(self, target: TargetNamespace, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = target.ask(f"{verb}-{self.kind}", body).get(self.kind, {})
        return found

    def name_of(self, described: dict[str, Any]) -> str:
        """Name an entity in a sentence."""
        own = f"{described['name']} of {described['topic']}" if "topic" in described else described["path"]
        return f"{self.kind} {own}"

    def help(self, command: str, text: str) -> str:
        text = " ".join(filter(None, [text, self.notes.get(command, "")]))
        return f"{text}\n\n\b\nExample:\n" + "\n".join(f"  {line}" for line in self.examples[command])

    def commands(self) -> typer.Typer:
        kind = self.kind
        made = group(self.help("", f"Create, show, update and delete {kind}s."))
        new = self.arguments | {"name": self.new_name}
        place = {name: argument for name, argument in self.arguments.items() if name != "name"}
        settings, changes = of.options(kind, new=True), of.options(kind, new=False)

        def add(
            name: str, run: Callable[..., None], text: str, required: dict[str, Any], options: dict[str, Any]
        ) -> None:
            made.command(name=name, help=self.help(name, text))(connected(_with_parameters(run, required, options)))

        add("create", self.create, f"Create a {kind}.", new, settings)
        text = f"List {kind}s with their counts. Sorted by a count, the largest come first."
        add("list", self.list, text, place, self._choices())
        add("show", self.show, f"Show the settings and counts of a {kind}.", self.arguments, {})
        text = f"Update settings of a {kind}; the others stay. An empty string clears a setting."
        add("update", self.update, text, self.arguments, changes)
        text = f"Show the status of a {kind}, or set it: {self.statuses}."
        add("status", self.status, text, self.arguments, {"new": of.NewStatus})
        text = f"Delete a {kind} and its {self.owned}s. Asks first unless you pass --yes."
        add("delete", self.delete, text, self.arguments, {"yes": Yes})
        return made

    def create(self, target: TargetNamespace, json: bool, **values: Any) -> None:
        named = {name: values.pop(name) for name in self.arguments}
        if "topic" not in named:
            named = {"path": named["name"]}
        self._told("Created", self.ask(target, "create", named | of.given(values)), json)

    def _choices(self) -> dict[str, Any]:
        counts = ", ".join(self.counts)
        names = typer.Option("--filter", "-f", metavar="TEXT", help="Only those whose name contains TEXT.")
        having = typer.Option("--with", metavar="COUNT", help=f"Only those with some: {counts}.")
        order = typer.Option(metavar="COLUMN", help=f"Sort by name, {counts} or status [name].")
        return {
            "filter": Annotated[str | None, names],
            "having": Annotated[str | None, having],
            "sort": Annotated[str | None, order],
        }

    def list(
        self,
        target: TargetNamespace,
        json: bool,
        filter: str | None,
        having: str | None,
        sort: str | None,
        **place: str,
    ) -> None:
        fields = {"name": self.title, **self.counts, "status": "status"}
        _known("--sort", sort, fields)
        _known("--with", having, self.counts)
        found = target.ask(f"list-{self.kind}s", place)[f"{self.kind}s"]
        found = sorted(found, key=lambda each: str(each[self.title]).lower())
        if filter is not None:
            found = [each for each in found if filter.lower() in str(each[self.title]).lower()]
        if having is not None:
            found = [each for each in found if each[self.counts[having]]]
        if sort in self.counts:
            found.sort(key=lambda each: each[self.counts[sort]] or 0, reverse=True)
        elif sort == "status":
            found.sort(key=lambda each: str(each["status"]))
        if json:
            show_json(found)
            return
        rows = [
            [each[self.title], *(of.number(each[field]) for field in self.counts.values()), each["status"]]
            for each in found
        ]
        show_table([self.kind, *self.counts, "status"], rows, tuple(self.counts))

    def show(self, target: TargetNamespace, json: bool, **place: str) -> None:
        found = self.ask(target, "get", place)
        if json:
            show_json(found)
        else:
            show_table(["setting", "value"], of.rows(found))

    def update(self, target: TargetNamespace, json: bool, **values: Any) -> None:
        before = self.ask(target, "get", {name: values.pop(name) for name in self.arguments})
        self._told("Updated", self.ask(target, "update", of.changed(before, values)), json)

    def status(self, target: TargetNamespace, json: bool, new: str | None, **place: str) -> None:
        found = self.ask(target, "get", place)
        if new is not None:
            found = self.ask(target, "update", of.changed(found, {"status": new}))
        if json:
            show_json({"status": found["status"]})
        else:
            typer.echo(found["status"])

    def delete(self, target: TargetNamespace, json: bool, yes: bool, **place: str) -> None:
        if not yes:
            found = self.ask(target, "get", place)
            count = sum(found[field] or 0 for field in self.owned_counts)
            confirm(f"Delete {self.name_of(found)} and its {counted(count, self.owned)}?")
        self.ask(target, "delete", place)
        show_deleted(self.kind, place["name"], json)

    def _told(self, done: str, described: dict[str, Any], json: bool) -> None:
        if json:
            show_json(described)
        else:
            typer.echo(f"{done} {self.name_of(described)}.")


def _known(option: str, given: str | None, columns: dict[str, str]) -> None:
    if given is not None and given not in columns:
        raise ConfigError(f"{option} {given}: use one of {', '.join(columns)}.{did_you_mean(given, tuple(columns))}")


def _with_parameters(
    run: Callable[..., None], required: dict[str, Any], options: dict[str, Any]
) -> Callable[..., None]:
    """Create a command with these parameters and `--json` as the last one."""

    def command(target: TargetNamespace, **values: Any) -> None:
        run(target, **values)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter("target", kind)]
    parameters += [inspect.Parameter(name, kind, annotation=each) for name, each in required.items()]
    parameters += [inspect.Parameter(name, kind, default=None, annotation=each) for name, each in options.items()]
    parameters.append(inspect.Parameter("json", kind, default=False, annotation=Json))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command
