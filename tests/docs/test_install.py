"""`make demo` and `make setup` install by `scripts/install.py`: uv gets what pip is configured with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from scripts.install import uv_settings


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
