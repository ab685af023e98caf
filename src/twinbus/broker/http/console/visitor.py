"""The sender of a console request, and what they may see and do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from twinbus.auth.claims import Claim
from twinbus.auth.policies import Right
from twinbus.auth.scope import covers, normalised
from twinbus.broker.http.console.answers import Refused
from twinbus.errors import UnauthorizedError

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost
    from twinbus.broker.http.console.logins import Login


class Visitor:
    """One request's login and the namespaces of the process. Created for each request, because rights may change."""

    __slots__ = ("_claims", "_hosts", "here", "login")

    def __init__(self, hosts: Mapping[str, NamespaceHost], here: NamespaceHost, login: Login) -> None:
        self._hosts = hosts
        # The namespace whose port received the request.
        self.here = here
        self.login = login
        # Cached claims by namespace, because a list needs them for each row.
        self._claims: dict[str, Claim | None] = {}

    @property
    def hosts(self) -> list[NamespaceHost]:
        """The namespaces it may know of: all of them once it has opened one."""
        opened = any(self.claim(host) is not None for host in self._hosts.values())
        return list(self._hosts.values()) if opened else [self.here]

    def claim(self, host: NamespaceHost) -> Claim | None:
        if host.name not in self._claims:
            self._claims[host.name] = self.login.claim(host)
        return self._claims[host.name]

    def host(self, name: str) -> NamespaceHost:
        """An open namespace by name; without a name, the one whose port was used. Raises if it is not open."""
        found = self.find(name)
        if self.claim(found) is None:
            if self.login.account(found) is not None:
                raise Refused(401, f"Your sign-in to the namespace '{found.name}' has expired. Sign in again.")
            raise Refused(401, f"Log in to the namespace '{found.name}' with a key.")
        return found

    def find(self, name: str) -> NamespaceHost:
        """A namespace by name, open or not."""
        if not name:
            return self.here
        for host in self.hosts:
            if host.name.lower() == name.lower():
                return host
        raise Refused(404, f"There is no namespace '{name[:64]}' here.")

    def rights(self, host: NamespaceHost, path: str) -> list[str]:
        """Its rights on a path; empty if its key does not cover the path."""
        claim = self.claim(host)
        if claim is None or not covers(claim.path, normalised(path)):
            return []
        return sorted(claim.rights)

    def may(self, host: NamespaceHost, path: str, right: Right) -> bool:
        claim = self.claim(host)
        return claim is not None and claim.allows(path, right)

    def need(self, host: NamespaceHost, path: str, *rights: Right) -> None:
        """Raise unless it has all rights on a path ('' for the whole namespace)."""
        for right in rights:
            if not self.may(host, path, right):
                where = f"'{path}'" if path else f"the namespace '{host.name}'"
                yours = "key" if self.login.account(host) is None else "account"
                raise UnauthorizedError(f"Your {yours} does not have the right {right} on {where}.")
