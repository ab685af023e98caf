"""Entities with an injected clock, driven by random commands, commits and crashes, and compared with naive models.

Promise: the queue, with and without sessions, the topic with its subscriptions and transactions over all of them do
what their models in `tests/sim` do, step by step: schedules, deferral, dead letters, duplicates, expiry, set clocks,
forwarding, rules, rollbacks. The same seed gives the same trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import HealthCheck, Phase, core, settings
from hypothesis.errors import HypothesisException
from hypothesis.stateful import run_state_machine_as_test

from tests.proof.suite import Budget, Suite
from twinbus.broker.links.transactions import Transaction
from twinbus.entities.queue import Queue
from twinbus.store.facts import Facts

TESTS = Path(__file__).parent.parent
STEPS = 60
REPEATED = 20


def _machines() -> tuple[list[type], object]:
    import test_queue_model
    import test_topic_model

    machines = [test_queue_model.QueueMachine, test_queue_model.SessionQueueMachine, test_topic_model.TopicMachine]
    return machines, test_queue_model.walk


def run(budget: Budget) -> str:
    """Drive queues and sessions with an injected clock and compare their models; the same seed gives the same trace."""
    machines, walk = _machines()
    repeated = 0
    for chance in budget:
        seed = chance.getrandbits(48)
        machine = machines[budget.tried % 2]
        digest = walk(machine, seed, STEPS)
        if budget.tried % REPEATED == 1:
            assert walk(machine, seed, STEPS) == digest, f"seed {seed} gives another trace the second time"
            repeated += 1
    return f"{budget.tried:,} walks of {STEPS} steps, {repeated:,} repeated with the same trace, no difference"


def run_models(budget: Budget) -> str:
    """Let hypothesis look for commands after which queue, sessions or topic differ from their models."""
    return _explore(_machines()[0], budget)


def run_transactions(budget: Budget) -> str:
    """Let hypothesis look for commands after which transactions over several entities differ from their model."""
    from transaction_machine import TransactionMachine

    return _explore([TransactionMachine], budget)


def _explore(machines: list[type], budget: Budget) -> str:
    core.global_force_seed = budget.seed
    try:
        each = max(budget.count // len(machines), 1)
        profile = settings(
            max_examples=each,
            stateful_step_count=60,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            # Shrinking takes minutes; the seed repeats the failure.
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )
        for machine in machines:
            try:
                run_state_machine_as_test(machine, settings=profile)  # type: ignore[no-untyped-call]
            except HypothesisException as error:
                raise AssertionError(f"{machine.__name__} differs from its model: {error}") from error
    finally:
        core.global_force_seed = None
    budget.tried = budget.count
    of = f" for each of {len(machines)} models" if len(machines) > 1 else ""
    return f"{each:,} programs{of}, no difference"


@contextmanager
def planted() -> Iterator[None]:
    """Every other completion is forgotten."""
    sound = Queue.complete

    def forgetful(self: Queue, token: bytes, now_ms: int, facts: object) -> None:
        # Tokens are counted, so that the same command is forgotten each time.
        if int.from_bytes(token, "big") % 2:
            sound(self, token, now_ms, facts)
        else:
            self.release(token, now_ms, facts)

    Queue.complete = forgetful
    try:
        yield
    finally:
        Queue.complete = sound


@contextmanager
def planted_in_transactions() -> Iterator[None]:
    """A commit forgets the last entity that was sent to, and a rollback forgets what its receiver has forgotten."""
    commit, roll_back = Transaction.commit, Transaction.roll_back

    def forgetful(self: Transaction, now_ms: int, steady_ms: int, facts: Facts) -> None:
        if self._sends:
            self._sends.popitem()
        commit(self, now_ms, steady_ms, facts)

    Transaction.commit = forgetful
    Transaction.roll_back = lambda self, now_ms, facts: None
    try:
        yield
    finally:
        Transaction.commit, Transaction.roll_back = commit, roll_back


SUITE = Suite("seeds", 300, 20_000, run, planted)
MODELS = Suite("programs", 60, 6_000, run_models, planted)
TRANSACTIONS = Suite("programs", 20, 6_000, run_transactions, planted_in_transactions)
