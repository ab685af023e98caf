"""Policies that admin clients put on entities, as rows of the META table: one row for each entity.

They belong to the broker and not to the rules, which know nothing of rights. The rows hold keys in the clear, as the
folder does elsewhere (0700): an admin client may ask for them, so they cannot be hashed.
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
    """What the row of an entity's policies holds."""
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
    """The policies in the META table; rows of others are passed over."""
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
        # Neither the row nor the cause: both hold keys.
        raise StoreCorruptError(f"The policies of {key[len(_PREFIX) :]!r} do not read back.") from None
