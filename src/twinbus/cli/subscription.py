"""`twinbus subscription create|list|show|update|status|delete`: the subscriptions of a topic.

The connection string's policy needs the right Manage.
"""

from __future__ import annotations

from typing import Annotated

import typer

from twinbus.cli import settings as of
from twinbus.cli.completion import subscription_names, topic_names
from twinbus.cli.confirmation import confirm
from twinbus.cli.group import group
from twinbus.cli.queue import counts, show_deleted, show_status
from twinbus.cli.settings import Json, Yes
from twinbus.cli.target import Target, connected
from twinbus.cli.view import counted, show_json, show_table

subscriptions = group(
    """Make, show, change and delete the subscriptions of a topic.

\b
Example:
  twinbus subscription create news all
  twinbus subscription list news
"""
)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", autocompletion=topic_names)]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The subscription.", autocompletion=subscription_names)]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="The subscription.")]


@subscriptions.command()
@connected
def create(
    target: Target,
    topic: Topic,
    name: NewName,
    lock_duration: of.LockDuration = None,
    default_ttl: of.DefaultTtl = None,
    dead_letter_on_expiry: of.DeadLetterOnExpiry = None,
    dead_letter_on_filter_error: of.DeadLetterOnFilterError = None,
    max_delivery_count: of.MaxDeliveryCount = None,
    requires_session: of.RequiresSession = None,
    status: of.StatusOption = None,
    auto_delete_on_idle: of.AutoDeleteOnIdle = None,
    forward_to: of.ForwardTo = None,
    forward_dead_letters_to: of.ForwardDeadLettersTo = None,
    enable_batched_operations: of.EnableBatchedOperations = None,
    user_metadata: of.UserMetadata = None,
    json: Json = False,
) -> None:
    """Make a subscription; its first rule, $Default, selects everything. `twinbus rule create --only` narrows it.

    \b
    Example:
      twinbus subscription create news all
      twinbus subscription create news audit --forward-to audit-queue
    """
    options = {key: value for key, value in locals().items() if key not in ("target", "topic", "name", "json")}
    body = {"topic": topic, "name": name, **of.given(options)}
    made = target.ask("create-subscription", body)["subscription"]
    if json:
        show_json(made)
    else:
        typer.echo(f"Subscription {made['name']} of {made['topic']} is there.")


@subscriptions.command(name="list")
@connected
def list_subscriptions(target: Target, topic: Topic, json: Json = False) -> None:
    """List the subscriptions of a topic with their message counts.

    \b
    Example:
      twinbus subscription list news
    """
    found = target.ask("list-subscriptions", {"topic": topic})["subscriptions"]
    found = sorted(found, key=lambda each: str(each["name"]).lower())
    if json:
        show_json(found)
        return
    numbers = ("active", "scheduled", "deferred", "dead-letter", "bytes")
    rows = [[each["name"], *counts(each), of.number(each["size_bytes"]), each["status"]] for each in found]
    show_table(["subscription", *numbers, "status"], rows, numbers)


@subscriptions.command()
@connected
def show(target: Target, topic: Topic, name: Name, json: Json = False) -> None:
    """Show a subscription's settings and numbers.

    \b
    Example:
      twinbus subscription show news all
    """
    found = target.ask("get-subscription", {"topic": topic, "name": name})["subscription"]
    if json:
        show_json(found)
    else:
        show_table(["setting", "value"], of.rows(found))


@subscriptions.command()
@connected
def update(
    target: Target,
    topic: Topic,
    name: Name,
    lock_duration: of.LockDuration = None,
    default_ttl: of.DefaultTtl = None,
    dead_letter_on_expiry: of.DeadLetterOnExpiry = None,
    dead_letter_on_filter_error: of.DeadLetterOnFilterError = None,
    max_delivery_count: of.MaxDeliveryCount = None,
    status: of.StatusOption = None,
    auto_delete_on_idle: of.AutoDeleteOnIdle = None,
    forward_to: of.ForwardTo = None,
    forward_dead_letters_to: of.ForwardDeadLettersTo = None,
    enable_batched_operations: of.EnableBatchedOperations = None,
    user_metadata: of.UserMetadata = None,
    json: Json = False,
) -> None:
    """Change settings of a subscription; those that are not given stay. An empty text takes one away.

    \b
    Example:
      twinbus subscription update news all --max-delivery-count 3
    """
    options = {key: value for key, value in locals().items() if key not in ("target", "topic", "name", "json")}
    before = target.ask("get-subscription", {"topic": topic, "name": name})["subscription"]
    found = target.ask("update-subscription", of.changed(before, options))["subscription"]
    if json:
        show_json(found)
    else:
        typer.echo(f"Subscription {found['name']} of {found['topic']} is changed.")


@subscriptions.command()
@connected
def status(
    target: Target,
    topic: Topic,
    name: Name,
    new: of.NewStatus = None,
    json: Json = False,
) -> None:
    """Show what a subscription may be used for, or set it: Active, Disabled or ReceiveDisabled.

    \b
    Example:
      twinbus subscription status news all ReceiveDisabled
    """
    found = target.ask("get-subscription", {"topic": topic, "name": name})["subscription"]
    if new is not None:
        found = target.ask("update-subscription", of.changed(found, {"status": new}))["subscription"]
    show_status(found, json)


@subscriptions.command()
@connected
def delete(target: Target, topic: Topic, name: Name, yes: Yes = False, json: Json = False) -> None:
    """Delete a subscription and its messages. Asks first unless you pass --yes.

    \b
    Example:
      twinbus subscription delete news all --yes
    """
    if not yes:
        found = target.ask("get-subscription", {"topic": topic, "name": name})["subscription"]
        count = sum(found[f"{kind}_messages"] or 0 for kind in ("active", "scheduled", "deferred", "dead_letter"))
        confirm(f"Delete subscription {found['name']} of {topic} and its {counted(count, 'message')}?")
    target.ask("delete-subscription", {"topic": topic, "name": name})
    show_deleted("Subscription", name, json)
