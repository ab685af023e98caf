"""Dapr's component for Service Bus queues, the one its sidecar runs, publishes and subscribes."""

from __future__ import annotations

import pytest
from tests.compat.programs import Program

from twinbus.testing import Broker

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1_800), pytest.mark.xdist_group("clients")]

DAPR = Program(
    "dapr",
    "Dapr 1.16 (components-contrib)",
    ("go",),
    (("go", "build", "-o", "dapr", "."),),
    ("./dapr",),
    {},
)


def test_the_component_publishes_and_subscribes() -> None:
    built = DAPR.ready()
    with Broker(queues=["orders"]) as broker:
        running = DAPR.start(built, [], {"COMPAT_PLAIN": broker.connection_string()})
        out, err = running.communicate(timeout=90)
    assert running.returncode == 0, out[-3000:] + err[-3000:]
    received = sorted(line for line in out.splitlines() if line.startswith("received"))
    assert received == [f"received order {number}" for number in (1, 2, 3)]
