"""The policies of a running namespace, and creating, rotating and deleting them without a restart.

Each policy has one home, where its changes are stored:

- Keys in the configuration file: change them there.
- Named in the configuration without keys, and the namespace's root policy: `keys.json` (broker/security/keys.py).
- Created at run time on the namespace or an entity: a row in the store (broker/security/stored_policies.py).

A change takes effect at once: a token signed with a removed key is rejected. What was granted before lasts until the
token expires.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from twinbus.auth.policies import Policies, Policy, Right
from twinbus.auth.scope import normalised
from twinbus.broker.security.keys import change_keys, new_key
from twinbus.broker.security.stored_policies import policies_key, policies_value, read_policies
from twinbus.errors import ArgumentError, EntityExistsError, EntityNotFoundError, NotAllowedError
from twinbus.store.facts import Table

if TYPE_CHECKING:
    from twinbus.broker.commits import CommitLoop

Which = Literal["primary", "secondary", "swap"]
WHICH: tuple[Which, ...] = ("primary", "secondary", "swap")

# Identifies a policy: its scope and its lower-case name.
_Label = tuple[str, str]


class Keyring:
    """The policies of one namespace and its entities, and where each is stored."""

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
        # For its section of `keys.json`.
        self._namespace = namespace
        # Policies named in the configuration, which cannot be deleted here.
        self._configured: set[_Label] = {_label(policy) for policy in given}
        # Those of them whose keys are in `keys.json`.
        self._kept: set[_Label] = {(normalised(scope), name.lower()) for scope, name in kept}
        # The folder of `keys.json`; None if there is none, as in development mode.
        self._folder = folder
        self._random = random
        # Called with each changed policy.
        self.on_change: Callable[[Policy], None] | None = None
        # Writes rows; set once the store's writer exists.
        self.commits: CommitLoop
        for policy in read_policies(stored):
            # The configuration wins over a stored policy of the same name.
            if _label(policy) not in self._configured:
                self.policies.add(policy)

    # --- looking ----------------------------------------------------------------------------------------------------

    def find(self, scope: str, name: str) -> Policy:
        """The policy of that name on exactly that scope; raises if there is none."""
        for policy in self.policies.scoped(scope):
            if policy.name.lower() == name.lower():
                return policy
        raise EntityNotFoundError(f"There is no policy {name[:64]!r} on {_where(scope)}.")

    def check(self, scope: str, policies: Sequence[Policy] | None) -> None:
        """Raise if these cannot be all policies of a scope; None changes nothing."""
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
        """Create a policy, or change its rights and the given keys; with `new`, raise if it exists."""
        others = self.policies.scoped(scope)
        old = next((policy for policy in others if policy.name.lower() == name.lower()), None)
        if old is not None and new:
            raise EntityExistsError(f"The policy {name[:64]!r} exists already on {_where(scope)}.")
        if old is None:
            primary, secondary = primary_key or new_key(self._random), secondary_key or new_key(self._random)
            made = Policy(name, rights, primary, secondary, scope, now_ms, now_ms)
        else:
            primary, secondary = primary_key or old.primary_key, secondary_key or old.secondary_key
            made = replace(old, rights=rights, primary_key=primary, secondary_key=secondary, modified_ms=now_ms)
        self.replace(scope, [*(policy for policy in others if policy is not old), made])
        return made

    def rotate(self, scope: str, name: str, which: Which, now_ms: int) -> Policy:
        """Replace one of the two keys, or swap them so that the primary can be retired one step later."""
        old = self.find(scope, name)
        if which == "swap":
            if not old.secondary_key:
                raise ArgumentError(f"The policy {old.name!r} has no secondary key to swap with: rotate that first.")
            new = replace(old, primary_key=old.secondary_key, secondary_key=old.primary_key, modified_ms=now_ms)
        elif which == "primary":
            new = replace(old, primary_key=new_key(self._random), modified_ms=now_ms)
        else:
            new = replace(old, secondary_key=new_key(self._random), modified_ms=now_ms)
        others = [policy for policy in self.policies.scoped(scope) if policy is not old]
        self.replace(scope, [*others, new])
        return new

    def delete(self, scope: str, name: str) -> None:
        """Delete a policy that was created at run time."""
        gone = self.find(scope, name)
        self.replace(scope, [policy for policy in self.policies.scoped(scope) if policy is not gone])

    def replace(self, scope: str, policies: Sequence[Policy]) -> None:
        """Replace all policies of a scope permanently: all or nothing."""
        self.check(scope, policies)
        before = {_label(policy): policy for policy in self.policies.scoped(scope)}
        changed = [policy for policy in policies if before.get(_label(policy)) != policy]
        kept = {_label(policy): list(policy.keys) for policy in changed if _label(policy) in self._kept}
        if kept and self._folder is not None:
            # The file first: a key that cannot be saved must not take effect.
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
        """Delete the policies of a deleted entity: a later entity of the same name must not inherit its keys."""
        self.policies.remove_scope(scope)
        gone = {label for label in self._configured if label[0] == normalised(scope)}
        self._configured -= gone
        self._kept -= gone
        self.commits.facts.delete(Table.META, policies_key(scope))

    def _check_keys_only(self, old: Policy, new: Policy) -> None:
        """Raise if a change touches what the configuration says; keys that it does not contain may change."""
        if new.rights != old.rights:
            raise NotAllowedError(f"The rights of policy {old.name!r} stand in the configuration: change them there.")
        if _label(old) not in self._kept:
            raise NotAllowedError(f"The keys of policy {old.name!r} stand in the configuration: change them there.")
        if self._folder is None:
            raise NotAllowedError("In development mode any key is good: there is nothing to rotate.")


def _label(policy: Policy) -> _Label:
    return policy.scope, policy.name.lower()


def _where(scope: str) -> str:
    return f"'{scope}'" if scope else "the namespace"
