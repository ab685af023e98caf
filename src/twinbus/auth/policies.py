"""Shared access policies: a name, rights and two keys, on a namespace or on one entity.

Rules:
- Manage implies Send and Listen; this module adds them, so no caller has to remember it.
- Names are case-insensitive and unique within their scope.
- Keys never appear in a repr.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256

from twinbus.auth.scope import normalised
from twinbus.errors import ArgumentError, EntityExistsError
from twinbus.limits import ENTITY_PATH_CHARS_MAX, POLICIES_PER_SCOPE_MAX, POLICY_KEY_CHARS_MAX, POLICY_NAME_CHARS_MAX

# Azure's name for the policy that every namespace starts with.
ROOT_KEY_NAME = "RootManageSharedAccessKey"
# The official emulator's public key; used only in development mode.
DEVELOPMENT_KEY = "SAS_KEY_VALUE"


class Right(enum.StrEnum):
    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


ALL_RIGHTS: frozenset[Right] = frozenset(Right)
# The order in which the service lists them.
RIGHTS_IN_ORDER = (Right.MANAGE, Right.SEND, Right.LISTEN)


def rights_of(names: Iterable[str]) -> frozenset[Right]:
    """Return the rights of these names, in any case; Manage includes the other two."""
    known = {right.lower(): right for right in Right}
    rights = set()
    for name in names:
        right = known.get(name.lower())
        if right is None:
            raise ArgumentError(f"The right {name!r} is not known. Rights are {', '.join(Right)}.")
        rights.add(right)
    return ALL_RIGHTS if Right.MANAGE in rights else frozenset(rights)


@dataclass(frozen=True, slots=True)
class Policy:
    """A shared access policy. `scope` is a normalised entity path, or `''` for the namespace."""

    name: str
    rights: frozenset[Right]
    primary_key: str = field(repr=False)
    secondary_key: str = field(default="", repr=False)
    scope: str = ""
    # Creation and last change; 0 for policies from the configuration. Ignored in comparisons.
    created_ms: int = field(default=0, compare=False)
    modified_ms: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        if not self.name or len(self.name) > POLICY_NAME_CHARS_MAX or not self.name.isprintable():
            raise ArgumentError(
                f"The policy name {self.name!r} must have 1 to {POLICY_NAME_CHARS_MAX} printable characters."
            )
        if not self.rights:
            raise ArgumentError(f"The policy {self.name!r} has no right. Give one or more of {', '.join(Right)}.")
        for key in (self.primary_key, self.secondary_key):
            if len(key) > POLICY_KEY_CHARS_MAX:
                raise ArgumentError(f"A key of policy {self.name!r} is longer than {POLICY_KEY_CHARS_MAX} characters.")
        if not self.primary_key:
            raise ArgumentError(f"The policy {self.name!r} has no primary key.")
        object.__setattr__(self, "rights", rights_of(self.rights))
        object.__setattr__(self, "scope", normalised(self.scope))

    @property
    def keys(self) -> tuple[str, ...]:
        """Both keys, or the only one."""
        return (self.primary_key, self.secondary_key) if self.secondary_key else (self.primary_key,)


class Policies:
    """The policies of one namespace and its entities."""

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        # By lower-case name; one name may exist on several scopes.
        self._by_name: dict[str, list[Policy]] = {}
        # Checks a scope's limit and finds what to remove with it: thousands of entities may have their own policies.
        self._by_scope: dict[str, list[Policy]] = {}
        # By digest of name and key: one look-up, however many entities have a policy of that name.
        self._by_key: dict[bytes, list[Policy]] = {}
        for policy in policies:
            self.add(policy)

    def add(self, policy: Policy) -> None:
        """Add a policy; its name must be unused in its scope."""
        held = self._by_scope.get(policy.scope, [])
        where = f"'{policy.scope}'" if policy.scope else "the namespace"
        if any(other.name.lower() == policy.name.lower() for other in held):
            raise EntityExistsError(f"The policy {policy.name!r} exists already on {where}.")
        if len(held) >= POLICIES_PER_SCOPE_MAX:
            raise ArgumentError(f"The maximum of {POLICIES_PER_SCOPE_MAX} policies on {where} is reached.")
        self._by_name.setdefault(policy.name.lower(), []).append(policy)
        self._by_scope[policy.scope] = [*held, policy]
        for key in policy.keys:
            self._by_key.setdefault(_digest(policy.name, key), []).append(policy)

    def remove_scope(self, scope: str) -> None:
        """Remove the policies of a deleted entity."""
        for gone in self._by_scope.pop(normalised(scope), ()):
            for key in gone.keys:
                digest = _digest(gone.name, key)
                self._by_key[digest].remove(gone)
                if not self._by_key[digest]:
                    del self._by_key[digest]
            name = gone.name.lower()
            left = [policy for policy in self._by_name[name] if policy is not gone]
            if left:
                self._by_name[name] = left
            else:
                del self._by_name[name]

    def scoped(self, scope: str) -> list[Policy]:
        """Return the policies of exactly this scope, sorted by name."""
        return sorted(self._by_scope.get(normalised(scope), ()), key=lambda policy: policy.name.lower())

    def check(self, scope: str, policies: Iterable[Policy]) -> None:
        """Reject a set of policies that is not valid for the scope."""
        if any(policy.scope != normalised(scope) for policy in policies):
            raise ArgumentError(f"A policy for '{scope}' names another scope.")
        try:
            Policies(policies)
        except EntityExistsError as error:
            raise ArgumentError(error.text) from None

    def replace_scope(self, scope: str, policies: Iterable[Policy]) -> None:
        """Replace a scope's policies: all of them, or none if one is invalid."""
        new = list(policies)
        self.check(scope, new)
        self.remove_scope(scope)
        for policy in new:
            self.add(policy)

    def find(self, key_name: str, path: str) -> list[Policy]:
        """Return the policies of this name whose scope covers `path` (normalised), starting with the namespace's."""
        name = key_name.lower()
        return [
            policy for scope in _scopes(path) for policy in self._by_scope.get(scope, ()) if policy.name.lower() == name
        ]

    def named(self, key_name: str) -> list[Policy]:
        """Return the policies of this name in any scope."""
        return list(self._by_name.get(key_name.lower(), ()))

    def with_key(self, key_name: str, key: str) -> Policy | None:
        """Return the first policy with this name and key. An unknown name takes as long as a wrong key."""
        found = self._by_key.get(_digest(key_name, key))
        return None if found is None else found[0]

    def __iter__(self) -> Iterator[Policy]:
        for policies in self._by_name.values():
            yield from policies

    def __len__(self) -> int:
        return sum(map(len, self._by_scope.values()))


def _digest(name: str, key: str) -> bytes:
    return sha256(f"{name.lower()}\0{key}".encode("utf-8", "surrogatepass")).digest()


def _scopes(path: str) -> Iterator[str]:
    """Yield every scope that covers a normalised path, widest first; none is longer than an entity path may be."""
    yield ""
    at = path.find("/")
    while 0 <= at <= ENTITY_PATH_CHARS_MAX:
        yield path[:at]
        at = path.find("/", at + 1)
    if path:
        yield path
