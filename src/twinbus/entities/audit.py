"""Checks that the records of a namespace are consistent, for `twinbus check`.

Restoring the namespace finds records without an owner and unreadable records. This module adds what a running broker
cannot notice: bodies shared without the SHARED flag, and high-water marks below numbers already in use.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from twinbus.store.facts import Finding, Table

from .findings import Findings
from .namespace import Namespace, Rows
from .records import (
    DAMAGED,
    ENTITY_KEY,
    HEAD,
    KEY,
    META_BODIES,
    META_ENTITIES,
    META_SEQUENCE,
    NUMBER,
    SHARED,
)
from .topic import Topic


class Audit(NamedTuple):
    """The result of a check."""

    findings: list[Finding]
    # Paths of entities and dead-letter queues, by entity id.
    paths: dict[int, str]


def audit(rows: Callable[[Table], Rows], last_body: int) -> Audit:
    """Check all records; `last_body` is the highest body number in the store."""
    findings = Findings(None, strict=False)
    namespace = Namespace.restore(
        "",
        rows(Table.ENTITIES),
        rows(Table.INDEX),
        rows(Table.SESSIONS),
        rows(Table.DUPLICATES),
        rows(Table.META),
        now_ms=0,
        tokens=bytes,
        findings=findings,
    )
    _check_shares(lambda: rows(Table.INDEX), findings)
    _check_set_aside(rows(Table.INDEX), namespace, findings)
    _check_marks(namespace, dict(rows(Table.META)), last_body, findings)
    return Audit(findings.found, {entity_id: entity.path for entity_id, entity in namespace._by_id.items()})


def _check_shares(index: Callable[[], Rows], findings: Findings) -> None:
    """The last reference deletes a body, so every sharer must carry the SHARED flag and the same size."""
    sizes = _shared_sizes(index)
    if not sizes:
        return
    named = {each.key for each in findings.found if each.table is Table.INDEX}
    for key, value in index():
        if len(value) < HEAD.size or key in named:
            continue
        version, flags, count, body, size, enqueued_ms, expires_ms = HEAD.unpack_from(value)
        right = sizes.get(body)
        if right is None or (flags & SHARED and size == right):
            continue
        head = HEAD.pack(version, flags | SHARED, count, body, right, enqueued_ms, expires_ms)
        text = f"body {body} is shared by several messages, but one does not say so, or has another size"
        findings.add(Table.INDEX, key, text, head + value[HEAD.size :])


def _check_set_aside(index: Rows, namespace: Namespace, findings: Findings) -> None:
    """Report messages set aside as unreadable. If the body turns out to be intact, the repaired copy delivers them."""
    damaged = {
        KEY.pack(entity_id, seq): f"message {seq} of '{entity.path}' is set aside, because it could not be read"
        for entity_id, entity in namespace._by_id.items()
        for seq in entity.messages.damaged
    }
    if damaged:
        for key, value in index:
            if key in damaged:
                findings.add(Table.INDEX, key, damaged[key], value[:1] + bytes((value[1] & ~DAMAGED,)) + value[2:])


def _shared_sizes(index: Callable[[], Rows]) -> dict[int, int]:
    """Find bodies with several messages, and the largest size recorded for each."""
    numbers = array("Q", (HEAD.unpack_from(value)[3] for _, value in index() if len(value) >= HEAD.size))
    ordered = sorted(numbers)
    sizes = {number: 0 for number, following in pairwise(ordered) if number == following}
    if sizes:
        for _, value in index():
            if len(value) >= HEAD.size:
                _, _, _, body, size, _, _ = HEAD.unpack_from(value)
                if body in sizes:
                    sizes[body] = max(sizes[body], size)
    return sizes


def _check_marks(namespace: Namespace, marks: dict[bytes, bytes], last_body: int, findings: Findings) -> None:
    """Numbers above a mark are handed out again, so every number in use must lie below it."""
    wanted = {META_BODIES: last_body, META_ENTITIES: max(namespace._by_id, default=0) & ~3}
    for entity in namespace._by_id.values():
        if isinstance(entity, Topic):
            last = entity.numbers.last
        elif entity.owner is None:
            last = max(part.numbers.last for part in entity.parts)
        else:
            continue
        wanted[META_SEQUENCE + ENTITY_KEY.pack(entity.entity_id)] = last
    unreadable = {each.key for each in findings.found if each.table is Table.META}
    findings.found = [each for each in findings.found if each.table is not Table.META]
    findings.count -= len(unreadable)
    for key, number in wanted.items():
        try:
            mark: int = NUMBER.unpack(marks.get(key, bytes(NUMBER.size)))[0]
        except struct.error:
            mark = -1
        if mark < number:
            text = f"the mark {key!r} is too low or cannot be read: {number} is in use"
            findings.add(Table.META, key, text, NUMBER.pack(number))
