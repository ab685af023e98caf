"""Random commands to a namespace, several per commit; their effect is compared after a kill.

Run as a program (`python -m tests.broker.order_tale FOLDER SEED`) it prints the namespace's content after each commit
and waits for a line: the reader kills the process there, or lets it continue.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twinbus.auth.policies import Right
from twinbus.broker.host import NamespaceHost
from twinbus.broker.messages.browsing import browse
from twinbus.clock import SteppedClock
from twinbus.entities.filters import FalseFilter, TrueFilter
from twinbus.entities.message import NewMessage
from twinbus.entities.queue import Queue
from twinbus.entities.rule import Rule
from twinbus.entities.settings import QueueSettings
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.errors import ServiceError

QUEUES = ("plain", "grouped")
TOPIC = "news"
NAMES = ("one", "two")


def opened(folder: Path) -> NamespaceHost:
    def fail(error: BaseException) -> None:
        raise error

    return NamespaceHost("tale", folder, clock=SteppedClock(), dev=True, policies=(), on_failure=fail, sync=False)


class Tale:
    """Runs random commands on one namespace. Rejected commands are part of it."""

    def __init__(self, host: NamespaceHost, chance: random.Random) -> None:
        self._host = host
        self._chance = chance
        self._commands: list[Callable[[], Any]] = [
            self._create_queue,
            self._delete_queue,
            self._replace_queue,
            self._create_topic,
            self._delete_topic,
            self._create_subscription,
            self._delete_subscription,
            self._add_rule,
            self._update_rule,
            self._remove_rule,
            self._set_policy,
            self._set_policy,
            self._rotate_key,
            self._delete_policy,
            self._send,
            self._send,
            self._publish,
            self._receive,
            self._take,
            self._resubmit,
            self._set_state,
            self._set_state,
        ]

    async def commit(self) -> None:
        """Several commands in one turn of the loop, so that they are written together."""
        for _ in range(self._chance.randrange(1, 12)):
            try:
                self._chance.choice(self._commands)()
            except ServiceError:
                continue
        await self._host.commits.drain()

    # --- entities ---------------------------------------------------------------------------------------------------

    def _create_queue(self) -> None:
        path = self._chance.choice(QUEUES)
        self._host.create_queue(QueueSettings(path=path, requires_session=path == "grouped", max_delivery_count=2))

    def _delete_queue(self) -> None:
        self._host.delete_queue(self._chance.choice(QUEUES))

    def _replace_queue(self) -> None:
        """As an admin client does: delete, then put with policies."""
        self._host.delete_queue("plain")
        self._host.create_queue(QueueSettings(path="plain"))
        self._host.keyring.set("plain", "one", frozenset({Right.SEND}), self._now)

    def _create_topic(self) -> None:
        self._host.create_topic(TopicSettings(path=TOPIC))

    def _delete_topic(self) -> None:
        self._host.delete_topic(TOPIC)

    def _create_subscription(self) -> None:
        self._host.create_subscription(SubscriptionSettings(topic=TOPIC, name=self._name))

    def _delete_subscription(self) -> None:
        self._host.delete_subscription(TOPIC, self._name)

    def _add_rule(self) -> None:
        self._host.add_rule(TOPIC, self._name, self._rule)

    def _update_rule(self) -> None:
        self._host.update_rule(TOPIC, self._name, self._rule)

    def _remove_rule(self) -> None:
        self._host.remove_rule(TOPIC, self._name, self._name)

    # --- policies ---------------------------------------------------------------------------------------------------

    def _set_policy(self) -> None:
        right = self._chance.choice((Right.SEND, Right.LISTEN))
        self._host.keyring.set(self._scope, self._name, frozenset({right}), self._now)

    def _rotate_key(self) -> None:
        self._host.keyring.rotate(self._scope, self._name, "primary", self._now)

    def _delete_policy(self) -> None:
        self._host.keyring.delete(self._scope, self._name)

    # --- messages and sessions --------------------------------------------------------------------------------------

    def _send(self) -> None:
        queue = self._queue
        later_ms = self._chance.choice((None, None, self._now + 3_600_000))
        queue.send([_message(queue.settings.requires_session, later_ms)], self._now, self._facts)
        self._host.commits.request()

    def _publish(self) -> None:
        self._host.entities.topic(TOPIC).send([_message(False, None)], self._now, self._facts)
        self._host.commits.request()

    def _receive(self) -> None:
        queue = self._chance.choice((self._queue, self._host.entities.queue("plain/$DeadLetterQueue")))
        session = queue.accept_session(None, self._now) if queue.settings.requires_session else None
        source = queue if session is None else session
        for message in source.acquire(1, self._now, self._facts):
            token = message.token
            assert token
            settle = self._chance.choice(("complete", "abandon", "defer", "dead_letter", "release"))
            if settle == "dead_letter":
                queue.dead_letter(token, self._now, self._facts, "reason", "description")
            else:
                getattr(queue, settle)(token, self._now, self._facts)
        if session is not None:
            queue.release_session(session, self._now, self._facts)
        self._host.commits.request()

    def _take(self) -> None:
        self._queue.take(2, self._now, self._facts)
        self._host.commits.request()

    def _resubmit(self) -> None:
        queue = self._host.entities.queue("plain")
        assert queue.dead_letters is not None
        queue.resubmit(queue.dead_letters, None, 0, self._now, self._facts)
        self._host.commits.request()

    def _set_state(self) -> None:
        queue = self._host.entities.queue("grouped")
        session = queue.accept_session(self._name, self._now)
        assert session is not None
        state = self._chance.choice((None, b"", self._chance.randbytes(3)))
        queue.set_session_state(session.id, state, self._now, self._facts)
        queue.release_session(session, self._now, self._facts)
        self._host.commits.request()

    # --- parts ------------------------------------------------------------------------------------------------------

    @property
    def _now(self) -> int:
        return self._host.clock.now_ms()

    @property
    def _facts(self) -> Any:
        return self._host.commits.facts

    @property
    def _name(self) -> str:
        return self._chance.choice(NAMES)

    @property
    def _scope(self) -> str:
        scope = self._chance.choice(("", *QUEUES, TOPIC))
        return self._host.entities.entity(scope).path if scope else ""

    @property
    def _queue(self) -> Queue:
        return self._host.entities.queue(self._chance.choice(QUEUES))

    @property
    def _rule(self) -> Rule:
        return Rule(self._name, self._chance.choice((TrueFilter(), FalseFilter())), None, self._now)


def _message(grouped: bool, scheduled_ms: int | None) -> NewMessage:
    return NewMessage("id", b"body", 10, "one" if grouped else None, scheduled_ms=scheduled_ms)


def held(host: NamespaceHost) -> dict[str, Any]:
    """Everything in a namespace, as plain values."""
    namespace = host.entities
    subscriptions = [each for topic in namespace.topics() for each in topic.subscriptions]
    return {
        "queues": [queue.settings.to_json() for queue in namespace.queues()],
        "topics": [topic.settings.to_json() for topic in namespace.topics()],
        "rules": {each.path: [rule.to_json() for rule in each.rules] for each in subscriptions},
        "policies": sorted(
            [policy.scope, policy.name, sorted(policy.rights), *policy.keys]
            for scope in ("", *QUEUES, TOPIC)
            for policy in host.policies.scoped(scope)
        ),
        "states": {
            queue.path: {
                session.id: session.state.hex()
                for session in queue.sessions.by_id.values()
                if session.state is not None
            }
            for queue in namespace.queues()
            if queue.sessions is not None
        },
        "messages": {
            part.path: [
                list(part.counts),
                part.size_bytes,
                [
                    [each.seq, each.state, each.delivery_count, each.size, each.body_number]
                    for each in _rows(host, part)
                ],
            ]
            for queue in (*namespace.queues(), *(each.queue for each in subscriptions))
            for part in queue.parts
            if part.counts != (0, 0, 0, 0)
        },
    }


def _rows(host: NamespaceHost, queue: Queue) -> list[Any]:
    with host.store.snapshot():
        found = browse(host, queue, 0, 1_000)
        for message in found:
            assert host.store.body(message.body_number) == b"body"
    return found


async def tell(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    host = opened(folder)
    host.start()
    tale = Tale(host, chance)
    while True:
        await tale.commit()
        print(json.dumps(held(host)), flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    asyncio.run(tell(Path(sys.argv[1]), int(sys.argv[2])))
