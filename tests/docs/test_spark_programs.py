"""The Spark programs of the pages run, all in one session, each page against a broker of its own."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from tests.docs import spark_shell
from tests.docs.pages import PAGES, blocks, name
from tests.docs.programs import missing, notebook
from tests.docs.setting import Setting, scene, setting_of
from twinbus.client import BusClient, Message
from twinbus.entities.settings import QueueSettings

# For all pages together. It is there for what hangs: a busy machine has taken 85 s, an idle one 26.
LIMIT_S = 480
_CHECKPOINT = re.compile(r"""(checkpointLocation["']?\s*[,=]\s*["'])(?!/)""")


async def fill(connection_string: str, setting: Setting) -> None:
    """Messages for the programs to read, in every entity of the first namespace."""
    paths = [each if isinstance(each, str) else each.path for each in setting.queues if not _sessions(each)]
    async with BusClient.from_connection_string(connection_string) as client:
        for path in [*paths, *setting.topics]:
            sender = await client.sender(path)
            await sender.send_many([Message(b'{"amount": 7}', message_id=f"{path}-{number}") for number in range(3)])


def _sessions(queue: str | QueueSettings) -> bool:
    return not isinstance(queue, str) and queue.requires_session


def spark_programs(page: Path) -> list[str]:
    found = [each for each in blocks(page.read_text()) if each.language == "python" and each.not_run is None]
    return notebook([block.text for block in found])


@pytest.mark.timeout(LIMIT_S + 120)
def test_the_spark_programs_of_all_pages_run(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: the Spark programs cannot be run")
    with_programs = {page: programs for page in PAGES if (programs := spark_programs(page))}
    assert with_programs
    jobs = []
    with ExitStack() as stack:
        for number, (page, programs) in enumerate(with_programs.items()):
            folder = tmp_path / str(number)
            folder.mkdir()
            here = stack.enter_context(scene(name(page), folder, []))
            asyncio.run(fill(here.broker.connection_string("contoso"), setting_of(name(page))))
            names = {
                "connection_string": here.broker.connection_string("contoso"),
                "primary": here.broker.connection_string("contoso"),
                "secondary": here.broker.connection_string("fabrikam"),
            }
            # A checkpoint with a relative path is made where the JVM was started, which is one for all pages.
            sources = [_CHECKPOINT.sub(rf"\g<1>{folder}/", here.here(program)) for program in programs]
            jobs.append({"page": name(page), "folder": str(folder), "names": names, "sources": sources})
        (tmp_path / "jobs.json").write_text(json.dumps(jobs))
        done = subprocess.run(
            [sys.executable, Path(__file__).parent / "spark_shell.py", tmp_path / "jobs.json", str(LIMIT_S)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LIMIT_S + 60,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr[-4_000:]
    # What a page's programs write with a relative path is in the page's own folder.
    assert not [path.name for path in tmp_path.iterdir() if path.name not in ("jobs.json", *map(str, range(len(jobs))))]


def test_programs_that_go_on_from_each_other_are_found() -> None:
    first = "df = spark.read.format('servicebus').load()\n"
    assert missing(first) == {"spark"}
    assert notebook(["x = nobody\n", first, "df.show()\n", "print(1)\n"]) == [first, "df.show()\n"]


class Moved(NamedTuple):
    numInputRows: int


@dataclass
class Query:
    """A stream as the shell looks at it: what it has moved by each look, the last of which stays."""

    looks: list[list[Moved]]
    isActive: bool = True
    error: Exception | None = None
    name: str = "orders"
    status: str = "getting offsets"
    lastProgress: None = None

    @property
    def recentProgress(self) -> list[Moved]:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def exception(self) -> Exception | None:
        return self.error


def waited(query: Query, seconds: float) -> None:
    spark_shell.wait_for_rows(cast(Any, query), time.monotonic() + seconds)


def test_a_stream_is_waited_for_until_it_has_moved_a_row() -> None:
    query = Query([[], [Moved(0)], [Moved(0), Moved(3)]])
    waited(query, 60)
    assert query.looks == [[Moved(0), Moved(3)]]


def test_a_stream_that_moves_nothing_says_what_it_was_doing() -> None:
    with pytest.raises(TimeoutError, match="orders has moved nothing: getting offsets"):
        waited(Query([[Moved(0)]]), 0)


def test_a_stream_that_has_ended_is_not_waited_for() -> None:
    with pytest.raises(TimeoutError, match="orders has moved nothing"):
        waited(Query([[]], isActive=False), 60)
    with pytest.raises(RuntimeError, match="the queue is gone"):
        waited(Query([[]], isActive=False, error=RuntimeError("the queue is gone")), 60)
