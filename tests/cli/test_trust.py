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


def test_a_shell_trusts_the_ca_beside_the_machines_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = tmp_path / "machine.pem"
    machine.write_text("-----BEGIN CERTIFICATE-----\nmachine\n-----END CERTIFICATE-----")
    monkeypatch.setenv("SSL_CERT_FILE", str(machine))
    data = tmp_path / "my data"
    data.mkdir()
    lines = said(capsys, "--data", str(data), "--export").splitlines()
    ca, bundle = data / "ca.pem", data / "ca-bundle.pem"
    assert lines == [
        f"export NODE_EXTRA_CA_CERTS='{ca}'",
        f"export REQUESTS_CA_BUNDLE='{bundle}'",
        f"export SSL_CERT_FILE='{bundle}'",
    ]
    assert bundle.read_text() == f"{machine.read_text()}\n{ca.read_text()}"
    # A shell that has done so once may do it again.
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    assert said(capsys, "--data", str(data), "--export").splitlines() == lines
    assert bundle.read_text() == f"{machine.read_text()}\n{ca.read_text()}"


def test_there_is_nothing_to_export_with_a_certificate_of_your_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "twinbus.toml"
    config.write_text('tls_certificate = "own.pem"\n[namespaces.contoso]\n')
    with pytest.raises(SystemExit) as caught:
        run(["trust", "--config", str(config), "--export"])
    assert caught.value.code == 2
    assert "trust its issuer" in capsys.readouterr().err
