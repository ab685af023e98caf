"""What happens to a backlog message, case by case."""

from __future__ import annotations

import pytest

from twinbus import errors
from twinbus.errors import EncodeError, EnvelopeError, ServiceError, TwinbusError
from twinbus.limits import DEAD_LETTER_TEXT_CHARS_MAX
from twinbus.paired.syphon.decisions import FOR_GOOD, Decision, Fate, check_destination, decide

LEFT = {
    "LinkDetachedError",
    "ConnectionForcedError",
    "InternalError",
    "OperationTimeoutError",
    "ServerBusyError",
    "QuotaExceededError",
    "UnauthorizedError",
}


def test_accepted() -> None:
    assert decide(None, "orders") == Decision(Fate.COMPLETE)


@pytest.mark.parametrize("name", sorted(LEFT))
def test_what_may_pass_is_left(name: str) -> None:
    kind: type[ServiceError] = getattr(errors, name)
    decision = decide(kind("no"), "orders")
    assert decision.fate is Fate.LEAVE
    assert decision.cause == kind.condition
    # Only a lost connection affects every destination.
    assert decision.everywhere is (name == "ConnectionForcedError")


@pytest.mark.parametrize("kind", list(FOR_GOOD), ids=lambda kind: kind.__name__)
def test_what_does_not_pass_is_dead_lettered(kind: type[TwinbusError]) -> None:
    decision = decide(kind("because"), "orders")
    assert decision.fate is Fate.DEAD_LETTER
    assert decision.reason == FOR_GOOD[kind]
    assert "orders" in decision.description
    assert "because" in decision.description
    assert decision.cause in decision.description


def test_every_error_has_a_fate() -> None:
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, ServiceError)]
    fates = {kind: decide(kind("x"), "orders").fate for kind in kinds}
    assert set(fates.values()) == {Fate.DEAD_LETTER, Fate.LEAVE}
    assert {kind for kind, fate in fates.items() if fate is Fate.DEAD_LETTER} == set(FOR_GOOD) - {
        EnvelopeError,
        EncodeError,
    }


def test_texts_are_bounded_and_a_path_may_be_missing() -> None:
    decision = decide(EnvelopeError("x" * 10_000))
    assert len(decision.description) == DEAD_LETTER_TEXT_CHARS_MAX
    assert decision.description.startswith("(no path): EnvelopeError: ")


@pytest.mark.parametrize("path", ["$management", "$cbs", "orders/$management", "orders/$DeadLetterQueue", "/$cbs"])
def test_the_services_own_nodes_are_no_destinations(path: str) -> None:
    with pytest.raises(EnvelopeError, match="not an entity"):
        check_destination(path)


def test_entities_are_destinations() -> None:
    for path in ("orders", "a/b/c", "price-in-$", "topic"):
        check_destination(path)
        with pytest.raises(EnvelopeError):
            check_destination(f"{path}/$management")
