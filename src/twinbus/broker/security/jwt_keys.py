"""Public keys for JSON web tokens, read from files named in the configuration, never from the network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from twinbus.auth.jwt import JwtKey, JwtVerifier, key_of_pem, keys_of_jwks
from twinbus.broker.configuration.config import JwtConfig
from twinbus.errors import ConfigError
from twinbus.limits import CONFIG_FILE_BYTES_MAX

T = TypeVar("T")


def jwt_verifier(config: JwtConfig) -> JwtVerifier:
    """The token verifier for a configuration; a ConfigError names the bad file."""
    keys: list[JwtKey] = []
    if config.jwks is not None:
        keys += _read(config.jwks, keys_of_jwks)
    keys += [_read(path, key_of_pem) for path in config.public_keys]
    return JwtVerifier(config.issuer, keys, config.audience, config.roles, config.roles_claim)


def _read(path: Path, reader: Callable[[str], T]) -> T:
    try:
        if path.stat().st_size > CONFIG_FILE_BYTES_MAX:
            raise ConfigError(f"The file of keys {path} is larger than {CONFIG_FILE_BYTES_MAX} bytes.")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"The file of keys {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"The file of keys {path} is not text.") from None
    try:
        return reader(text)
    except ConfigError as error:
        raise ConfigError(f"The file of keys {path} is wrong. {error}") from None
