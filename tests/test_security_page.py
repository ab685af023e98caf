"""The limits that docs/security.md promises are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from tests.auth.jwt_issuer import Issuer
from twinbus import limits
from twinbus.broker.configuration.file import load_config
from twinbus.broker.security.jwt_keys import jwt_verifier

PAGE = (Path(__file__).parent.parent / "docs" / "security.md").read_text()
UNITS = {"s": 1_000, "KiB": 1_024, "MiB": 1_024**2, "": 1}


def test_the_table_of_limits_is_true() -> None:
    rows = re.findall(r"^\| [^|]+ \| ([\d,]+) ?(s|KiB|MiB|) \| `([A-Z_]+)` \|$", PAGE, re.MULTILINE)
    assert len(rows) > 20
    wrong = [
        name for number, unit, name in rows if int(number.replace(",", "")) * UNITS[unit] != getattr(limits, name, None)
    ]
    assert wrong == []


def test_the_example_of_json_web_tokens_loads(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "twinbus.toml").write_text(example)
    issuer = Issuer()
    (tmp_path / "jwks.json").write_text(issuer.jwks())
    (tmp_path / "key.pem").write_text(issuer.pem("RS256"))
    jwt = load_config(tmp_path / "twinbus.toml").namespaces[0].jwt
    assert jwt is not None
    assert jwt_verifier(jwt)
