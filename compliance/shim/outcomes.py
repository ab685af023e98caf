"""pytest plugin: writes what each test did as one JSON line to the file named by TWINBUS_OUTCOMES.

An expected failure (xfail) of the SDK's own counts as skipped: upstream says it may go either way.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest


class Outcomes:
    """Collects the phases of each test; the worst phase is its result."""

    def __init__(self, path: Path) -> None:
        # The file appended to, one line when a test is over.
        self.path = path
        # Tests under way: id -> (result, seconds, detail).
        self.running: dict[str, tuple[str, float, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        result, seconds, detail = self.running.get(report.nodeid, ("passed", 0.0, ""))
        seconds += report.duration
        if report.failed:
            result, detail = "failed", str(report.longrepr)
        elif report.skipped and result == "passed":
            result, detail = "skipped", str(getattr(report, "wasxfail", "") or report.longrepr)
        self.running[report.nodeid] = (result, seconds, detail)
        if report.when == "teardown":
            del self.running[report.nodeid]
            line = {"test": report.nodeid, "result": result, "seconds": seconds, "detail": detail}
            with self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    # Only the controlling process writes: the workers' reports reach it.
    if not hasattr(config, "workerinput") and "TWINBUS_OUTCOMES" in os.environ:
        config.pluginmanager.register(Outcomes(Path(os.environ["TWINBUS_OUTCOMES"])))
