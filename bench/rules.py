"""What the entities cost: microseconds per command, bytes per queued message, seconds for recovery.

    python bench/rules.py [--depth 1000000] [--quick]

Prints one JSON object. The garbage collector is off, as it is in the broker. Costs are medians over bursts of 500
messages with one commit each; the commit itself (the store) is not included.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
import tracemalloc
from collections.abc import Iterator

from twinbus.entities import records
from twinbus.entities.message import NewMessage, QueuedMessage
from twinbus.entities.namespace import Namespace
from twinbus.entities.queue import Queue
from twinbus.entities.settings import QueueSettings
from twinbus.store.facts import Facts

BURST = 500
NOW_MS = 1_700_000_000_000
TTL_MS = 3_600_000


def tokens() -> bytes:
    return os.urandom(16)


def run(facts: Facts) -> None:
    for call, argument in facts.then:
        call(argument)


def build(depth: int, ttl_ms: int | None) -> tuple[Queue, Namespace]:
    namespace = Namespace("bench", tokens=tokens)
    facts = Facts()
    queue = namespace.create_queue(QueueSettings(path="q", max_megabytes=81_920), NOW_MS, facts)
    run(facts)
    fill(queue, depth, ttl_ms)
    return queue, namespace


def fill(queue: Queue, depth: int, ttl_ms: int | None) -> None:
    """Messages of different sizes, a millisecond apart, so that no objects are shared that would not be in practice."""
    for start in range(0, depth, BURST):
        facts = Facts()
        for number in range(start, min(start + BURST, depth)):
            queue.send([NewMessage("id", b"", 1000 + number % 5000, ttl_ms=ttl_ms)], NOW_MS + number, facts)
        run(facts)


def costs(depth: int, ttl_ms: int | None, bursts: int) -> dict[str, float]:
    """Microseconds per message to send, acquire, complete and abandon at a depth."""
    queue, _ = build(depth, ttl_ms)
    now_ms = NOW_MS + depth
    found: dict[str, list[float]] = {"send": [], "acquire": [], "complete": [], "abandon": []}
    for _ in range(bursts):
        new = [[NewMessage("id", b"", 1000, ttl_ms=ttl_ms)] for _ in range(BURST)]
        facts = Facts()
        before = time.perf_counter()
        for batch in new:
            queue.send(batch, now_ms, facts)
        run(facts)
        found["send"].append(time.perf_counter() - before)
        facts = Facts()
        before = time.perf_counter()
        held = queue.acquire(BURST, now_ms, facts)
        found["acquire"].append(time.perf_counter() - before)
        lock_tokens = [token_of(message) for message in held]
        before = time.perf_counter()
        for token in lock_tokens:
            queue.abandon(token, now_ms, facts)
        run(facts)
        found["abandon"].append(time.perf_counter() - before)
        facts = Facts()
        lock_tokens = [token_of(message) for message in queue.acquire(BURST, now_ms, facts)]
        before = time.perf_counter()
        for token in lock_tokens:
            queue.complete(token, now_ms, facts)
        run(facts)
        found["complete"].append(time.perf_counter() - before)
    return {name: round(statistics.median(times) / BURST * 1e6, 2) for name, times in found.items()}


def token_of(message: QueuedMessage) -> bytes:
    assert message.token
    return message.token


def bytes_each(depth: int, ttl_ms: int | None) -> float:
    queue, _ = build(0, ttl_ms)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    fill(queue, depth, ttl_ms)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return round((after - before) / depth, 1)


def index_rows(count: int, ttl_ms: int | None) -> Iterator[tuple[bytes, bytes]]:
    for seq in range(1, count + 1):
        expires_ms = None if ttl_ms is None else NOW_MS + seq + ttl_ms
        message = QueuedMessage(seq, seq, 1000 + seq % 5000, NOW_MS + seq, expires_ms, 0, 0, None, None)
        yield records.key(4, seq), records.pack(message)


def restore_seconds(count: int, ttl_ms: int | None) -> float:
    facts = Facts()
    Namespace("bench", tokens=tokens).create_queue(QueueSettings(path="q"), NOW_MS, facts)
    entities = [(key, value) for (table, key), value in facts.rows.items() if table.name == "ENTITIES"]
    rows = list(index_rows(count, ttl_ms))
    before = time.perf_counter()
    namespace = Namespace.restore("bench", entities, rows, [], [], [], NOW_MS, tokens)
    taken = time.perf_counter() - before
    assert namespace.queue("q").counts.active == count
    return round(taken, 3)


def delete_milliseconds(depth: int) -> float:
    """Deleting a deep queue: the call itself, without the sweep that follows in steps."""
    _, namespace = build(depth, None)
    before = time.perf_counter()
    namespace.delete_queue("q", NOW_MS, Facts())
    return round((time.perf_counter() - before) * 1e3, 3)


def quiet_entities_bytes(count: int) -> float:
    namespace = Namespace("bench", tokens=tokens)
    facts = Facts()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(count):
        namespace.create_queue(QueueSettings(path=f"q{number}"), NOW_MS, facts)
    facts.rows.clear()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return round((after - before) / count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depth", type=int, default=1_000_000, help="messages in the deep queue")
    parser.add_argument("--quick", action="store_true", help="a tenth of the depth and few bursts")
    options = parser.parse_args()
    depth = options.depth // 10 if options.quick else options.depth
    bursts = 20 if options.quick else 100
    gc.disable()
    figures: dict[str, object] = {"depth": depth}
    for ttl_ms in (None, TTL_MS):
        kind = "plain" if ttl_ms is None else "with_ttl"
        figures[f"us_at_10_{kind}"] = costs(10, ttl_ms, bursts)
        figures[f"us_at_depth_{kind}"] = costs(depth, ttl_ms, bursts)
        figures[f"bytes_each_{kind}"] = bytes_each(min(depth, 200_000), ttl_ms)
        figures[f"restore_s_{kind}"] = restore_seconds(depth, ttl_ms)
    figures["delete_ms"] = delete_milliseconds(depth)
    figures["entity_bytes"] = quiet_entities_bytes(200)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
