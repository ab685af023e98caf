"""The identity provider at which people sign in to the console: its addresses, and our secret there."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from twinbus.broker.configuration.config import JwtConfig, SignInConfig
from twinbus.errors import ConfigError
from twinbus.limits import CLIENT_SECRET_BYTES_MAX


@dataclass(frozen=True, slots=True)
class IdentityProvider:
    """One provider, as configured."""

    issuer: str
    config: SignInConfig
    # None for a public client.
    secret: str | None = field(repr=False)

    @property
    def title(self) -> str:
        """What people know it by: the issuer's host."""
        try:
            return urlsplit(self.issuer).hostname or self.issuer
        except ValueError:
            return self.issuer


def identity_provider(jwt: JwtConfig) -> IdentityProvider | None:
    """The provider of a configuration, if it has one; a ConfigError names an unusable file."""
    if jwt.sign_in is None:
        return None
    return IdentityProvider(jwt.issuer, jwt.sign_in, _secret(jwt.sign_in))


def _secret(config: SignInConfig) -> str | None:
    path = config.client_secret_file
    if path is None:
        return None
    try:
        # Bounded before it is read: the path may be a device.
        with path.open("rb") as file:
            text = file.read(CLIENT_SECRET_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"The file of the client's secret {path} cannot be read: {error.strerror}.") from None
    secret = text.decode("utf-8", "replace").strip()
    if len(text) > CLIENT_SECRET_BYTES_MAX or not secret.isprintable() or not secret.isascii() or not secret:
        # The file's content is not quoted: it is a secret.
        raise ConfigError(
            f"The file of the client's secret {path} must have one line of at most {CLIENT_SECRET_BYTES_MAX} "
            "ASCII characters: the secret."
        )
    return secret
