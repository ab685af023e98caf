"""A commit loop over a real store, and a disk that can hold its commits back."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from twinbus.broker.commits import CommitLoop
from twinbus.store.facts import Table
from twinbus.store.lmdb_store import Prepared, Store


class Disk:
    """Holds commits back until it is free, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = threading.Event()
        self.free.set()
        # Names of the threads that committed.
        self.threads: list[str] = []
        commit = Prepared.commit

        def held(prepared: Prepared) -> None:
            self.threads.append(threading.current_thread().name)
            self.free.wait(120)
            commit(prepared)

        monkeypatch.setattr(Prepared, "commit", held)


@asynccontextmanager
async def commit_loop(folder: Path) -> AsyncIterator[CommitLoop]:
    with Store.open(folder, sync=False) as store:
        made = CommitLoop(store, "test", lambda error: None)
        made.start()
        yield made
        await made.stop()


def put(loop: CommitLoop, answers: list[int], number: int) -> None:
    loop.facts.rows[Table.META, b"%d" % number] = b"x"
    loop.facts.then.append((answers.append, number))
    loop.request()
