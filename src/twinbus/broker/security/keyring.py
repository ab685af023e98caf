"""The policies of a running namespace, and how they change: made, rotated, deleted, without a restart.

Where a policy lives decides where its change is kept, and each has one place only:
- keys in the configuration file: there, so it can only be changed there;
- named by the configuration without keys, and the namespace's own root policy: `keys.json` (broker/security/keys.py);
- made in the running broker, on the namespace or on an entity: a row of the store (broker/security/stored_policies.py).

A change counts from the moment it is made: a token signed with a key that is gone is refused. What was granted before
lasts until it expires.
"""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from twinbus.auth.policies import Policies, Policy, Right
from twinbus.auth.scope import normalised
from twinbus.broker.security.keys import change_keys
from twinbus.broker.security.stored_policies import policies_key, policies_value, read_policies
from twinbus.errors import ArgumentError, EntityExistsError, EntityNotFoundError, NotAllowedError
from twinbus.store.facts import Table

if TYPE_CHECKING:
    from twinbus.broker.commits import CommitLoop

Which = Literal["primary", "secondary", "swap"]
WHICH: tuple[Which, ...] = ("primary", "secondary", "swap")
_KEY_BYTES = 32

# What a policy is known by: its scope, and its name in lower case.
_Label = tuple[str, str]


class Keyring:
    """The policies of one namespace and its entities, with their places."""

    def __init__(
        self,
        namespace: str,
        configured: Iterable[Policy],
        kept: Iterable[tuple[str, str]],
        stored: Iterable[tuple[bytes, bytes]],
        folder: Path | None,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        given = list(configured)
        self.policies = Policies(given)
        # The namespace's name, for its part of `keys.json`.
        self._namespace = namespace
        # Policies that the configuration names: they cannot be deleted here.
        self._configured: set[_Label] = {_label(policy) for policy in given}
        # Those of them whose keys are in `keys.json`.
        self._kept: set[_Label] = {(normalised(scope), name.lower()) for scope, name in kept}
        # Where `keys.json` is; None where there is none, as in development mode.
        self._folder = folder
        self._random = random
        # Told of each policy that changed.
        self.on_change: Callable[[Policy], None] | None = None
        # Writes rows; set when the store's writer is there.
        self.commits: CommitLoop
        for policy in read_policies(stored):
            # Of two with one name, the configuration's counts.
            if _label(policy) not in self._configured:
                self.policies.add(policy)

    # --- looking ----------------------------------------------------------------------------------------------------

    def find(self, scope: str, name: str) -> Policy:
        """The policy of that name on exactly that scope."""
        for policy in self.policies.scoped(scope):
            if policy.name.lower() == name.lower():
                return policy
        raise EntityNotFoundError(f"There is no policy {name[:64]!r} on {_where(scope)}.")

    def check(self, scope: str, policies: Sequence[Policy] | None) -> None:
        """Refuse what could not become a scope's whole set of policies; None changes nothing."""
        if policies is None:
            return
        self.policies.check(scope, policies)
        new = {_label(policy): policy for policy in policies}
        for old in self.policies.scoped(scope):
            label = _label(old)
            if label in self._configured and label not in new:
                raise NotAllowedError(
                    f"The policy {old.name!r} of {_where(scope)} stands in the configuration: remove it there."
                )
            if label in self._configured and new[label] != old:
                self._check_keys_only(old, new[label])

    # --- changing ---------------------------------------------------------------------------------------------------

    def set(
        self,
        scope: str,
        name: str,
        rights: frozenset[Right],
        now_ms: int,
        *,
        primary_key: str | None = None,
        secondary_key: str | None = None,
        new: bool = False,
    ) -> Policy:
        """Make a policy, or change its rights and those of its keys that are given; `new`: it must not exist."""
        others = self.policies.scoped(scope)
        old = next((policy for policy in others if policy.name.lower() == name.lower()), None)
        if old is not None and new:
            raise EntityExistsError(f"The policy {name[:64]!r} exists already on {_where(scope)}.")
        if old is None:
            primary, secondary = primary_key or self._key(), secondary_key or self._key()
            made = Policy(name, rights, primary, secondary, scope, now_ms, now_ms)
        else:
            primary, secondary = primary_key or old.primary_key, secondary_key or old.secondary_key
            made = replace(old, rights=rights, primary_key=primary, secondary_key=secondary, modified_ms=now_ms)
        self.replace(scope, [*(policy for policy in others if policy is not old), made])
        return made

    def rotate(self, scope: str, name: str, which: Which, now_ms: int) -> Policy:
        """A new key in the place of one of the two; or swap them, to retire the primary one step later."""
        old = self.find(scope, name)
        if which == "swap":
            if not old.secondary_key:
                raise ArgumentError(f"The policy {old.name!r} has no secondary key to swap with: rotate that first.")
            new = replace(old, primary_key=old.secondary_key, secondary_key=old.primary_key, modified_ms=now_ms)
        elif which == "primary":
            new = replace(old, primary_key=self._key(), modified_ms=now_ms)
        else:
            new = replace(old, secondary_key=self._key(), modified_ms=now_ms)
        others = [policy for policy in self.policies.scoped(scope) if policy is not old]
        self.replace(scope, [*others, new])
        return new

    def delete(self, scope: str, name: str) -> None:
        """Remove a policy that was made here."""
        gone = self.find(scope, name)
        self.replace(scope, [policy for policy in self.policies.scoped(scope) if policy is not gone])

    def replace(self, scope: str, policies: Sequence[Policy]) -> None:
        """Give a scope these policies in place of those it has, for good: all of it, or nothing."""
        self.check(scope, policies)
        before = {_label(policy): policy for policy in self.policies.scoped(scope)}
        changed = [policy for policy in policies if before.get(_label(policy)) != policy]
        kept = {_label(policy): list(policy.keys) for policy in changed if _label(policy) in self._kept}
        if kept and self._folder is not None:
            # First the file: what it cannot keep must not count either.
            change_keys(self._folder, self._namespace, kept)
        self.policies.replace_scope(scope, policies)
        made = [policy for policy in policies if _label(policy) not in self._configured]
        if made:
            self.commits.facts.rows[Table.META, policies_key(scope)] = policies_value(made)
        else:
            self.commits.facts.delete(Table.META, policies_key(scope))
        self.commits.request()
        for policy in changed:
            if self.on_change is not None:
                self.on_change(policy)

    def drop(self, scope: str) -> None:
        """An entity is gone, and its policies with it: one of the same name later must not inherit its keys."""
        self.policies.remove_scope(scope)
        gone = {label for label in self._configured if label[0] == normalised(scope)}
        self._configured -= gone
        self._kept -= gone
        self.commits.facts.delete(Table.META, policies_key(scope))

    def _check_keys_only(self, old: Policy, new: Policy) -> None:
        """What the configuration says of a policy is not changed here; keys it does not hold are."""
        if new.rights != old.rights:
            raise NotAllowedError(f"The rights of policy {old.name!r} stand in the configuration: change them there.")
        if _label(old) not in self._kept:
            raise NotAllowedError(f"The keys of policy {old.name!r} stand in the configuration: change them there.")
        if self._folder is None:
            raise NotAllowedError("In development mode any key is good: there is nothing to rotate.")

    def _key(self) -> str:
        return b64encode(self._random(_KEY_BYTES)).decode("ascii")


def _label(policy: Policy) -> _Label:
    return policy.scope, policy.name.lower()


def _where(scope: str) -> str:
    return f"'{scope}'" if scope else "the namespace"
