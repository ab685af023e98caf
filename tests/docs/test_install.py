"""`make demo` and `make setup` install by `scripts/install.py`: uv gets what pip is configured with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from scripts.install import ROOT, uv_settings


def test_uv_gets_pips_settings(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://pypi.example/simple\nextra-index-url =\n    https://one.example/simple\n"
        f"    https://two.example/simple\nfind-links = {wheels} /no/such/folder\n"
    )
    told = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    told |= {"PIP_CONFIG_FILE": str(file), "PIP_CERT": str(file), "PIP_INDEX_URL": "https://mine.example/simple"}
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], env=told, capture_output=True, text=True, check=True
    ).stdout
    found = uv_settings(listed)
    assert found == {
        # The environment wins over the file.
        "UV_DEFAULT_INDEX": "https://mine.example/simple",
        "UV_INDEX": "https://one.example/simple https://two.example/simple",
        "UV_FIND_LINKS": str(wheels),
        "SSL_CERT_FILE": str(file),
    }


def test_half_an_environment_and_no_network_end_in_a_next_step(tmp_path: Path) -> None:
    """As after an interrupt while the environment was created: it has Python but no pip."""
    venv = tmp_path / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    told = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    told |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    ran = subprocess.run(
        [sys.executable, ROOT / "scripts" / "install.py", venv, "demo"],
        env=told,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "No module named pip" not in ran.stderr
    assert "uv is not available: installing with pip" in ran.stdout
    last = ran.stdout.strip().splitlines()[-1]
    assert last.startswith("Twinbus is not installed")
    assert "PIP_INDEX_URL" in last
    assert "run the same command again" in last
    assert not {".installed", ".demo"} & {each.name for each in venv.iterdir()}, "the next make starts again"
