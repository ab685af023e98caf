"""The file for `spark-submit`: its options, its secrets, and one real submission."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from twinbus.client import Message
from twinbus.client.envelope import wrap
from twinbus.errors import ConfigError
from twinbus.paired.syphon.syphon import SyphonReport
from twinbus.paired.syphon.tally import QueueTally
from twinbus.spark.syphon import job

from .processes import BrokerProcess, secrets, until

KEY = "SharedAccessKeyName=n;SharedAccessKey=aGlkZGVu"
ENVIRONMENT = {
    "TWINBUS_PRIMARY": f"Endpoint=sb://contoso.servicebus.windows.net/;{KEY}",
    "TWINBUS_SECONDARY": f"Endpoint=sb://fabrikam.servicebus.windows.net/;{KEY}",
}


def report(*, undrained: tuple[str, ...] = (), missing: tuple[str, ...] = ()) -> SyphonReport:
    return SyphonReport(QueueTally(), {"a": {}, "b": {}}, (), undrained, missing, (), "")


def test_connection_strings_come_from_the_environment_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secondary.txt"
    file.write_text(ENVIRONMENT["TWINBUS_SECONDARY"].replace("fabrikam", "north") + "\n")
    options = job.parser().parse_args(["--secondary-file", str(file)])
    pairing = job.pairing_of(options, ENVIRONMENT)
    assert (pairing.primary, pairing.primary_name) == (ENVIRONMENT["TWINBUS_PRIMARY"], "contoso")
    assert (pairing.secondary_name, "aGlkZGVu" in repr(pairing)) == ("north", False)


@pytest.mark.parametrize(
    ("arguments", "environment", "text"),
    [
        ([], {}, "No primary given"),
        (["--primary-file", "/nowhere"], ENVIRONMENT, "cannot be read"),
        ([], {**ENVIRONMENT, "TWINBUS_SECONDARY": ENVIRONMENT["TWINBUS_PRIMARY"]}, "two different namespaces"),
        (["--primary-name", "a/b"], ENVIRONMENT, "primary_name"),
    ],
)
def test_what_is_wrong_is_told(arguments: list[str], environment: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        job.pairing_of(job.parser().parse_args(arguments), environment)
    assert "aGlkZGVu" not in str(caught.value)


@pytest.mark.parametrize("option", ["--primary", "--secondary", "--primary-file"])
def test_a_secret_among_the_arguments_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match="put it into a file") as caught:
        job.options_of([option, ENVIRONMENT["TWINBUS_PRIMARY"]])
    assert "aGlkZGVu" not in str(caught.value)
    # There is no option for it, not even by an abbreviation.
    with pytest.raises(SystemExit):
        job.options_of(["--primary", "nobody"])


@pytest.mark.parametrize(("slots", "seconds"), [(0, 20), (33, 20), (1, 0.5), (1, 3_601)])
def test_bounds(slots: int, seconds: float) -> None:
    with pytest.raises(ConfigError, match="it must be from 1"):
        job.check_round(slots, seconds)


def test_exit_codes() -> None:
    assert job.exit_code(report(), once=True) == 0
    assert job.exit_code(report(undrained=("a",)), once=True) == 1
    assert job.exit_code(report(undrained=("a",)), once=False) == 0
    assert job.exit_code(report(missing=("a", "b")), once=False) == 1


@pytest.mark.timeout(180)
def test_it_is_submitted(tmp_path: Path) -> None:
    queue = "contoso/x-servicebus-transfer/0"
    with (
        BrokerProcess(tmp_path, "contoso", "[namespaces.contoso.queues.orders]\n") as primary,
        BrokerProcess(tmp_path, "fabrikam", f'[namespaces.fabrikam.queues."{queue}"]\n') as secondary,
    ):
        names = [f"m{number}" for number in range(200)]
        secondary.put(queue, [wrap(Message(b"x", message_id=name).encode(), "orders") for name in names])
        process = subprocess.Popen(
            [
                str(Path(sys.executable).with_name("spark-submit")),
                *("--master", "local[2]", "--conf", "spark.ui.enabled=false", str(Path(job.__file__))),
                *("--primary-name", "contoso", "--backlog-queue-count", "1", "--once", "--json"),
            ],
            env={**os.environ, **secrets(primary, secondary), "PYSPARK_PYTHON": sys.executable},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        until(lambda: "SparkSubmit" in shown(process.pid), 30)
        assert "SharedAccessKey" not in shown(process.pid)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        assert (lines[0]["round"], lines[-1]["syphoned"], lines[-1]["undrained"]) == (1, 200, [])
        assert [str(message.message_id) for message in primary.taken("orders", 200)] == names
        for broker in (primary, secondary):
            assert broker.key not in out + err


def shown(pid: int) -> str:
    """The command line, as `ps` shows it."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
