"""`twinbus trust`: what it creates and prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from twinbus.cli.main import run


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        run(["trust", *arguments])
    assert caught.value.code == 0
    return capsys.readouterr().out


def test_it_makes_the_ca_once_and_says_how_to_use_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = tmp_path / "my data"
    with pytest.raises(SystemExit):
        run(["trust", "--data", str(data)])
    assert "There is no data folder" in capsys.readouterr().err
    assert not data.exists(), "a slip of the pen makes no folder"
    data.mkdir()
    text = said(capsys, "--data", str(data))
    ca = data / "ca.pem"
    made = ca.read_text()
    assert f"NODE_EXTRA_CA_CERTS='{ca}'" in text
    assert f"connection_verify={str(ca)!r}" in text
    told = json.loads(said(capsys, "--data", str(data), "--json"))
    assert told["ca"] == told["environment"]["NODE_EXTRA_CA_CERTS"] == str(ca)
    assert ca.read_text() == made
    assert "PRIVATE" not in made + text


def test_it_goes_by_the_configuration(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "twinbus.toml"
    config.write_text('data = "here"\n[namespaces.contoso]\n')
    (tmp_path / "here").mkdir()
    assert json.loads(said(capsys, "--config", str(config), "--json"))["ca"] == str(tmp_path / "here" / "ca.pem")
    config.write_text('tls_certificate = "own.pem"\n[namespaces.contoso]\n')
    assert "clients must trust its issuer" in said(capsys, "--config", str(config))
    assert json.loads(said(capsys, "--config", str(config), "--json")) == {"certificate": str(tmp_path / "own.pem")}
