"""Policies that admin clients put on entities: one row of the META table per entity.

They belong to the broker: the entities know nothing of rights. The rows contain keys in clear text (the folder has
mode 0700), because admin clients may ask for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from twinbus.auth.policies import Policy, rights_of
from twinbus.auth.scope import normalised
from twinbus.errors import ServiceError, StoreCorruptError

_PREFIX = b"policies/"


def policies_key(path: str) -> bytes:
    return _PREFIX + normalised(path).encode()


def policies_value(policies: Sequence[Policy]) -> bytes:
    """The value of the row of an entity's policies."""
    fields = [
        {
            "name": policy.name,
            "rights": sorted(policy.rights),
            "primary_key": policy.primary_key,
            "secondary_key": policy.secondary_key,
            "created_ms": policy.created_ms,
            "modified_ms": policy.modified_ms,
        }
        for policy in policies
    ]
    return json.dumps(fields, separators=(",", ":")).encode()


def read_policies(rows: Iterable[tuple[bytes, bytes]]) -> Iterator[Policy]:
    """The policies in the META table; skips other rows."""
    for key, value in rows:
        if key.startswith(_PREFIX):
            yield from _read(key, value)


def _read(key: bytes, value: bytes) -> list[Policy]:
    try:
        scope = key[len(_PREFIX) :].decode()
        return [
            Policy(
                fields["name"],
                rights_of(fields["rights"]),
                fields["primary_key"],
                fields["secondary_key"],
                scope,
                fields["created_ms"],
                fields["modified_ms"],
            )
            for fields in json.loads(value)
        ]
    except (ValueError, KeyError, TypeError, AttributeError, ServiceError):
        # Show neither the row nor the cause: both contain keys.
        raise StoreCorruptError(f"The policies of {key[len(_PREFIX) :]!r} do not read back.") from None
