"""`$cbs`: a client puts a token for an audience, and the connection remembers the claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.amqp.reader import locate, section_kind
from twinbus.amqp.types import Int
from twinbus.auth.claims import decide
from twinbus.broker.links.addresses import parse
from twinbus.broker.nodes.requests import Request
from twinbus.errors import ArgumentError, DecodeError, PeerLimitError, ServiceError, UnauthorizedError
from twinbus.limits import TOKEN_PROPERTIES_BYTES_MAX, TOKENS_PER_CONNECTION_MAX

if TYPE_CHECKING:
    from twinbus.broker.connections.connection import BrokerConnection


# Format codes of binary, string and symbol.
_TEXTS = frozenset((0xA0, 0xB0, 0xA1, 0xB1, 0xA3, 0xB3))


class Cbs:
    """The token node of one connection."""

    __slots__ = ("_connection",)

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection

    def check(self, payload: bytes) -> None:
        """Anybody may send here, so decode only what looks like a token: text with little around it."""
        body = locate(payload).body
        if body is None or payload[section_kind(payload, body[0])[1]] not in _TEXTS:
            raise DecodeError("the token must be the message's value, as a string")
        if body[0] > TOKEN_PROPERTIES_BYTES_MAX or len(payload) - body[1] > TOKEN_PROPERTIES_BYTES_MAX:
            raise PeerLimitError(f"more than {TOKEN_PROPERTIES_BYTES_MAX} bytes stand around the token")

    def handle(self, request: Request) -> None:
        connection = self._connection
        host = connection.host
        audience = str(request.properties.get("name", ""))
        try:
            if request.operation != "put-token":
                raise ArgumentError(f"The operation '{request.operation[:64]}' is not known; $cbs takes put-token.")
            token = request.message.value
            if isinstance(token, bytes):
                token = token.decode("utf-8", "replace")
            if not isinstance(token, str):
                raise ArgumentError("The token must be the message's value, as a string.")
            if audience not in connection.claims and len(connection.claims) >= TOKENS_PER_CONNECTION_MAX:
                self._answer(request, 403, f"A connection takes at most {TOKENS_PER_CONNECTION_MAX} tokens.")
                return
            now_s = host.clock.now_ms() / 1000
            claim = decide(token, audience, host.policies, now_s, host.dev, jwt=host.jwt)
            self._check_entity(audience)
            connection.add_claim(audience, claim)
        except ServiceError as error:
            text, tracking_id = host.tracker.text(connection.addressed(error).text, "$cbs")
            if isinstance(error, UnauthorizedError):
                host.refusals.add(
                    error.reason, connection.address, policy=error.policy, entity=audience, tracking_id=tracking_id
                )
            self._answer(request, error.status, text)
            return
        self._answer(request, 202, "Accepted")

    def _check_entity(self, audience: str) -> None:
        """Raise EntityNotFoundError if the audience is an entity that does not exist, as the service does."""
        path = parse(audience).path
        if "://" in audience and path and not path.startswith("$"):
            self._connection.host.entities.entity(path)

    def _answer(self, request: Request, status: int, text: str) -> None:
        request.answer({"status-code": Int(status), "status-description": text}, None)
