"""Every command with every right, scope and key: whoever may not, cannot, and learns nothing from the refusal."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.broker.rights import (
    COMMANDS,
    CREDENTIALS,
    PAGE,
    Attempts,
    Command,
    Credential,
    furnish,
    key_of,
    known_names,
    may,
    namespace,
    page,
    plain,
)
from twinbus.auth.policies import Right
from twinbus.clock import SteppedClock
from twinbus.testing import Broker


@pytest.fixture(scope="module")
def clock() -> SteppedClock:
    return SteppedClock(int(time.time() * 1000))


@pytest.fixture(scope="module")
def broker(clock: SteppedClock) -> Iterator[Broker]:
    with Broker([namespace()], dev=False, clock=clock, sync=False) as broker:
        furnish(broker)
        yield broker


@pytest.mark.parametrize("credential", CREDENTIALS, ids=lambda each: "-".join(str(part) for part in each if part))
def test_nobody_may_more_than_the_table_says(broker: Broker, clock: SteppedClock, credential: Credential) -> None:
    attempts = Attempts(broker, clock, credential)
    try:
        wrong = [
            (command.door, command.name, "allowed" if answer.allowed else "refused", answer.told[:200])
            for command in COMMANDS
            if (answer := command.run(attempts, command.target)).allowed != may(command, credential)
        ]
    finally:
        attempts.close()
    assert not wrong, f"{len(wrong)} of {len(COMMANDS)} commands differ: {wrong[:10]}"


def _told(command: Command, credential: Credential) -> bool:
    """Whether the service, too, tells a client with that right which entities do not exist."""
    if command.door == "management" and credential.right is not None and not credential.scope:
        # Any right suffices to attach to the node, which is refused if there is no such entity.
        return True
    return (
        command.door == "administration"
        and command.name in ("get a queue", "get a topic")
        and credential.right is Right.LISTEN
        and not credential.scope
    )


@pytest.mark.parametrize("right", [None, *Right])
@pytest.mark.parametrize("scope", ["", "hidden"])
def test_a_refusal_does_not_tell_what_exists(
    broker: Broker, clock: SteppedClock, right: Right | None, scope: str
) -> None:
    credential = Credential(right, scope)
    attempts = Attempts(broker, clock, credential)
    wrong = []
    try:
        for command in COMMANDS:
            if not command.target or may(command, credential) or _told(command, credential):
                continue
            absent = command.target.replace("orders", "absent").replace("news", "none")
            there, gone = (plain(command.run(attempts, path).told, path) for path in (command.target, absent))
            if there != gone:
                wrong.append((command.door, command.name, there[:120], gone[:120]))
    finally:
        attempts.close()
    assert not wrong


def test_the_table_has_every_command() -> None:
    for has, listed in known_names():
        assert has == listed


def test_the_page_has_the_table() -> None:
    assert page() == PAGE.read_text(), "run: python -m tests.broker.rights"


@pytest.mark.parametrize("right", [Right.LISTEN, Right.SEND, Right.MANAGE])
def test_a_key_for_one_entity_sees_no_other(broker: Broker, clock: SteppedClock, right: Right) -> None:
    """Not in lists, not in totals, not as the target of a forward."""
    attempts = Attempts(broker, clock, Credential(right, "orders"))
    try:
        for view in ("namespaces", "entities", "backlog", "rates"):
            told = attempts.view(view).told
            assert "hidden" not in told
            assert "news" not in told
        counted = attempts.view("entities").told.replace(" ", "")
        assert '"queues":1,"topics":0' in counted
        assert '"active"' not in attempts.view("namespaces").told
    finally:
        attempts.close()


@pytest.mark.parametrize("right", list(Right))
def test_the_console_shows_the_key_that_logged_in(broker: Broker, clock: SteppedClock, right: Right) -> None:
    for scope in ("", "orders"):
        shown = {}
        for key in ("primary", "secondary"):
            attempts = Attempts(broker, clock, Credential(right, scope, key))
            shown[key] = attempts.post("connection-string").told
            attempts.close()
        for key, other in (("primary", "secondary"), ("secondary", "primary")):
            assert key_of(right, scope, key) in shown[key]
            assert key_of(right, scope, other) not in shown[key]
