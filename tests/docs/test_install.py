"""`make demo` and `make setup` install by `scripts/install.py`: uv gets what pip is configured with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pip
from scripts.install import ROOT, complete, uv_settings


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


def test_without_a_network_it_ends_in_the_next_step(tmp_path: Path) -> None:
    venv = tmp_path / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    assert not complete(venv / "bin" / "python"), "as an interrupt leaves it"
    # This environment's pip, because installing one takes seconds.
    (tmp_path / "pip").symlink_to(Path(pip.__file__).parent)
    told = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    told |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PYTHONPATH": str(tmp_path)}
    install = [sys.executable, ROOT / "scripts" / "install.py", venv, "demo"]
    ran = subprocess.run(install, env=told, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "creating the virtual environment" not in ran.stdout
    assert "uv is not available: installing with pip" in ran.stdout
    last = ran.stdout.strip().splitlines()[-1]
    assert last.startswith("Twinbus is not installed")
    assert "PIP_INDEX_URL" in last
    assert "run the same command again" in last
    assert [each.name for each in venv.iterdir() if each.name in (".installed", ".demo")] == []
