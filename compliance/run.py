"""Runs the official Python SDK's own live tests against a broker of ours: `make compliance`.

Starts brokers as child processes: one in development mode, one that checks keys for the tests of credentials, and one
for the tests of administration, which empty the namespace.
Prints passed, failed and skipped by file, writes the whole run as JSON, and compares it with deviations.toml.
Exit code 0: nothing unexpected. 1: a failure that is not listed, a listed one that passes, or trouble in the broker.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from pathlib import Path

import sdist
import verdict
from service import Service

HERE = Path(__file__).resolve().parent
README = HERE.parent / "README.md"
README_MARK = "<!-- compliance -->"
README_END = "<!-- /compliance -->"
FILES = [
    "test_queues.py",
    "test_sessions.py",
    "test_sb_client.py",
    "test_message.py",
    "test_list_sessions.py",
    "test_topic.py",
    "test_subscriptions.py",
    "async_tests/test_queues_async.py",
    "async_tests/test_sessions_async.py",
    "async_tests/test_sb_client_async.py",
    "async_tests/test_list_sessions_async.py",
    "async_tests/test_topic_async.py",
    "async_tests/test_subscriptions_async.py",
]
# These test wrong, expired and limited keys, so the broker must look at them.
KEY_FILES = {"test_sb_client.py", "async_tests/test_sb_client_async.py"}
# These empty the whole namespace before they start, so they have one for themselves and go one by one.
ADMIN_FILES = [
    "mgmt_tests/test_mgmt_dictmixin.py",
    "mgmt_tests/test_mgmt_namespaces.py",
    "mgmt_tests/test_mgmt_queues.py",
    "mgmt_tests/test_mgmt_rules.py",
    "mgmt_tests/test_mgmt_subscriptions.py",
    "mgmt_tests/test_mgmt_topics.py",
    "mgmt_tests/test_topic_filter_counts.py",
    "mgmt_tests/test_topic_filter_counts_live.py",
    "mgmt_tests/async/test_mgmt_namespaces_async.py",
    "mgmt_tests/async/test_mgmt_queues_async.py",
    "mgmt_tests/async/test_mgmt_rules_async.py",
    "mgmt_tests/async/test_mgmt_subscriptions_async.py",
    "mgmt_tests/async/test_mgmt_topics_async.py",
]
# A test that hangs is a failure; the longest of the long ones waits ten minutes.
TEST_TIMEOUT_S = {"quick": 150, "long": 900}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--profile", choices=["quick", "long"], default="quick", help="long adds tests that wait minutes"
    )
    parser.add_argument(
        "--file", action="append", choices=[*FILES, *ADMIN_FILES], metavar="FILE", help="only this file (repeatable)"
    )
    parser.add_argument("-k", dest="expression", help="only tests matching this pytest expression")
    parser.add_argument("--workers", type=int, default=16, help="tests at once; they mostly wait (default 16)")
    parser.add_argument("--json", type=Path, default=sdist.CACHE / "results.json", help="where the run is written")
    parser.add_argument("--verbose", action="store_true", help="show the tests' own output")
    return parser.parse_args()


class Suite:
    """pytest in the SDK's test folder, with the shim loaded."""

    def __init__(self, service: Service, *, verbose: bool) -> None:
        # The folder the tests are run in, as upstream does.
        self.tests = sdist.tests_folder()
        # Whether pytest's own output is shown; it is in the log file either way.
        self.verbose = verbose
        # pytest must not read a configuration of the sdist's or of ours.
        self.configuration = Path(service.folder.name) / "pytest.ini"
        self.configuration.write_text("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
        parts = dict(part.split("=", 1) for part in service.connection_string.split(";") if "=" in part)
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                str(path) for path in (HERE / "shim", self.tests, self.tests / "async_tests")
            ),
            "TWINBUS_ENDPOINT": service.endpoint,
            "TWINBUS_CA": str(service.ca_file),
            "TWINBUS_KEY_NAME": parts["SharedAccessKeyName"],
            "TWINBUS_KEY": parts["SharedAccessKey"],
            "TWINBUS_POLICIES": json.dumps(service.policies),
            "TWINBUS_CREDENTIAL": "token" if service.dev else "key",
        }

    def command(self, *options: str) -> list[str]:
        base = [str(sdist.python()), "-W", "ignore", "-m", "pytest", "-c", str(self.configuration)]
        plugins = ["-p", "twinbus_shim", "-p", "outcomes", "-p", "no:cacheprovider"]
        return [*base, "--rootdir", str(self.tests), *plugins, *options]

    def collect(self, files: list[str], expression: str | None) -> list[str]:
        """Ids of the tests in these files, those matching the expression if there is one."""
        options = ["--collect-only", "-q", *(["-k", expression] if expression else []), *files]
        done = subprocess.run(
            self.command(*options), cwd=self.tests, env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode not in (0, 5):  # 5: nothing matches
            raise RuntimeError(f"The tests could not be collected:\n{done.stdout[-4000:]}\n{done.stderr}")
        return [line for line in done.stdout.splitlines() if "::" in line and not line.startswith(" ")]

    def run(self, tests: list[str], *, workers: int, timeout_s: int) -> list[verdict.Outcome]:
        with tempfile.TemporaryDirectory() as folder:
            chosen, outcomes = Path(folder) / "tests.txt", Path(folder) / "outcomes.jsonl"
            chosen.write_text("\n".join(tests))
            outcomes.touch()
            options = ["-q", "--timeout", str(timeout_s), "-n", str(min(workers, len(tests))), "--dist", "worksteal"]
            with (sdist.CACHE / "pytest.log").open("a") as log:
                subprocess.run(
                    self.command(*options, f"@{chosen}"),
                    cwd=self.tests,
                    env={**self.environment, "TWINBUS_OUTCOMES": str(outcomes)},
                    stdout=None if self.verbose else log,
                    stderr=None if self.verbose else subprocess.STDOUT,
                    check=False,
                )
            ended = [verdict.Outcome(**json.loads(line)) for line in outcomes.read_text().splitlines()]
        missing = set(tests) - {one.test for one in ended}
        # A worker that dies takes its test's report along; that is a failure like any other.
        return ended + [verdict.Outcome(test, verdict.FAILED, 0.0, "no report: it crashed or hung") for test in missing]


def name_of(test: str) -> str:
    """The test's function name, without file, class and parameters."""
    return test.rpartition("::")[2].partition("[")[0]


def show(result: verdict.Verdict, outcomes: list[verdict.Outcome], seconds: float) -> None:
    width = max((len(name) for name in result.files), default=10)
    print(f"\n{'file':<{width}}  passed  failed  skipped")
    for name, counts in [*sorted(result.files.items()), ("total", sum(result.files.values(), Counter()))]:
        row = "  ".join(f"{counts[kind]:>{len(kind)}}" for kind in (verdict.PASSED, verdict.FAILED, verdict.SKIPPED))
        print(f"{name:<{width}}  {row}")
    print(f"{len(outcomes)} tests in {seconds:.0f} s")
    for outcome, reason in result.known:
        print(f"\nknown deviation: {outcome.test}\n    {reason}")
    for outcome in result.unexpected:
        last = [line for line in outcome.detail.splitlines() if line.startswith("E ")] or outcome.detail.splitlines()
        print(f"\nFAILED {outcome.test}\n    " + "\n    ".join(last[-3:]))
    for test in result.stale:
        print(f"\nLISTED AS A DEVIATION BUT PASSES: {test}")
    for test in result.unknown:
        print(f"\nLISTED AS A DEVIATION BUT DOES NOT EXIST: {test}")


def tell_readme(outcomes: list[verdict.Outcome]) -> None:
    """Put the sum of a whole run into the README, between its two marks."""
    counts = Counter(outcome.result for outcome in outcomes)
    ran = counts["passed"] + counts["failed"]
    text = README.read_text()
    before, mark, rest = text.partition(README_MARK)
    _, end, after = rest.partition(README_END)
    if not (mark and end):
        raise SystemExit(f"{README.name} has lost its marks {README_MARK} and {README_END}.")
    line = f"**{counts['passed']} of {ran} official SDK tests pass** ({counts['skipped']} more skip themselves)"
    README.write_text(before + mark + line + end + after)


def main() -> int:
    options = arguments()
    sdist.tests_folder()
    sdist.CACHE.mkdir(exist_ok=True)
    (sdist.CACHE / "pytest.log").write_text("")
    slow = set(tomllib.loads((HERE / "profiles.toml").read_text())["long"]["tests"])
    outcomes: list[verdict.Outcome] = []
    existing: set[str] = set()
    troubles: list[str] = []
    started = time.monotonic()
    rounds = [
        ("dev", [file for file in FILES if file not in KEY_FILES], options.workers),
        ("keys", [file for file in FILES if file in KEY_FILES], options.workers),
        ("admin", ADMIN_FILES, 1),
    ]
    for name, all_files, workers in rounds:
        files = [file for file in all_files if not options.file or file in options.file]
        if not files:
            continue
        with Service("compliance", dev=name == "dev", log=sdist.CACHE / f"broker-{name}.log") as service:
            suite = Suite(service, verbose=options.verbose)
            existing.update(suite.collect(files, None))
            tests = suite.collect(files, options.expression)
            if options.profile == "quick":
                tests = [test for test in tests if name_of(test) not in slow]
            if tests:
                # The slowest first, so that nobody waits for the last one alone.
                tests.sort(key=lambda test: name_of(test) not in slow)
                print(f"{len(tests)} tests of {', '.join(files)} ...", flush=True)
                outcomes += suite.run(tests, workers=workers, timeout_s=TEST_TIMEOUT_S[options.profile])
            troubles += service.troubles()
    result = verdict.judge(outcomes, verdict.load(HERE / "deviations.toml"), existing)
    show(result, outcomes, time.monotonic() - started)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(verdict.as_json(result, outcomes) | {"troubles": troubles}, indent=1))
    if options.profile == "long" and not options.file and not options.expression:
        tell_readme(outcomes)
    for trouble in troubles:
        print(f"\nBROKER TROUBLE: {trouble}")
    print(f"\nWritten: {os.path.relpath(options.json)}")
    return 0 if result.good and not troubles else 1


if __name__ == "__main__":
    sys.exit(main())
