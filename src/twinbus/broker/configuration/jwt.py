"""`[namespaces.N.jwt]`: which JSON web tokens a namespace accepts, what their roles allow, and who may sign in."""

from __future__ import annotations

from pathlib import Path

from twinbus.auth.policies import Right, rights_of
from twinbus.broker.configuration.config import JwtConfig, SignInConfig
from twinbus.broker.configuration.section import Section
from twinbus.errors import ArgumentError, ConfigError

_KEYS = ("issuer", "audience", "jwks", "public_keys", "roles", "roles_claim", "sign_in")
_SIGN_IN_KEYS = ("client_id", "authorization_endpoint", "token_endpoint", "client_secret_file", "scope")


def read_jwt(values: object, where: str, folder: Path) -> JwtConfig:
    """Read the table; its paths are relative to the file's folder."""
    section = Section(values, where, _KEYS)
    jwks, pems = section.text("jwks"), section.texts("public_keys")
    if not jwks and not pems:
        raise ConfigError(f"{where} must have 'jwks' or 'public_keys': the keys that tokens are checked with.")
    return section.make(
        JwtConfig,
        issuer=section.need("issuer"),
        audience=section.text("audience"),
        jwks=folder / Path(jwks).expanduser() if jwks else None,
        public_keys=tuple(folder / Path(each).expanduser() for each in pems),
        roles=_roles(section) if "roles" in section else None,
        roles_claim=section.text("roles_claim"),
        sign_in=_sign_in(section, folder) if "sign_in" in section else None,
    )


def _sign_in(section: Section, folder: Path) -> SignInConfig:
    table = Section(section.get("sign_in"), section.place("sign_in"), _SIGN_IN_KEYS)
    secret = table.text("client_secret_file")
    return table.make(
        SignInConfig,
        client_id=table.need("client_id"),
        authorization_endpoint=table.need("authorization_endpoint"),
        token_endpoint=table.need("token_endpoint"),
        client_secret_file=folder / Path(secret).expanduser() if secret else None,
        scope=table.text("scope"),
    )


def _roles(section: Section) -> dict[str, frozenset[Right]]:
    place = section.place("roles")
    table = Section(section.get("roles"), place, None)
    roles = {}
    for name in table:
        try:
            roles[name] = rights_of(table.texts(name))
        except ArgumentError as error:
            raise ConfigError(f"{table.place(name)}: {error}") from None
    return roles
