"""Data folders with one fault each, added to a sound one: records without an owner, and unreadable records."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from twinbus.broker.host import NamespaceHost
from twinbus.clock import SteppedClock
from twinbus.entities import records
from twinbus.entities.message import NewMessage, QueuedMessage
from twinbus.entities.rule import default_rule
from twinbus.entities.settings import QueueSettings
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.store.facts import Facts, Table, body_key
from twinbus.store.lmdb_store import Store

NOW_MS = 1_700_000_000_000
# The active messages of a sound folder, by path.
SOUND = {"plain": 3, "grouped": 2, "news/Subscriptions/one": 2, "news/Subscriptions/two": 2}
NOBODY = 4_000

_RULE = json.dumps(default_rule(NOW_MS).to_json()).encode()


def opened(folder: Path) -> NamespaceHost:
    def fail(error: BaseException) -> None:
        raise error

    return NamespaceHost("contoso", folder, clock=SteppedClock(), dev=True, policies=(), on_failure=fail, sync=False)


def make(folder: Path) -> None:
    """A folder with a queue, a session queue, a topic with two subscriptions, and messages everywhere."""

    async def work() -> None:
        host = opened(folder)
        host.start()
        host.create_queue(QueueSettings(path="plain", requires_duplicate_detection=True))
        host.create_queue(QueueSettings(path="grouped", requires_session=True))
        host.create_topic(TopicSettings(path="news"))
        for name in ("one", "two"):
            host.create_subscription(SubscriptionSettings(topic="news", name=name))
        facts = host.commits.facts
        host.entities.queue("plain").send([message(f"plain {n}") for n in range(3)], NOW_MS, facts)
        host.entities.queue("grouped").send([message(f"grouped {n}", "g") for n in range(2)], NOW_MS, facts)
        host.entities.topic("news").send([message(f"news {n}") for n in range(2)], NOW_MS, facts)
        queue = host.entities.queue("grouped")
        queue.accept_session("g", NOW_MS)
        queue.set_session_state("g", b"state", NOW_MS, facts)
        await host.stop()

    asyncio.run(work())


def message(name: str, session_id: str | None = None) -> NewMessage:
    stored = bytes.fromhex("0102ffffffffff00000000000000000000000000") + name.encode()
    return NewMessage(name, stored, len(name), session_id)


def write(folder: Path, facts: Facts) -> None:
    with Store.open(folder, sync=False) as store:
        store.commit(facts)


def first(folder: Path, table: Table) -> tuple[bytes, bytes]:
    with Store.open(folder, sync=False) as store:
        return next(iter(store.scan(table)))


def _index_value(body: int) -> bytes:
    return records.pack(QueuedMessage(1, body, 7, NOW_MS, None, 0, 0, None, None))


def rule_without_owner(folder: Path) -> set[tuple[Table, bytes]]:
    return _put(folder, Table.ENTITIES, records.RULE_KEY.pack(NOBODY, 1), _RULE)


def rule_of_a_queue(folder: Path) -> set[tuple[Table, bytes]]:
    return _put(folder, Table.ENTITIES, records.RULE_KEY.pack(4, 1), _RULE)


def rule_of_a_deleted_subscription(folder: Path) -> set[tuple[Table, bytes]]:
    """As written by a management link that outlived its subscription."""

    async def work() -> set[tuple[Table, bytes]]:
        host = opened(folder)
        host.start()
        host.create_subscription(SubscriptionSettings(topic="news", name="three"))
        held = host.entities.subscription("news", "three")
        host.delete_subscription("news", "three")
        await host.commits.drain()
        held._write_rule(2, default_rule(NOW_MS), host.commits.facts)
        written = set(host.commits.facts.rows)
        await host.stop()
        return written

    return asyncio.run(work())


def subscription_without_topic(folder: Path) -> set[tuple[Table, bytes]]:
    fields = {"kind": "subscription", "created_ms": 1, "updated_ms": 1}
    settings = SubscriptionSettings(topic="nowhere", name="s").to_json()
    put = _put(folder, Table.ENTITIES, records.ENTITY_KEY.pack(NOBODY), json.dumps({**fields, "settings": settings}))
    put |= _put(folder, Table.ENTITIES, records.RULE_KEY.pack(NOBODY, 1), _RULE)
    return put | _message_of(folder, NOBODY)


def second_of_a_name(folder: Path) -> set[tuple[Table, bytes]]:
    """Two queues with the same path: the later one counts."""
    fields = {"kind": "queue", "created_ms": 1, "updated_ms": 1, "settings": QueueSettings(path="PLAIN").to_json()}
    return _put(folder, Table.ENTITIES, records.ENTITY_KEY.pack(0), json.dumps(fields)) | _message_of(folder, 0)


def message_without_queue(folder: Path) -> set[tuple[Table, bytes]]:
    return _message_of(folder, NOBODY)


def message_without_session(folder: Path) -> set[tuple[Table, bytes]]:
    return _message_of(folder, 8)


def state_without_queue(folder: Path) -> set[tuple[Table, bytes]]:
    key = records.session_key(NOBODY, "s")
    return _put(folder, Table.SESSIONS, key, records.pack_session("s", NOW_MS, b"state"))


def duplicate_without_queue(folder: Path) -> set[tuple[Table, bytes]]:
    return _put(folder, Table.DUPLICATES, records.key(NOBODY, 1), records.pack_duplicate(NOW_MS, "id"))


def unreadable_message(folder: Path) -> set[tuple[Table, bytes]]:
    return _put(folder, Table.INDEX, records.key(4, 99), b"\x05" + bytes(33))


def short_message(folder: Path) -> set[tuple[Table, bytes]]:
    return _put(folder, Table.INDEX, records.key(4, 99), b"\x01")


def unreadable_state(folder: Path) -> set[tuple[Table, bytes]]:
    return _put(folder, Table.SESSIONS, records.session_key(8, "s"), b"\x07")


def unreadable_duplicate(folder: Path) -> set[tuple[Table, bytes]]:
    return _put(folder, Table.DUPLICATES, records.key(4, 99), b"\x07")


def _message_of(folder: Path, entity_id: int) -> set[tuple[Table, bytes]]:
    facts = Facts()
    facts.bodies[body_key(900)] = message("set aside").body
    write(folder, facts)
    return _put(folder, Table.INDEX, records.key(entity_id, 77), _index_value(900))


def _put(folder: Path, table: Table, key: bytes, value: bytes | str) -> set[tuple[Table, bytes]]:
    facts = Facts()
    encoded = value.encode() if isinstance(value, str) else value
    if table is Table.INDEX:
        facts.index[key] = encoded
    else:
        facts.rows[table, key] = encoded
    write(folder, facts)
    return {(table, key)}


FAULTS: list[Callable[[Path], set[tuple[Table, bytes]]]] = [
    rule_without_owner,
    rule_of_a_queue,
    rule_of_a_deleted_subscription,
    subscription_without_topic,
    second_of_a_name,
    message_without_queue,
    message_without_session,
    state_without_queue,
    duplicate_without_queue,
    unreadable_message,
    short_message,
    unreadable_state,
    unreadable_duplicate,
]
