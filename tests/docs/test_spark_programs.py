"""The Spark programs of the pages run, all in one session, each page against a broker of its own."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, blocks, name
from tests.docs.programs import missing, notebook
from tests.docs.setting import Setting, scene, setting_of
from twinbus.client import BusClient, Message
from twinbus.entities.settings import QueueSettings

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


@pytest.mark.timeout(180)
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
            [sys.executable, Path(__file__).parent / "spark_shell.py", tmp_path / "jobs.json"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr[-2_000:]
    # What a page's programs write with a relative path is in the page's own folder.
    assert not [path.name for path in tmp_path.iterdir() if path.name not in ("jobs.json", *map(str, range(len(jobs))))]


def test_programs_that_go_on_from_each_other_are_found() -> None:
    first = "df = spark.read.format('servicebus').load()\n"
    assert missing(first) == {"spark"}
    assert notebook(["x = nobody\n", first, "df.show()\n", "print(1)\n"]) == [first, "df.show()\n"]
