"""The unmodified JavaScript client (`@azure/service-bus`, pinned in node/package.json) against a broker.

One Node process runs all scenarios of node/scenarios.js at once and prints their facts; each test judges one of them.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from twinbus.entities.settings import QueueSettings
from twinbus.testing import Broker

FOLDER = Path(__file__).parent / "node"
SCENARIOS_TIMEOUT_S = 240

# What a scenario's queue needs beyond the defaults; the queue is named after the scenario.
QUEUES: dict[str, dict[str, Any]] = {
    "single": {},
    "batch": {},
    "large": {},
    "noMessageId": {},
    "abandon": {},
    "maxDeliveryCount": {},
    "defer": {},
    "deadLetter": {},
    "sessionById": {"requires_session": True},
    "sessionDefer": {"requires_session": True},
    "sessionNext": {"requires_session": True},
    "sessionMissing": {"requires_session": True},
    "sessionLockLost": {"requires_session": True, "lock_duration_ms": 5000},
    "schedule": {},
    "peek": {},
    "receiveAndDelete": {},
    "renew": {"lock_duration_ms": 5000},
    "lockLost": {"lock_duration_ms": 5000},
    "expiry": {"dead_letter_on_expiry": True},
    "duplicates": {"requires_duplicate_detection": True},
    "subscribe": {},
}


@pytest.fixture(scope="module")
def run(node: str) -> Iterator[dict[str, dict[str, Any]]]:
    """Scenario name -> what it printed."""
    queues = [QueueSettings(path=f"node-{name.lower()}", **settings) for name, settings in QUEUES.items()]
    with Broker(namespaces=["contoso"], queues=queues) as broker:
        done = subprocess.run(
            [node, "scenarios.js"],
            cwd=FOLDER,
            env={**os.environ, "TWINBUS_CONNECTION_STRING": broker.connection_string("contoso")},
            capture_output=True,
            text=True,
            timeout=SCENARIOS_TIMEOUT_S,
            check=False,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode != 0:
            pytest.fail(f"Node ended with code {done.returncode}:\n{done.stdout}\n{done.stderr}")
        yield {line["scenario"]: line for line in lines}


def facts(run: dict[str, dict[str, Any]], scenario: str) -> dict[str, Any]:
    line = run[scenario]
    assert "error" not in line, line["error"]
    found: dict[str, Any] = line["facts"]
    return found


def test_a_message_comes_back_as_it_was_sent(run: dict[str, Any]) -> None:
    assert facts(run, "single") == {
        "different": [],
        "ttlKept": True,
        "deliveryCount": 0,
        "sequenceNumber": "1",
        "state": "active",
        "lockSeconds": 60,
        "expirySeconds": 3600,
        "tokenShape": True,
        "left": 0,
    }


def test_batches_keep_their_order(run: dict[str, Any]) -> None:
    assert facts(run, "batch") == {"maxSize": 262144, "ordered": True, "count": 102, "left": 0}


def test_large_messages_pass_and_too_large_ones_are_refused(run: dict[str, Any]) -> None:
    assert facts(run, "large") == {"same": True, "tooLarge": "MessageSizeExceeded"}


def test_a_message_without_an_id_gets_one(run: dict[str, Any]) -> None:
    assert facts(run, "noMessageId") == {"hasId": True, "left": 0}


def test_abandon_counts_and_merges_properties(run: dict[str, Any]) -> None:
    assert facts(run, "abandon") == {"counts": [0, 1], "properties": {"kept": "yes", "seen": "once"}, "left": 0}


def test_ten_failed_deliveries_dead_letter(run: dict[str, Any]) -> None:
    found = facts(run, "maxDeliveryCount")
    assert found["counts"] == list(range(10))
    assert found["left"] == 0
    assert found["reason"] == "MaxDeliveryCountExceeded"
    assert "10 delivery attempts" in found["description"]


def test_defer_and_receive_by_sequence_number(run: dict[str, Any]) -> None:
    assert facts(run, "defer") == {
        "left": 0,
        "body": "a",
        "state": "deferred",
        "properties": {"later": "yes"},
        "gone": "MessageNotFound",
    }


def test_dead_letter_keeps_reason_description_properties_and_number(run: dict[str, Any]) -> None:
    found = facts(run, "deadLetter")
    assert (found["reason"], found["description"], found["peeked"]) == ("bad", "very bad", "bad")
    assert found["properties"]["kept"] == 1
    assert found["properties"]["extra"] == "x"
    assert found["sameNumber"] is True
    assert (found["left"], found["leftDead"]) == (0, 0)


def test_a_session_by_id_is_exclusive_and_has_state(run: dict[str, Any]) -> None:
    assert facts(run, "sessionById") == {
        "id": "a",
        "locked": "SessionCannotBeLocked",
        "bodies": ["a1", "a2"],
        "fresh": None,
        "state": {"step": 1},
        "cleared": None,
        "renewed": True,
        "peeked": ["a1", "a2"],
        "again": "a",
    }


def test_a_deferred_session_message_can_be_dead_lettered(run: dict[str, Any]) -> None:
    assert facts(run, "sessionDefer") == {"state": "deferred", "reason": "late", "sessionId": "a"}


def test_the_next_session_is_waited_for(run: dict[str, Any]) -> None:
    found = facts(run, "sessionNext")
    assert sorted(found["ids"][:2]) == ["x", "y"]
    assert found["ids"][2] == "z"
    assert found["none"] == "ServiceTimeout"
    assert found["waited"] >= 1000


def test_session_queues_refuse_what_has_no_session(run: dict[str, Any]) -> None:
    found = facts(run, "sessionMissing")
    assert "no error" not in found.values()


def test_a_lost_session_lock_is_told(run: dict[str, Any]) -> None:
    assert facts(run, "sessionLockLost") == {"lost": "SessionLockLost", "deliveryCount": 1}


def test_schedule_and_cancel(run: dict[str, Any]) -> None:
    found = facts(run, "schedule")
    assert 0 <= found.pop("lateMs") < 2000
    assert found == {
        "peeked": [["kept", "scheduled"]],
        "early": 0,
        "body": "kept",
        "newNumber": True,
        "enqueuedAfterDue": True,
        "unknown": "MessageNotFound",
        "left": 0,
    }


def test_peek_goes_on_where_it_stopped_and_locks_nothing(run: dict[str, Any]) -> None:
    assert facts(run, "peek") == {
        "first": [0, 1, 2],
        "next": [3, 4],
        "from": [1],
        "nothing": 0,
        "locked": None,
        "received": [0, 1, 2, 3, 4],
    }


def test_receive_and_delete(run: dict[str, Any]) -> None:
    assert facts(run, "receiveAndDelete") == {"bodies": ["a", "b"], "peeked": 0}


def test_a_renewed_lock_outlives_the_first(run: dict[str, Any]) -> None:
    found = facts(run, "renew")
    assert 2500 <= found["gainedMs"] <= 5000
    assert found["left"] == 0


def test_a_lost_message_lock_is_told_and_counted(run: dict[str, Any]) -> None:
    assert facts(run, "lockLost") == {"settle": "MessageLockLost", "renew": "MessageLockLost", "deliveryCount": 1}


def test_expired_messages_are_dead_lettered(run: dict[str, Any]) -> None:
    assert facts(run, "expiry") == {"left": 0, "reason": "TTLExpiredException"}


def test_duplicates_are_dropped(run: dict[str, Any]) -> None:
    assert facts(run, "duplicates") == {"bodies": [1, 3], "left": 0}


def test_subscribe_processes_concurrently_and_completes(run: dict[str, Any]) -> None:
    found = facts(run, "subscribe")
    assert found["count"] == 30
    assert found["errors"] == []
    assert 2 <= found["most"] <= 5
    assert found["left"] == 0


def test_an_unknown_entity_is_not_found(run: dict[str, Any]) -> None:
    assert facts(run, "notFound") == dict.fromkeys(("send", "receive", "peek"), "MessagingEntityNotFound")
