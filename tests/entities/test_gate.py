from __future__ import annotations

import pytest

from twinbus.entities.gate import Gate
from twinbus.errors import EntityDisabledError, EntityNotFoundError, NotAllowedError


@pytest.mark.parametrize(
    ("status", "sends", "receives"),
    [
        ("Active", True, True),
        ("SendDisabled", False, True),
        ("ReceiveDisabled", True, False),
        ("Disabled", False, False),
    ],
)
def test_the_status_opens_each_side(status: str, sends: bool, receives: bool) -> None:
    gate = Gate("q")
    gate.set_status(status)
    assert (gate.sendable, gate.receivable) == (sends, receives)
    for check, allowed in (
        (gate.check_sendable, sends),
        (gate.check_open, sends),
        (gate.check_receivable, receives),
    ):
        if allowed:
            check()
        else:
            with pytest.raises(EntityDisabledError, match="'q' is currently disabled"):
                check()


def test_what_has_no_senders_still_takes_messages_of_other_entities() -> None:
    gate = Gate("q")
    gate.close_to_senders("not here")
    gate.set_status("Active")
    assert not gate.sendable
    gate.check_open()
    with pytest.raises(NotAllowedError, match="not here"):
        gate.check_sendable()


def test_nothing_goes_through_once_it_is_deleted() -> None:
    gate = Gate("q", "not here")
    gate.close()
    gate.set_status("Active")
    assert (gate.sendable, gate.receivable) == (False, False)
    for check in (gate.check_sendable, gate.check_open, gate.check_receivable):
        with pytest.raises(EntityNotFoundError):
            check()
