"""Who calls, and what they may do. Administration needs Manage even for reading, because descriptions contain keys.

Clients send the signature as it is or as a bearer token; some sign the namespace, some the full address of the request.
Development mode trusts everybody, as it does over AMQP.
"""

from __future__ import annotations

from collections.abc import Mapping

from twinbus.auth.claims import EVERYTHING, Claim, decide
from twinbus.auth.jwt import JwtVerifier
from twinbus.auth.policies import Policies, Right
from twinbus.broker.http.admin.errors import AdminError
from twinbus.errors import ArgumentError, ServiceError, UnauthorizedError

_OWN = "authorization"
_BEARER = "bearer "


class Caller:
    """The sender of one request."""

    __slots__ = ("_dev", "_headers", "_jwt", "_now_s", "_policies")

    def __init__(
        self,
        headers: Mapping[str, str],
        policies: Policies,
        now_s: float,
        dev: bool,
        jwt: JwtVerifier | None = None,
    ) -> None:
        # By lower-case name.
        self._headers = headers
        self._policies = policies
        self._now_s = now_s
        # Trust everybody.
        self._dev = dev
        # Verifies JSON web tokens; None rejects them.
        self._jwt = jwt

    def may_manage(self, path: str) -> bool:
        """Whether the token allows managing `path` ('' for the whole namespace). A bad token raises."""
        return self._may(path, Right.MANAGE)

    def may_listen(self, path: str) -> bool:
        """Whether the token allows receiving from `path`. A bad token raises."""
        return self._may(path, Right.LISTEN)

    def _may(self, path: str, right: Right) -> bool:
        return self._claim(path).allows(path, right)

    def _claim(self, path: str) -> Claim:
        claim = self._decide(_OWN, path)
        if claim is None:
            raise AdminError(401, f"Missing authorization token. Resource: '/{path}'.", 40103)
        return claim

    def need(self, path: str, right: Right) -> None:
        """Raise unless the caller has `right` on `path`."""
        claim = self._claim(path)
        if not claim.allows(path, right):
            raise UnauthorizedError(
                f"Unauthorized access. '{right}' claim(s) are required to perform this operation. Resource: '/{path}'.",
                policy=claim.policy,
            )

    def need_send(self, path: str, header: str) -> None:
        """Raise unless the caller may send to `path`, by the request's own token or by the one in `header`."""
        try:
            claim = self._decide(_OWN, path)
        except ServiceError:
            # It may cover only the entity itself; then the other token decides.
            claim = None
        if claim is None or not claim.allows(path, Right.SEND):
            claim = self._decide(header, path)
        if claim is None or not claim.allows(path, Right.SEND):
            raise UnauthorizedError(
                "Unauthorized access. 'Send' claim(s) are required on the entity that messages are forwarded to. "
                f"Resource: '/{path}'."
            )

    def _decide(self, header: str, path: str) -> Claim | None:
        if self._dev:
            return EVERYTHING
        token = self._headers.get(header, "").strip()
        if token[: len(_BEARER)].lower() == _BEARER:
            token = token[len(_BEARER) :].strip()
        if not token:
            return None
        try:
            return decide(token, f"sb://host/{path}", self._policies, self._now_s, jwt=self._jwt)
        except ArgumentError as error:
            raise AdminError(401, error.text, 40104) from None
