"""A run accepts only the next delivery of the same commit."""

from __future__ import annotations

from twinbus.broker.links.delivery_run import DeliveryRun
from twinbus.store.facts import Facts


def test_it_grows_by_consecutive_ids_of_the_same_facts() -> None:
    facts = Facts()
    run = DeliveryRun(facts, 5)
    assert run.takes(facts, 6)
    assert run.takes(facts, 7)
    assert (run.first, run.last) == (5, 7)


def test_it_takes_no_gap_no_repetition_and_no_other_facts() -> None:
    facts = Facts()
    run = DeliveryRun(facts, 5)
    assert not run.takes(facts, 7)
    assert not run.takes(facts, 5)
    assert not run.takes(Facts(), 6)
    run.facts = None
    assert not run.takes(facts, 6)
    assert (run.first, run.last) == (5, 5)
