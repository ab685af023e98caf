"""The demonstration as it is shipped: real processes, a real kill, Spark for the syphon and the report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.docs.made import made

TWINBUS = (sys.executable, "-m", "twinbus")


def children(pid: int) -> list[int]:
    """Processes that a process has started and that still run."""
    found = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(each) for each in found.read_text().split()] if found.exists() else []


@pytest.mark.timeout(300)
def test_nothing_is_lost_and_the_report_is_written(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    arguments = f"--json --seed 7 --rate 40 --outage 6 --report {report}"
    done = made("make demo", f"ARGS={arguments}", timeout_s=290)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["lost"] == told["raised"] == 0
    assert min(told["diverted"].values()) > 0
    # A send to the backlog whose answer was late is made again: there may be more, never fewer.
    assert told["syphoned"] >= sum(told["diverted"].values())
    for place, balance in told["places"].items():
        assert balance["received"] >= balance["sent"] == told["sent"][place.partition("/")[0]]
    assert "messages" in told["sentence"]
    page = report.read_text()
    assert "<svg" in page
    assert "orders" in page


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are looked up in /proc")
def test_told_to_stop_it_takes_its_processes_with_it() -> None:
    process = subprocess.Popen(
        [*TWINBUS, "demo", "--engine", "local", "--no-report"], stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "all is well" in line:
            break
    started = children(process.pid)
    assert len(started) == 2
    process.send_signal(signal.SIGTERM)
    process.stdout.close()
    assert process.wait(40) == 1
    deadline = time.monotonic() + 120
    while any(Path(f"/proc/{pid}").exists() for pid in started) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["--engine", "magic"], "--engine 'magic'"), (["--keep", "."], "is not empty: --keep takes a new folder")],
)
def test_what_cannot_be_is_refused_at_once(arguments: list[str], says: str) -> None:
    done = subprocess.run([*TWINBUS, "demo", *arguments], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 2
    assert says in done.stderr
