"""A Spring application (Spring Cloud Azure) sends with its template and receives with its listener."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.compat.programs import Program

from twinbus.testing import Broker

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1_800), pytest.mark.xdist_group("clients")]

SPRING = Program(
    "spring",
    "Spring Cloud Azure 5.22.0",
    ("mvn", "java"),
    (("mvn", "-q", "-B", "package", "dependency:copy-dependencies"),),
    ("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", "target/classes:target/dependency/*", "app.Main"),
    {},
)


def test_an_application_sends_and_listens(tmp_path: Path) -> None:
    built = SPRING.ready()
    with Broker(queues=["orders"]) as broker:
        settings = {
            "SPRING_CLOUD_AZURE_SERVICEBUS_CONNECTIONSTRING": broker.connection_string(),
            "SPRING_CLOUD_AZURE_SERVICEBUS_ENTITYTYPE": "queue",
        }
        running = SPRING.start(built, [], settings)
        out, err = running.communicate(timeout=120)
    assert running.returncode == 0, out[-3000:] + err[-3000:]
    assert sorted(line for line in out.splitlines() if line.startswith("received")) == [
        f"received order {number}" for number in (1, 2, 3)
    ]
