"""Crashes of the store at every write and every sync that LMDB makes.

Promise: whatever a power cut leaves of unsynced data, the store opens, has everything that was confirmed, and has all
or nothing of the commit under way; and it carries on from there.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.proof.disk import DATA, Call, applied, crashed, recorded
from tests.proof.suite import Budget, Suite
from twinbus.store import lmdb_store
from twinbus.store.facts import Facts, Table, body_key, index_key
from twinbus.store.lmdb_store import Store

COMMITS = 24
BATCH_KEY = b"proof.batch"
KINDS = 4

# Number -> (mark, size of the body).
Content = dict[int, tuple[int, int]]


class Life(NamedTuple):
    """A store's history: its calls, what it held after each commit, and how many calls each commit had made."""

    start: bytes
    calls: list[Call]
    contents: list[Content]
    confirmed_at: list[int]


def body(number: int, size: int) -> bytes:
    return (random.Random(number).randbytes(64) * (size // 64 + 1))[:size]


def step(chance: random.Random, content: Content, number: int) -> tuple[Facts, int]:
    """The facts of one commit, applied to `content` too, and the next free number."""
    facts = Facts()
    for _ in range(chance.randrange(1, 9)):
        size = chance.choice([10, 100, 1_000, 1_000, 3_000, 9_000, 40_000])
        facts.bodies[body_key(number)] = body(number, size)
        facts.index[index_key(1, number)] = b"\x00" + body_key(number)
        content[number] = (0, size)
        number += 1
    old = [each for each in content if each < number - 20]
    for each in chance.sample(old, min(len(old), chance.randrange(12))):
        if chance.random() < 0.7:
            facts.delete(Table.BODIES, body_key(each))
            facts.delete(Table.INDEX, index_key(1, each))
            del content[each]
        else:
            mark = chance.randrange(1, 200)
            facts.index[index_key(1, each)] = bytes([mark]) + body_key(each)
            content[each] = (mark, content[each][1])
    return facts, number


def lived(folder: Path, chance: random.Random) -> Life:
    """Run a store and record it."""
    content: Content = {}
    contents: list[Content] = [{}]
    confirmed_at = [0]
    number = 1
    with Store.open(folder, reserve_bytes=0) as store, recorded(folder) as trace:
        for batch in range(1, COMMITS + 1):
            facts, number = step(chance, content, number)
            facts.rows[Table.META, BATCH_KEY] = b"%d" % batch
            store.commit(facts)
            contents.append(dict(content))
            confirmed_at.append(len(trace.calls))
    assert len(trace.calls) > 2 * COMMITS, "the calls of LMDB are not seen"
    return Life(trace.start, trace.calls, contents, confirmed_at)


def found(store: Store) -> tuple[int, Content]:
    """What a store holds; reads and compares every body."""
    content: Content = {}
    with store.snapshot():
        for _, value in store.scan(Table.INDEX):
            number = int.from_bytes(value[1:9], "big")
            stored = store.body(number)
            assert stored == body(number, len(stored)), f"body {number} is another's"
            content[number] = (value[0], len(stored))
        bodies = {int.from_bytes(key, "big") for key, _ in store.scan(Table.BODIES)}
    assert bodies == set(content), "bodies without an index row"
    return int(store.get(Table.META, BATCH_KEY) or b"0"), content


def states(life: Life, chance: random.Random) -> Iterator[tuple[int, int, bytes]]:
    """Every call, with each kind of crash after it: commits confirmed, commits started, and the file."""
    image = bytearray(life.start)
    pending: list[Call] = []
    for number in range(len(life.calls) + 1):
        confirmed = sum(at <= number for at in life.confirmed_at) - 1
        for kind in range(KINDS):
            yield confirmed, min(confirmed + 1, COMMITS), crashed(bytes(image), pending, kind, chance)
        if number == len(life.calls):
            return
        call = life.calls[number]
        if call.data is None and call.length is None:
            for each in pending:
                applied(image, each)
            pending.clear()
        elif call.durable:
            # In the middle of the call it is written or not: it is smaller than a sector; the calls before it may be
            # torn too.
            torn = crashed(bytes(image), [*pending, call], 2, chance)
            yield confirmed, min(confirmed + 1, COMMITS), torn
            applied(image, call)
        else:
            pending.append(call)


def check(folder: Path, image: bytes, life: Life, confirmed: int, begun: int, chance: random.Random) -> None:
    (folder / DATA).write_bytes(image)
    with Store.open(folder, sync=False) as store:
        batch, content = found(store)
        assert confirmed <= batch <= begun, f"{confirmed} commits were confirmed, {batch} are there"
        assert content == life.contents[batch], f"commit {batch} is not whole"
        if chance.random() < 0.2:
            facts, _ = step(chance, content, 10_000)
            store.commit(facts)
            assert found(store)[1] == content, "it does not go on"


def run(budget: Budget) -> str:
    """Cut the power at every write and sync: confirmed data is there, and a commit is stored whole or not at all."""
    lives = syncs = writes = 0
    at_work: Iterator[tuple[int, int, bytes]] = iter(())
    life: Any = None
    with tempfile.TemporaryDirectory(prefix="twinbus-crash-") as name:
        folder = Path(name) / "after"
        for chance in budget:
            state = next(at_work, None)
            if state is None:
                before = Path(name) / "before"
                shutil.rmtree(before, ignore_errors=True)
                shutil.rmtree(folder, ignore_errors=True)
                life = lived(before, chance)
                shutil.copytree(before, folder)
                lives += 1
                syncs += sum(call.durable or call.data is None for call in life.calls)
                writes += sum(call.data is not None for call in life.calls)
                at_work = states(life, chance)
                state = next(at_work)
            confirmed, begun, image = state
            check(folder, image, life, confirmed, begun, chance)
    return f"{budget.tried:,} states of {lives:,} stores, {writes:,} writes and {syncs:,} syncs, nothing confirmed lost"


@contextmanager
def planted() -> Iterator[None]:
    """Commits are confirmed before they are synced."""
    sound = lmdb_store.open_environment
    lmdb_store.open_environment = lambda folder, **options: sound(folder, **{**options, "sync": False})
    try:
        yield
    finally:
        lmdb_store.open_environment = sound


SUITE = Suite("states", 1_000, 50_000, run, planted)
