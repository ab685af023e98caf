"""Where the console is, and that it costs nothing before somebody looks."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from importlib import resources
from pathlib import Path

TWINBUS = [sys.executable, "-c", "from twinbus.cli.main import run; run()"]
ASSETS = list(resources.files("twinbus.broker.http.console").joinpath("assets").iterdir())


def test_serve_says_where_the_console_is(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    options = ["serve", "--namespace", "contoso", "--data", str(tmp_path / "data"), "--dev", "--ready-file", str(ready)]
    broker = subprocess.Popen([*TWINBUS, *options], stdout=subprocess.PIPE, text=True, env={**os.environ})
    try:
        end = time.monotonic() + 120
        while not ready.exists() and time.monotonic() < end:
            time.sleep(0.02)
        port = json.loads(ready.read_text())["namespaces"]["contoso"]["port"]
        assert broker.stdout is not None
        found = None
        while found is None:
            found = re.match(r"Console: (http://localhost:\d+/console)$", broker.stdout.readline())
        assert found[1] == f"http://localhost:{port}/console"
        with urllib.request.urlopen(found[1], timeout=10) as page:
            assert b"<title>Twinbus console</title>" in page.read()
    finally:
        broker.send_signal(signal.SIGTERM)
        broker.communicate(timeout=20)
    assert broker.returncode == 0


def test_nothing_of_it_is_loaded_before_it_is_asked_for() -> None:
    code = (
        "import sys\n"
        "from twinbus.testing import Broker\n"
        "with Broker() as broker:\n"
        "    loaded = [name for name in sys.modules if name.startswith(('twinbus.broker.http.console', 'aiohttp'))]\n"
        "    assert loaded == [], loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr


def test_the_pages_files_keep_the_rules() -> None:
    """No HTML of strings, nothing from elsewhere, small files that say what they are for."""
    assert len(ASSETS) > 10
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc"
    )
    for asset in ASSETS:
        text = asset.read_text()
        assert not forbidden.search(text), asset.name
        assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text) == [], asset.name
        assert len(text.splitlines()) <= 300, asset.name
        if asset.name.endswith(".js"):
            assert text.startswith("// "), asset.name
