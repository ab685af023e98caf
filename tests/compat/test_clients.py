"""Every client's own program against a broker that checks keys, with TLS; then the same under kill -9.

They take minutes and need other languages' tools, so `make test` leaves them out: `make compat` runs them.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from tests.compat.programs import CASES, PROGRAMS, Program, build_ahead, lines_of
from tests.compat.served import Served

pytestmark = [pytest.mark.clients, pytest.mark.timeout(2_400), pytest.mark.xdist_group("clients")]

RECORD = Path(__file__).parent / "matrix.json"
RUN_TIMEOUT_S = 240
KILL_TIMEOUT_S = 150
KILLS = 3
KILL_COUNT = 300


def settings_for(broker: Served, folder: Path) -> dict[str, str]:
    """What a program finds in its environment."""
    plain = broker.connection_string
    trust = folder / "trust.p12"
    ca = str(broker.ca_file)
    if shutil.which("keytool") is not None:
        command = ["keytool", "-importcert", "-noprompt", "-alias", "twinbus", "-file", ca, "-storepass", "changeit"]
        subprocess.run([*command, "-keystore", str(trust), "-storetype", "PKCS12"], check=True, capture_output=True)
    return {
        "COMPAT_PLAIN": plain,
        "COMPAT_TLS": plain.replace("UseDevelopmentEmulator=true;", ""),
        "COMPAT_PORT": str(broker.port),
        "COMPAT_CA": ca,
        "COMPAT_TRUST_STORE": str(trust),
        "NODE_EXTRA_CA_CERTS": ca,
        "SSL_CERT_FILE": ca,
        "COMPAT_COUNT": str(KILL_COUNT),
    }


@pytest.fixture(scope="module", autouse=True)
def _built_ahead(request: pytest.FixtureRequest) -> None:
    chosen = {
        item.callspec.params["program"].name
        for item in request.session.items
        if hasattr(item, "callspec") and "program" in item.callspec.params
    }
    build_ahead(program for program in PROGRAMS if program.name in chosen)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    served.start()
    served.trust()
    yield served
    served.kill()


def record(program: Program, found: dict[str, bool]) -> None:
    """Write down what worked, where the caller wants the table made again."""
    if os.environ.get("TWINBUS_RECORD") != "1":
        return
    with RECORD.open("a+") as file:
        # Tests may run in several processes.
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        matrix: dict[str, Any] = json.loads(file.read() or "{}")
        entry = {**matrix.get(program.name, {}).get("cases", {}), **found}
        matrix[program.name] = {"client": program.client, "cases": entry, "lacks": program.lacks}
        file.truncate(0)
        file.write(json.dumps(matrix, indent=1, sort_keys=True) + "\n")


def run_cases(program: Program, broker: Served, folder: Path, **settings: str) -> tuple[dict[str, bool], str]:
    """Run all cases of a program; return which of them worked, and what is wrong with the others."""
    cases = [*program.cases, *program.also]
    running = program.start(program.ready(), cases, {**settings_for(broker, folder), **settings})
    try:
        out, err = running.communicate(timeout=RUN_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        running.kill()
        out, err = running.communicate()
    found = {line["case"]: line for line in lines_of(out)}
    wrong = {case: found.get(case, {"detail": "it never ended"}) for case in cases}
    wrong = {case: line for case, line in wrong.items() if not line.get("ok")}
    return {case: case not in wrong for case in cases}, f"{wrong}\n{err[-4000:]}" if wrong else ""


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_every_case(program: Program, broker: Served, tmp_path: Path) -> None:
    worked, wrong = run_cases(program, broker, tmp_path)
    record(program, {case: worked[case] for case in program.cases})
    assert not wrong, wrong
    assert set(program.cases) | set(program.lacks) == set(CASES)


@pytest.mark.parametrize("transport", ["plain", "websocket"])
@pytest.mark.parametrize(
    "program", [program for program in PROGRAMS if program.name == "dotnet"], ids=lambda _: "dotnet"
)
def test_every_case_over_other_transports(program: Program, transport: str, broker: Served, tmp_path: Path) -> None:
    _, wrong = run_cases(program, broker, tmp_path, COMPAT_TRANSPORT=transport)
    assert not wrong, wrong


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_killed_under_load(program: Program, broker: Served, tmp_path: Path) -> None:
    """The program sends and receives all the while; every message arrives, and nobody restarts the program."""
    built = program.ready()
    received: list[int] = []
    ended: list[dict[str, Any]] = []

    def read(lines: IO[str]) -> None:
        for line in lines:
            for fields in lines_of(line):
                if "received" in fields:
                    received.append(fields["received"])
                else:
                    ended.append(fields)

    with program.start(built, ["kill"], settings_for(broker, tmp_path)) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        reader = threading.Thread(target=read, args=(running.stdout,))
        errors: list[str] = []
        complaints = threading.Thread(target=lambda: errors.extend(running.stderr or ()))
        reader.start()
        complaints.start()
        try:
            for kill in range(1, KILLS + 1):
                wait_until(lambda kill=kill: bool(received) and received[-1] >= KILL_COUNT * kill // 5, running)
                broker.kill()
                time.sleep(1)
                broker.start()
            running.wait(timeout=KILL_TIMEOUT_S)
        finally:
            running.kill()
            reader.join(timeout=10)
            complaints.join(timeout=10)
    fine = ended == [{"case": "kill", "ok": True}] and received[-1] == KILL_COUNT
    record(program, {"kill": fine})
    assert fine, (ended, received[-1:], errors[-20:])


def wait_until(true: Any, running: subprocess.Popen[str], patience_s: float = 120) -> None:
    end = time.monotonic() + patience_s
    while not true():
        assert running.poll() is None, "the program ended too early"
        assert time.monotonic() < end, "nothing is received"
        time.sleep(0.02)
