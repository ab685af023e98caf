"""JMS 2.0 on a Premium namespace, by Qpid JMS and by Azure's own JMS library; then the same over a kill -9.

The two libraries use the same interfaces in different packages (`jakarta.jms` and `javax.jms`), so one program is built
twice. `make compat` runs this.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compat.programs import BUILD_TIMEOUT_S, cache_folder, lines_of
from tests.compat.served import Served

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1_200), pytest.mark.xdist_group("clients")]

SOURCES = Path(__file__).parent / "jms20"
# Library -> group, artifact, version, the slf4j that fits, the package of the interfaces.
LIBRARIES = {
    "qpid": ("org.apache.qpid", "qpid-jms-client", "2.10.0", "2.0.17", "jakarta.jms"),
    "azure": ("com.microsoft.azure", "azure-servicebus-jms", "1.0.2", "1.7.36", "javax.jms"),
}
CASES = (
    *("queue", "transacted", "too-large", "browser", "selector", "selector-headers", "selector-browser"),
    *("selector-bad", "topic", "topic-selector", "durable", "durable-selector", "durable-twice", "shared"),
    *("shared-durable", "unsubscribe", "unsubscribe-unknown", "temporary-queue", "temporary-topic"),
    *("temporary-deleted", "delay", "relay"),
)
QUEUES = (
    *("plain", "transacted", "browsed", "browsed2", "selected", "headers", "requests", "delayed", "relayed"),
    "killed",
)
RUN_TIMEOUT_S = 240


def built(library: str) -> Path:
    """The folder with the program, built for a library."""
    missing = [tool for tool in ("mvn", "java", "keytool") if shutil.which(tool) is None]
    if missing:
        reason = f"{' and '.join(missing)} not found: JMS programs cannot be run"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    group, artifact, version, slf4j, package = LIBRARIES[library]
    pom = (SOURCES / "pom.xml").read_text()
    for name, value in {"group": group, "artifact": artifact, "version": version, "slf4j": slf4j}.items():
        pom = pom.replace(f"@{name}@", value)
    files = {"pom.xml": pom}
    for source in (SOURCES / "cases" / "Main.java", SOURCES / library / "Library.java"):
        files[f"src/main/java/compat/{source.name}"] = source.read_text().replace("jakarta.jms", package)
    digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:16]
    folder = cache_folder() / f"jms20-{library}-{digest}"
    if not (folder / ".built").exists():
        shutil.rmtree(folder, ignore_errors=True)
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
        command = ["mvn", "-q", "-B", "package", "dependency:copy-dependencies"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        (folder / ".built").touch()
    return folder


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    broker = Served(tmp_path)
    config = broker.folder / "twinbus.toml"
    more = "".join(f"[namespaces.contoso.queues.{name}]\n" for name in QUEUES)
    # Queues of other programs have the same file; names that both have are there once.
    own = "\n".join(line for line in more.splitlines() if line not in config.read_text())
    config.write_text(config.read_text() + own + "\n[namespaces.contoso.topics.events]\n")
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def started(library: str, broker: Served, folder: Path, cases: tuple[str, ...]) -> subprocess.Popen[str]:
    trust = folder / "trust.p12"
    if not trust.exists():
        command = ["keytool", "-importcert", "-noprompt", "-alias", "twinbus", "-file", str(broker.ca_file)]
        command += ["-storepass", "changeit", "-keystore", str(trust), "-storetype", "PKCS12"]
        subprocess.run(command, check=True, capture_output=True)
    parts = dict(part.split("=", 1) for part in broker.connection_string.split(";") if "=" in part)
    settings = {
        "COMPAT_PORT": str(broker.port),
        "COMPAT_KEY_NAME": parts["SharedAccessKeyName"],
        "COMPAT_KEY": parts["SharedAccessKey"],
    }
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Djavax.net.ssl.trustStore={trust}"]
    command += ["-Djavax.net.ssl.trustStorePassword=changeit", "-cp", "target/classes:target/dependency/*"]
    return subprocess.Popen(
        [*command, "compat.Main", *cases],
        cwd=built(library),
        env={**os.environ, **settings},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_case(library: str, served: Served, tmp_path: Path) -> None:
    built(library)
    program = started(library, served, tmp_path, CASES)
    output, errors = program.communicate(timeout=RUN_TIMEOUT_S)
    found = {line["case"]: line.get("detail", "ok") for line in lines_of(output)}
    assert found == dict.fromkeys(CASES, "ok"), errors[-2_000:]


@pytest.mark.parametrize("library", LIBRARIES)
def test_over_a_kill(library: str, served: Served, tmp_path: Path) -> None:
    """Selectors, every kind of subscription and temporary nodes go on; temporary ones are made anew."""
    built(library)
    program = started(library, served, tmp_path, ("kill",))
    assert program.stdout is not None
    first = program.stdout.readline()
    assert "ready" in first, first
    served.kill()
    served.start()
    output, errors = program.communicate("go on\n", timeout=RUN_TIMEOUT_S)
    assert lines_of(output) == [{"case": "kill", "ok": True}], errors[-2_000:]
