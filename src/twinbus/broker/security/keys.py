"""The namespaces' keys: generated at the first start, stored in the data folder, and reused.

- The file has mode 0600 and is written atomically.
- Development mode uses the official emulator's well-known key instead and touches no file.
- A lock on the folder makes two simultaneous starts agree on the keys.
- Rotating a key replaces it here, too: a file with a dead key would only mislead.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from twinbus.auth.policies import ALL_RIGHTS, DEVELOPMENT_KEY, ROOT_KEY_NAME, Policy
from twinbus.broker.configuration.config import BrokerConfig, KeylessPolicy, NamespaceConfig
from twinbus.errors import ConfigError, InternalError

KEYS_FILE = "keys.json"
_KEY_BYTES = 32

Random = Callable[[int], bytes]
# namespace -> "scope policy-name" -> [primary, secondary]
_Keys = dict[str, dict[str, list[str]]]


def with_keys(config: BrokerConfig, random: Random = secrets.token_bytes) -> BrokerConfig:
    """The configuration with a root policy in every namespace and keys for every policy.

    Idempotent.
    """
    if config.dev:
        namespaces = [_filled(namespace, {}, _development_key) for namespace in config.namespaces]
    elif config.data is None:
        namespaces = [_filled(namespace, {}, lambda: new_key(random)) for namespace in config.namespaces]
    else:
        config.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(config.data):
            path = config.data / KEYS_FILE
            keys = _read(path)
            before = json.dumps(keys)
            namespaces = [
                _filled(namespace, keys.setdefault(namespace.name.lower(), {}), lambda: new_key(random))
                for namespace in config.namespaces
            ]
            keys = {name: policies for name, policies in keys.items() if policies}
            if json.dumps(keys) != before:
                _write(path, keys)
    return replace(config, namespaces=namespaces)


def _filled(namespace: NamespaceConfig, keys: dict[str, list[str]], make: Callable[[], str]) -> NamespaceConfig:
    wanted = list(namespace.keyless)
    names = [policy.name for policy in namespace.policies if not policy.scope]
    names += [policy.name for policy in wanted if not policy.scope]
    if ROOT_KEY_NAME.lower() not in (name.lower() for name in names):
        wanted.insert(0, KeylessPolicy(ROOT_KEY_NAME, ALL_RIGHTS))
    made = []
    for policy in wanted:
        label = _label(policy.scope, policy.name)
        if label not in keys:
            keys[label] = [make(), make()]
        primary, secondary = keys[label]
        made.append(Policy(policy.name, policy.rights, primary, secondary, policy.scope))
    kept = namespace.kept | {(policy.scope, policy.name) for policy in made}
    return replace(namespace, policies=[*made, *namespace.policies], keyless=[], kept=kept)


def change_keys(folder: Path, namespace: str, changes: Mapping[tuple[str, str], list[str]]) -> None:
    """Store new keys for policies of a namespace, given by scope and name. On an error the file is unchanged."""
    try:
        with locked(folder):
            path = folder / KEYS_FILE
            keys = _read(path)
            own = keys.setdefault(namespace.lower(), {})
            for (scope, name), pair in changes.items():
                own[_label(scope, name)] = [*pair, ""][:2]
            _write(path, keys)
    except (OSError, ConfigError):
        # The cause may contain keys, and the path is none of a client's business.
        raise InternalError("The new keys could not be kept, so nothing was changed.") from None


def copy_keys(folder: Path, to: Path, namespace: str) -> None:
    """Copy the keys of one namespace to another data folder, keeping those of the folder's other namespaces."""
    own = _read(folder / KEYS_FILE).get(namespace.lower())
    if own:
        with locked(to):
            _write(to / KEYS_FILE, _read(to / KEYS_FILE) | {namespace.lower(): own})


def _label(scope: str, name: str) -> str:
    return f"{scope.lower()} {name.lower()}".strip()


def new_key(random: Random) -> str:
    """Return a new key for a policy, encoded."""
    return b64encode(random(_KEY_BYTES)).decode("ascii")


def _development_key() -> str:
    return DEVELOPMENT_KEY


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder against other processes that generate keys in it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read(path: Path) -> _Keys:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"The keys in {path} cannot be read: {error.strerror}.") from None
    with os.fdopen(descriptor, "rb") as file:
        if os.fstat(file.fileno()).st_mode & 0o077:
            # It was copied without its mode: stop others from reading it.
            os.fchmod(file.fileno(), 0o600)
        data = file.read()
    try:
        keys: _Keys = json.loads(data)["namespaces"]
        for policies in keys.values():
            for primary, secondary in policies.values():
                if not (isinstance(primary, str) and isinstance(secondary, str) and primary):
                    raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(
            f"{path} is not a file of keys. Restore it, or move it away: new keys are then made, and old "
            "connection strings stop working."
        ) from None
    return keys


def _write(path: Path, keys: _Keys) -> None:
    write_private(path, json.dumps({"namespaces": keys}, indent=2) + "\n")


def write_private(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Write a file atomically, mode 0600 by default, even if the machine stops in between."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            if mode != 0o600:
                os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
