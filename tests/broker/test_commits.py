"""Commands written in one commit: after a kill and after a restart, the last command for each thing counts."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.broker.order_tale import Tale, held, opened
from twinbus.auth.policies import Right
from twinbus.broker import commits
from twinbus.entities.settings import QueueSettings

ROOT = Path(__file__).parents[2]


def reopened(folder: Path) -> dict[str, Any]:
    async def look() -> dict[str, Any]:
        host = opened(folder)
        host.start()
        found = held(host)
        await host.stop()
        return found

    return json.loads(json.dumps(asyncio.run(look())))


async def test_a_policy_deleted_and_set_in_one_commit_is_there_after_a_restart(tmp_path: Path) -> None:
    host = opened(tmp_path)
    host.start()
    host.create_queue(QueueSettings(path="orders"))
    host.keyring.set("orders", "shop", frozenset({Right.SEND}), 1)
    await host.commits.drain()
    host.keyring.delete("orders", "shop")
    made = host.keyring.set("orders", "shop", frozenset({Right.LISTEN}), 2)
    await host.stop()
    again = opened(tmp_path)
    assert again.policies.scoped("orders") == [made]
    again.store.close()


async def test_a_queue_replaced_with_policies_in_one_commit_has_them_after_a_restart(tmp_path: Path) -> None:
    host = opened(tmp_path)
    host.start()
    host.create_queue(QueueSettings(path="orders"))
    await host.commits.drain()
    host.delete_queue("orders")
    host.create_queue(QueueSettings(path="orders"))
    made = host.keyring.set("orders", "shop", frozenset({Right.SEND}), 1)
    await host.stop()
    again = opened(tmp_path)
    assert again.policies.scoped("orders") == [made]
    again.store.close()


@pytest.mark.parametrize("seed", range(12))
async def test_what_random_commands_leave_is_there_after_a_restart(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    expected: dict[str, Any] = {}
    for _ in range(6):
        host = opened(tmp_path)
        host.start()
        if expected:
            assert held(host) == expected
        tale = Tale(host, chance)
        for _ in range(chance.randrange(1, 12)):
            await tale.commit()
        expected = held(host)
        await host.stop()


@pytest.mark.parametrize("seed", range(3))
def test_what_random_commands_leave_is_there_after_kill_9(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for kill in range(4):
        arguments = [sys.executable, "-m", "tests.broker.order_tale", str(tmp_path), str(100 * seed + kill)]
        with subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, bufsize=1
        ) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            last = child.stdout.readline()
            for _ in range(chance.randrange(30)):
                child.stdin.write("\n")
                last = child.stdout.readline()
            child.kill()
        assert child.returncode == -9
        assert reopened(tmp_path) == json.loads(last)


async def test_slow_commits_are_logged_a_line_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(commits, "SLOW_COMMIT_MS", 0)
    host = opened(tmp_path)
    host.start()
    for name in ("a", "b", "c"):
        host.create_queue(QueueSettings(path=name))
        await host.commits.drain()
    await host.stop()
    assert len([record for record in caplog.records if "the disk is slow or busy" in record.getMessage()]) == 1
