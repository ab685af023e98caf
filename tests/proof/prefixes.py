"""Clients whose work takes many commits, among others whose work takes one; a crash may come after any commit.

Promise: after every commit the disk holds exactly what memory took for granted when the commit was closed: messages and
their bodies, reference counts, sequence numbers, duplicate ids, sessions and bytes of quotas. So no commit deletes,
numbers, drops or confirms anything on the strength of facts that a later commit has yet to write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.proof.suite import Budget, Suite
from twinbus.amqp.states import State
from twinbus.broker.links import transactions
from twinbus.broker.links.long_commit import LongCommit
from twinbus.broker.links.settlement import settle_all
from twinbus.entities.queue import Queue
from twinbus.store.facts import Facts

STEPS = 120


def run(budget: Budget) -> str:
    """Run transactions and batches in steps among other clients, and compare memory with the disk after each commit."""
    from prefix_walk import Walk

    commits = 0
    for chance in budget:
        walk = Walk(chance)
        try:
            walk.go(STEPS)
        except Exception as error:
            raise AssertionError(f"program {budget.tried}, after {walk.commits} commits: {error}") from error
        commits += walk.commits
    return f"{budget.tried:,} programs of {STEPS} commands, {commits:,} commits compared, no difference"


class EarlySettlement(LongCommit):
    """Settles in memory before the first step; the rows follow with the last commit."""

    __slots__ = ("_early",)

    def __init__(
        self, settlements: Mapping[bytes, tuple[Queue, State | None]], sends: Any, schedules: Any, now_ms: int
    ) -> None:
        super().__init__({}, sends, schedules, now_ms)
        self._early = Facts()
        settle_all(settlements, now_ms, self._early)

    def finish(self, facts: Facts) -> None:
        super().finish(facts)
        for table, key in self._early.deletes:
            facts.delete(table, key)
        facts.index |= self._early.index
        facts.then += self._early.then


@contextmanager
def planted() -> Iterator[None]:
    """A transaction that commits in steps settles its messages before its first step."""
    sound: Callable[..., LongCommit] = transactions.LongCommit
    transactions.LongCommit = EarlySettlement  # type: ignore[misc]
    try:
        yield
    finally:
        transactions.LongCommit = sound  # type: ignore[misc, assignment]


SUITE = Suite("programs", 60, 10_000, run, planted)
