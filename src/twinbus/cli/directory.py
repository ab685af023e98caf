"""Find the broker for a command, and send requests to its directory, the namespace's `$management` node."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from twinbus.auth.connection_string import ConnectionString
from twinbus.errors import ConfigError, OperationTimeoutError
from twinbus.limits import CONFIG_FILE_BYTES_MAX

if TYPE_CHECKING:
    from twinbus.client import BusClient
    from twinbus.client.management import Management

T = TypeVar("T")

PATIENCE_S = 30.0


def find(
    connection_string: str | None,
    ready_file: Path | None,
    namespace: str | None,
    connection_file: Path | None = None,
) -> ConnectionString:
    """Return the broker to talk to; a file takes precedence over a string from the environment."""
    if ready_file is not None:
        return ConnectionString.parse(_from_ready_file(ready_file, namespace))
    if namespace is not None:
        raise ConfigError("--namespace chooses from a ready file: give --ready-file too.")
    if connection_file is not None:
        try:
            with connection_file.open() as opened:
                return ConnectionString.parse(opened.read(CONFIG_FILE_BYTES_MAX).strip())
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"The file of the connection string cannot be read: {error}.") from None
    if connection_string is None:
        raise ConfigError(
            "No broker given: pass --connection-string, --connection-file or --ready-file FILE, set "
            "TWINBUS_CONNECTION_STRING, or add a context with `twinbus context add`."
        )
    return ConnectionString.parse(connection_string)


def client_of(broker: ConnectionString, ca_file: Path | None, patience_s: float) -> BusClient:
    """Create a client that trusts the CA in `ca_file`, if given."""
    from twinbus.client import BusClient, tls_context

    tls = None if ca_file is None or broker.emulator else tls_context(ca_file)
    return BusClient.from_connection_string(broker.format(), tls=tls, timeout_ms=int(patience_s * 1000))


def ask(
    broker: ConnectionString,
    operation: str,
    body: dict[str, Any],
    *,
    ca_file: Path | None = None,
    patience_s: float | None = None,
) -> dict[str, Any]:
    """Send one request; raise ServiceError if the broker refuses it."""
    return in_conversation(broker, lambda node: node.ask(operation, body), ca_file=ca_file, patience_s=patience_s)


def in_conversation(
    broker: ConnectionString,
    work: Callable[[Management], Coroutine[Any, Any, T]],
    *,
    ca_file: Path | None = None,
    patience_s: float | None = None,
) -> T:
    """Send requests to the namespace's node over one connection; the first must be answered within `patience_s`."""
    # Imported here, because help and completion do not need it.
    import asyncio

    patience = PATIENCE_S if patience_s is None else patience_s

    async def asked() -> T:
        async with client_of(broker, ca_file, patience) as client:
            try:
                async with asyncio.timeout(patience):
                    node = await client.management()
            except TimeoutError:
                text = f"The broker at {broker.netloc} did not answer within {patience:g} seconds."
                raise OperationTimeoutError(text) from None
            return await work(node)

    return asyncio.run(asked())


def _from_ready_file(path: Path, namespace: str | None) -> str:
    try:
        namespaces = json.loads(path.read_text())["namespaces"]
        strings = {name: str(each["connection_string"]) for name, each in namespaces.items()}
    except OSError as error:
        raise ConfigError(f"The ready file {path} cannot be read: {error.strerror}. Is the broker running?") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"{path} is not a ready file of `twinbus serve`.") from None
    names = ", ".join(sorted(strings))
    if namespace is None:
        if len(strings) != 1:
            raise ConfigError(f"The ready file {path} has several namespaces: choose one with --namespace ({names}).")
        return next(iter(strings.values()))
    for name, text in strings.items():
        if name.lower() == namespace.lower():
            return text
    raise ConfigError(f"The ready file {path} has no namespace {namespace!r}; it has {names}.")
