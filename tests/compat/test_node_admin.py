"""The unmodified JavaScript administration client (`@azure/service-bus`) over HTTPS, against a broker that checks keys.

One Node process runs all scenarios of node/admin.js at once and prints their facts; each test judges one of them.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from twinbus.testing import Broker

FOLDER = Path(__file__).parent / "node"
SCENARIOS_TIMEOUT_S = 240
NEVER = "P10675199DT2H48M5.4775807S"


@pytest.fixture(scope="module")
def run(node: str) -> dict[str, dict[str, Any]]:
    """Scenario name -> what it printed."""
    with Broker(dev=False, sync=False) as broker:
        good = broker.connection_string()
        wrong = ";".join(
            "SharedAccessKey=wrong" if part.startswith("SharedAccessKey=") else part for part in good.split(";")
        )
        done = subprocess.run(
            [node, "admin.js"],
            cwd=FOLDER,
            env={
                **os.environ,
                "TWINBUS_CONNECTION_STRING": good,
                "TWINBUS_WRONG_CONNECTION_STRING": wrong,
                "NODE_EXTRA_CA_CERTS": str(broker.ca_file),
            },
            capture_output=True,
            text=True,
            timeout=SCENARIOS_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            pytest.fail(f"Node ended with code {done.returncode}:\n{done.stdout}\n{done.stderr}")
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return {line["scenario"]: line for line in lines}


def facts(run: dict[str, dict[str, Any]], scenario: str) -> dict[str, Any]:
    line = run[scenario]
    assert "error" not in line, line["error"]
    found: dict[str, Any] = line["facts"]
    return found


def test_queue(run: dict[str, Any]) -> None:
    assert facts(run, "queue") == {
        "name": "js/orders",
        "lockDuration": "PT30S",
        "userMetadata": "<mine & yours>",
        "maxDeliveryCount": 4,
        "status": "SendDisabled",
        "never": NEVER,
        "counts": [0, 0, 0, 0],
        "created": True,
        "exists": [True, False],
    }


def test_keys_are_made_for_rules_without(run: dict[str, Any]) -> None:
    assert facts(run, "keys") == {"keyName": "shop", "rights": ["Send"], "primary": 44, "secondary": 44}


def test_forwarding_with_supplementary_tokens(run: dict[str, Any]) -> None:
    assert facts(run, "forwarding") == {"before": "/js-target", "after": None, "dead": "/js-target"}


def test_pages(run: dict[str, Any]) -> None:
    pages = facts(run, "pages")["pages"]
    assert [name for page in pages for name in page] == [f"js-page{number}" for number in range(5)]
    assert max(len(page) for page in pages) == 2


def test_namespace(run: dict[str, Any]) -> None:
    assert facts(run, "namespace") == {"name": "contoso", "sku": "Standard"}


def test_topic_and_subscriptions(run: dict[str, Any]) -> None:
    found = facts(run, "topic")
    assert found.pop("defaultRule")["sqlExpression"] == "1=1"
    assert found == {
        "topicName": "js/news",
        "subscriptionName": "all",
        "lockDuration": "PT20S",
        "maxDeliveryCount": 9,
        "userMetadata": "mine",
        "ttl": "P1D",
        "subscriptionCount": 2,
        "counts": [0, 0, 0],
        "subscriptions": ["all", "some"],
        "firstRule": "colour = 'red'",
        "exists": [True, False],
        "left": 1,
    }


def test_rules(run: dict[str, Any]) -> None:
    found = facts(run, "rules")
    properties = found["correlation"]["properties"]
    assert found["correlation"]["id"] == "c"
    assert {name: properties[name] for name in ("text", "number", "yes")} == {"text": "é", "number": 1.5, "yes": True}
    assert found["when"]
    assert found["sql"] == ["a > @p", 5, "SET b = 1"]
    assert found["names"] == ["$Default", "correlation", "sql"]
    assert found["exists"] == [True, False]


def test_refusals(run: dict[str, Any]) -> None:
    assert facts(run, "refusals") == {
        "exists": "MessageEntityAlreadyExistsError 409",
        "topicThere": "MessageEntityAlreadyExistsError 409",
        # The service, too, answers with an empty feed, which this client reports with the feed's status.
        "missing": "MessageEntityNotFoundError 200",
        "deleteMissing": "MessageEntityNotFoundError 404",
        "updateMissing": "MessageEntityNotFoundError 404",
        "value": "ServiceError 400",
        "subscription": "MessageEntityNotFoundError 404",
        "stranger": "UnauthorizedRequestError 401",
    }
