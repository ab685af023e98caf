"""Every example runs, as its own process, against a real broker, and says what it should."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.database import postgresql, programs
from twinbus.entities.settings import QueueSettings
from twinbus.testing import Broker

EXAMPLES = Path(__file__).parent.parent / "examples"

# What each prints, in part.
SAYS = {
    "send_and_receive.py": ["sent 5 orders", "5: order 4"],
    "sessions.py": ["ann ['item 1', 'item 2']", "bob ['item 1', 'item 2']"],
    "topics.py": ["large ['payment of 150', 'payment of 250']"],
    "bulk.py": ["sent 10000 at", "received and completed 10000 at"],
    "spark_read.py": ["shop A sold 14850", "sent 3 sums"],
    "spark_stream.py": ["moved 2000 orders in batches of 1000, 0 left"],
    "spark_state.py": ["baskets: [('ann', 4), ('bob', 2)]", "baskets: [('ann', 8), ('bob', 4)]"],
    "spark_database.py": ["batch 0: 300 sales", "batch 0 is there already", "sold 300 orders for 1683000 cents"],
}


def test_no_example_is_forgotten() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*SAYS, "test_orders.py"}


@pytest.mark.timeout(150)
@pytest.mark.parametrize("name", SAYS)
def test_example(name: str) -> None:
    queues = ["orders", "bulk", QueueSettings(path="baskets", requires_session=True)]
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(queues=queues))
        environment = {
            **os.environ,
            "TWINBUS_CONNECTION_STRING": broker.connection_string(),
            "TWINBUS_CA": str(broker.ca_file),
        }
        if name == "spark_database.py":
            if programs() is None:
                pytest.skip("PostgreSQL is not installed")
            environment["DATABASE"] = stack.enter_context(postgresql())
        # Those with Spark start a JVM first.
        limit_s = 140 if name.startswith("spark") else 50
        done = subprocess.run(
            [sys.executable, EXAMPLES / name],
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    for text in SAYS[name]:
        assert text in done.stdout


def test_example_of_a_test() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", EXAMPLES / "test_orders.py"],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout
