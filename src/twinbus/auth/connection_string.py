"""Connection strings, parsed like the official SDKs do.

Rules:
- Keys are case-insensitive, and unknown keys are ignored, as old strings carry many. Neither an error nor a repr shows
  the secret.
- `UseDevelopmentEmulator=true` means plain TCP on the port given in Endpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from twinbus.errors import ConfigError
from twinbus.spelling import nearest

PLAIN_PORT = 5672
TLS_PORT = 5671

_NAMES = {
    name.lower(): name
    for name in (
        "Endpoint",
        "SharedAccessKeyName",
        "SharedAccessKey",
        "SharedAccessSignature",
        "EntityPath",
        "UseDevelopmentEmulator",
    )
}
_NAMES["hostname"] = "Endpoint"


@dataclass(frozen=True, slots=True)
class ConnectionString:
    """A namespace's address and credentials: a key name and key, or a ready-made signature."""

    host: str
    port: int | None = None
    key_name: str | None = None
    key: str | None = field(default=None, repr=False)
    signature: str | None = field(default=None, repr=False)
    entity_path: str | None = None
    emulator: bool = False

    @classmethod
    def parse(cls, text: str) -> ConnectionString:
        """Parse a connection string; ConfigError says what is wrong without showing the secret."""
        values, unknown = _split(text)
        endpoint = values.get("Endpoint")
        if endpoint is None:
            raise ConfigError(_missing("Endpoint", unknown))
        host, port = _address(endpoint)
        key_name, key = values.get("SharedAccessKeyName"), values.get("SharedAccessKey")
        signature = values.get("SharedAccessSignature")
        if signature is not None and key is not None:
            raise ConfigError("The connection string has both SharedAccessKey and SharedAccessSignature: keep one.")
        if signature is None and key is None:
            raise ConfigError(_missing("SharedAccessKey", unknown))
        if key is not None and key_name is None:
            raise ConfigError(_missing("SharedAccessKeyName", unknown))
        flag = values.get("UseDevelopmentEmulator", "false").lower()
        if flag not in ("true", "false"):
            raise ConfigError("UseDevelopmentEmulator in the connection string must be true or false.")
        return cls(host, port, key_name, key, signature, values.get("EntityPath"), flag == "true")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port for AMQP: the given port, or the default."""
        return self.host, self.port or (PLAIN_PORT if self.emulator else TLS_PORT)

    @property
    def netloc(self) -> str:
        """`host` or `host:port`, as given in Endpoint."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    def format(self) -> str:
        """Return the connection string, including the secret."""
        parts = [f"Endpoint=sb://{self.netloc}/"]
        if self.key_name is not None:
            parts.append(f"SharedAccessKeyName={self.key_name}")
        if self.key is not None:
            parts.append(f"SharedAccessKey={self.key}")
        if self.signature is not None:
            parts.append(f"SharedAccessSignature={self.signature}")
        if self.entity_path is not None:
            parts.append(f"EntityPath={self.entity_path}")
        if self.emulator:
            # The Python SDK accepts only this exact spelling.
            parts.append("UseDevelopmentEmulator=true")
        return ";".join(parts) + ";"


def _split(text: str) -> tuple[dict[str, str], list[str]]:
    """Return the values under their canonical names, and the unknown names."""
    if not text.strip().strip(";"):
        raise ConfigError("The connection string is empty.")
    values: dict[str, str] = {}
    unknown: list[str] = []
    for position, part in enumerate(text.strip().split(";"), 1):
        if not part.strip():
            continue
        given, separator, value = part.partition("=")
        if not separator:
            # The part itself may be a secret that lost its name: report its position, not its text.
            raise ConfigError(f"Part {position} of the connection string has no '='; write Name=Value;Name=Value.")
        name = _NAMES.get(given.strip().lower())
        if name is None:
            unknown.append(given.strip())
        elif name in values:
            raise ConfigError(f"The connection string has {name} twice.")
        elif value.strip():
            values[name] = value.strip()
    return values, unknown


def _missing(name: str, unknown: list[str]) -> str:
    near = nearest(name, unknown)
    text = f"The connection string has no {name}"
    if near is not None:
        return f"{text}; it has {near!r}: did you mean {name}?"
    if name == "SharedAccessKey":
        text += " and no SharedAccessSignature"
    return text + "."


def _address(endpoint: str) -> tuple[str, int | None]:
    shown = repr(endpoint)
    if "=" in endpoint or "@" in endpoint:
        # Other parts have run into it, perhaps including the key.
        shown = repr(endpoint.partition("://")[0] + "://...") if "://" in endpoint else "it names"
    if "://" not in endpoint:
        raise ConfigError(f"Endpoint {shown} has no scheme; write Endpoint=sb://host or sb://host:port.")
    try:
        parts = urlsplit(endpoint)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigError(f"Endpoint {shown} is not an address.") from None
    if not host or parts.username is not None:
        raise ConfigError(f"Endpoint {shown} has no host; write Endpoint=sb://host or sb://host:port.")
    if port == 0:
        raise ConfigError(f"Endpoint {shown} has port 0; write the port the broker listens on.")
    return host, port
