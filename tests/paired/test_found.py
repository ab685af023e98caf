"""The result of a search for the backlog queues: its error, and whether another attempt may help."""

from __future__ import annotations

import pytest
from azure.core.exceptions import HttpResponseError, ServiceRequestError

from twinbus.paired.backlog import Found
from twinbus.paired.errors import PairingError


def refused(status: int) -> HttpResponseError:
    error = HttpResponseError("no")
    error.status_code = status
    return error


@pytest.mark.parametrize(
    ("errors", "temporary"),
    [
        ([ServiceRequestError("away")], True),
        ([refused(408)], True),
        ([refused(429)], True),
        ([refused(500)], True),
        ([refused(503), ServiceRequestError("away")], True),
        ([refused(401)], False),
        ([refused(409)], False),
        ([refused(499)], False),
        ([ServiceRequestError("away"), refused(403)], False),
    ],
)
def test_with_none_the_reason_is_told(errors: list[Exception], temporary: bool) -> None:
    found = Found()
    found.failures = {f"q{number}": error for number, error in enumerate(errors)}
    with pytest.raises(PairingError, match="in the secondary 'b': 'q0' failed with") as raised:
        found.check("b")
    assert raised.value.temporary is temporary
    assert raised.value.inner_exception is errors[0]


def test_with_some_the_others_are_named() -> None:
    found = Found()
    found.names, found.failures = ["q0", "q2"], {"q1": refused(409)}
    found.check("b")
    assert found.report("b") == (
        "1 of 3 backlog queues could not be found or created in the secondary 'b', and the pair goes on without them: "
        "'q1' (HttpResponseError)"
    )
