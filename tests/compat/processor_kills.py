"""The .NET client's processors under load while the broker is killed: nothing lost, nothing with two owners.

`python -m tests.compat.processor_kills` runs `ServiceBusProcessor` and `ServiceBusSessionProcessor`, two of each at
once, and prints a line for each kind. The program itself counts (`dotnet/Load.cs`): messages sent and never handled,
messages completed twice, handlers that had the same message or the same session at once, and sessions out of order.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any

from tests.compat.programs import PROGRAMS, lines_of
from tests.compat.served import Served
from tests.compat.test_clients import settings_for

PROGRAM = next(program for program in PROGRAMS if program.name == "dotnet")
PATIENCE_S = 1_200


def run(case: str, count: int, kills: int) -> dict[str, Any]:
    """Run one case; return the program's figures with the kills, or raise."""
    with tempfile.TemporaryDirectory(prefix="twinbus-kills-") as folder:
        broker = Served(Path(folder))
        broker.start()
        broker.trust()
        try:
            settings = {**settings_for(broker, Path(folder)), "COMPAT_COUNT": str(count), "COMPAT_TRANSPORT": "plain"}
            with PROGRAM.start(PROGRAM.built(), [case], settings) as running:
                return _watched(running, broker, count, kills)
        finally:
            broker.kill()


def _watched(running: subprocess.Popen[str], broker: Served, count: int, kills: int) -> dict[str, Any]:
    assert running.stdout is not None
    lines: list[dict[str, Any]] = []
    reader = threading.Thread(target=_read, args=(running.stdout, lines), daemon=True)
    reader.start()
    end = time.monotonic() + PATIENCE_S
    done = 0
    while running.poll() is None:
        if time.monotonic() > end:
            running.kill()
            raise RuntimeError(f"it never ended: {lines[-1:]}")
        received = max((line["received"] for line in lines[-5:] if "received" in line), default=0)
        if done < kills and received >= count * (done + 1) // (kills + 1):
            broker.kill()
            time.sleep(0.5)
            broker.start()
            done += 1
        time.sleep(0.02)
    reader.join(timeout=10)
    figures = next((line for line in lines if "handled" in line), {})
    verdict = next((line for line in lines if "case" in line), {"ok": False, "detail": "it never ended"})
    return {"sent": count, "kills": done, **figures, **verdict}


def _read(out: IO[str], lines: list[dict[str, Any]]) -> None:
    for line in out:
        lines.extend(lines_of(line))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50_000, help="messages of each kind of processor")
    parser.add_argument("--kills", type=int, default=10, help="kills during each")
    parser.add_argument("--cases", nargs="+", default=["processor-kills", "session-kills"])
    given = parser.parse_args()
    failed = 0
    for case in given.cases:
        started = time.monotonic()
        result = run(case, given.count, given.kills)
        print(json.dumps({**result, "seconds": round(time.monotonic() - started)}), flush=True)
        failed += not result["ok"]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
