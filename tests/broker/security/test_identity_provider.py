"""The identity provider of a configuration: what people know it by, and our secret there."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinbus.broker.configuration.config import JwtConfig, SignInConfig
from twinbus.broker.security.identity_provider import IdentityProvider, identity_provider
from twinbus.errors import ConfigError
from twinbus.limits import CLIENT_SECRET_BYTES_MAX

SECRET = "planted-secret-of-the-client"


def configured(secret_file: Path | None = None, issuer: str = "https://login.example/tenant") -> JwtConfig:
    sign_in = SignInConfig(
        client_id="console",
        authorization_endpoint="https://login.example/authorize",
        token_endpoint="https://login.example/token",
        client_secret_file=secret_file,
    )
    return JwtConfig(issuer=issuer, public_keys=(Path("key.pem"),), sign_in=sign_in)


def made(config: JwtConfig) -> IdentityProvider:
    provider = identity_provider(config)
    assert provider is not None
    return provider


def test_without_the_table_there_is_none() -> None:
    assert identity_provider(JwtConfig(issuer="x", public_keys=(Path("key.pem"),))) is None


@pytest.mark.parametrize(
    ("issuer", "title"),
    [
        ("https://login.example/tenant/v2.0", "login.example"),
        ("https://login.example:8443/", "login.example"),
        ("accounts.example", "accounts.example"),
        ("https://[broken", "https://[broken"),
    ],
)
def test_people_know_it_by_its_host(issuer: str, title: str) -> None:
    assert made(configured(issuer=issuer)).title == title


def test_the_secret_is_read_and_never_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    provider = made(configured(tmp_path / "secret"))
    assert provider.secret == SECRET
    assert SECRET not in repr(provider)
    assert made(configured()).secret is None


def test_the_longest_secret(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x" * CLIENT_SECRET_BYTES_MAX)
    assert made(configured(tmp_path / "secret")).secret == "x" * CLIENT_SECRET_BYTES_MAX


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        SECRET.encode() + b"\n" + SECRET.encode(),
        b"\xff" + SECRET.encode(),
        b"x" * (CLIENT_SECRET_BYTES_MAX + 1),
    ],
)
def test_a_file_that_is_no_secret_is_named_and_not_quoted(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "secret").write_bytes(content)
    with pytest.raises(ConfigError, match="must have one line") as caught:
        identity_provider(configured(tmp_path / "secret"))
    assert str(tmp_path / "secret") in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        identity_provider(configured(tmp_path / "secret"))
