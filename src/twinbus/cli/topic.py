"""`twinbus topic create|list|show|update|status|delete`: the topics of a namespace.

The connection string's policy needs the right Manage.
"""

from __future__ import annotations

from typing import Annotated

import typer

from twinbus.cli import settings as of
from twinbus.cli.completion import topic_names
from twinbus.cli.confirmation import confirm
from twinbus.cli.group import group
from twinbus.cli.queue import show_deleted, show_status
from twinbus.cli.settings import Json, Yes
from twinbus.cli.target import Target, connected
from twinbus.cli.view import counted, show_json, show_table

topics = group(
    """Make, show, change and delete topics.

\b
Example:
  twinbus topic create news
  twinbus subscription create news all
"""
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic.", autocompletion=topic_names)]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="The topic.")]


@topics.command()
@connected
def create(
    target: Target,
    name: NewName,
    default_ttl: of.DefaultTtl = None,
    requires_duplicate_detection: of.RequiresDuplicateDetection = None,
    duplicate_window: of.DuplicateWindow = None,
    max_megabytes: of.MaxMegabytes = None,
    max_message_bytes: of.MaxMessageBytes = None,
    status: of.StatusOption = None,
    auto_delete_on_idle: of.AutoDeleteOnIdle = None,
    enable_batched_operations: of.EnableBatchedOperations = None,
    enable_partitioning: of.EnablePartitioning = None,
    enable_express: of.EnableExpress = None,
    support_ordering: of.SupportOrdering = None,
    filter_before_publishing: of.FilterBeforePublishing = None,
    user_metadata: of.UserMetadata = None,
    json: Json = False,
) -> None:
    """Make a topic. Durations are PT30S, P14D, or 30s, 5m, 14d.

    \b
    Example:
      twinbus topic create news
      twinbus topic create news --requires-duplicate-detection --duplicate-window 1h
    """
    options = {key: value for key, value in locals().items() if key not in ("target", "name", "json")}
    topic = target.ask("create-topic", {"path": name, **of.given(options)})["topic"]
    if json:
        show_json(topic)
    else:
        typer.echo(f"Topic {topic['path']} is there.")


@topics.command(name="list")
@connected
def list_topics(target: Target, json: Json = False) -> None:
    """List the topics with the number of their subscriptions.

    \b
    Example:
      twinbus topic list
    """
    found = sorted(target.ask("list-topics")["topics"], key=lambda topic: str(topic["path"]).lower())
    if json:
        show_json(found)
        return
    numbers = ("subscriptions", "scheduled", "bytes")
    fields = ("subscriptions", "scheduled_messages", "size_bytes")
    rows = [[topic["path"], *(of.number(topic[key]) for key in fields), topic["status"]] for topic in found]
    show_table(["topic", *numbers, "status"], rows, numbers)


@topics.command()
@connected
def show(target: Target, name: Name, json: Json = False) -> None:
    """Show a topic's settings and numbers.

    \b
    Example:
      twinbus topic show news
    """
    topic = target.ask("get-topic", {"name": name})["topic"]
    if json:
        show_json(topic)
    else:
        show_table(["setting", "value"], of.rows(topic))


@topics.command()
@connected
def update(
    target: Target,
    name: Name,
    default_ttl: of.DefaultTtl = None,
    duplicate_window: of.DuplicateWindow = None,
    max_megabytes: of.MaxMegabytes = None,
    max_message_bytes: of.MaxMessageBytes = None,
    status: of.StatusOption = None,
    auto_delete_on_idle: of.AutoDeleteOnIdle = None,
    enable_batched_operations: of.EnableBatchedOperations = None,
    enable_express: of.EnableExpress = None,
    support_ordering: of.SupportOrdering = None,
    filter_before_publishing: of.FilterBeforePublishing = None,
    user_metadata: of.UserMetadata = None,
    json: Json = False,
) -> None:
    """Change settings of a topic; those that are not given stay. An empty text takes one away.

    \b
    Example:
      twinbus topic update news --default-ttl 7d
    """
    options = {key: value for key, value in locals().items() if key not in ("target", "name", "json")}
    before = target.ask("get-topic", {"name": name})["topic"]
    topic = target.ask("update-topic", of.changed(before, options))["topic"]
    if json:
        show_json(topic)
    else:
        typer.echo(f"Topic {topic['path']} is changed.")


@topics.command()
@connected
def status(
    target: Target,
    name: Name,
    new: of.NewStatus = None,
    json: Json = False,
) -> None:
    """Show what a topic may be used for, or set it: Active, Disabled or SendDisabled.

    \b
    Example:
      twinbus topic status news SendDisabled
    """
    topic = target.ask("get-topic", {"name": name})["topic"]
    if new is not None:
        topic = target.ask("update-topic", of.changed(topic, {"status": new}))["topic"]
    show_status(topic, json)


@topics.command()
@connected
def delete(target: Target, name: Name, yes: Yes = False, json: Json = False) -> None:
    """Delete a topic, its subscriptions and all their messages. Asks first unless you pass --yes.

    \b
    Example:
      twinbus topic delete news --yes
    """
    if not yes:
        topic = target.ask("get-topic", {"name": name})["topic"]
        many = counted(topic["subscriptions"], "subscription")
        confirm(f"Delete topic {topic['path']} and its {many}?")
    target.ask("delete-topic", {"name": name})
    show_deleted("Topic", name, json)
