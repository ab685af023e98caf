"""What the program needs to start and to run: CPU time and memory, which do not depend on other load."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

# Limits: one CPU second until ready, and 80 MiB while idle.
READY_CPU_S = 1.0
IDLE_MIB = 80
HELP_CPU_S = 1.0

_PROGRAM = "from twinbus.cli.main import run; run()"


def test_the_broker_is_ready_soon_and_small_while_idle(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    arguments = ["serve", "--data", str(tmp_path / "data"), "--namespace", "contoso", "--ready-file", str(ready)]
    child = subprocess.Popen([sys.executable, "-c", _PROGRAM, *arguments], stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 40
        while not ready.exists():
            assert child.poll() is None
            assert time.monotonic() < end
            time.sleep(0.005)
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        # Certificates are created in the background; their memory counts too.
        while not (tmp_path / "data" / "server.pem").exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{child.pid}/status").read_text())
    finally:
        child.kill()
        child.wait()
    assert peak is not None
    assert cpu_s < READY_CPU_S
    assert int(peak[1]) / 1024 < IDLE_MIB


def test_help_is_there_at_once() -> None:
    before = os.times()
    subprocess.run([sys.executable, "-c", _PROGRAM, "--help"], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    assert cpu_s < HELP_CPU_S
