"""Transactions over a bare peer."""

from __future__ import annotations

import uuid

from tests.broker.peer import Peer

from twinbus.amqp.events import Disposed, Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.states import STATE_ACCEPTED, Declared, State, state_transactional
from twinbus.amqp.terminus import Coordinator
from twinbus.amqp.types import Described, ULong

DECLARE = 0x31
DISCHARGE = 0x32


class Control:
    """The control link of a connection."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._link = peer.session.attach_sender(str(uuid.uuid4()), source=None, target=Coordinator([]))
        peer._answered(self._link)

    def declare(self) -> bytes:
        state = self._answer(self._command(DECLARE, [None]))
        assert isinstance(state, Declared)
        return state.txn_id

    def send(self, link: Link, txn_id: bytes, payload: bytes) -> State | None:
        tag = uuid.uuid4().bytes
        return self._answer(link.send(payload, tag=tag, settled=False, state=state_transactional(txn_id, None)))

    def complete(self, delivery: Transfer, txn_id: bytes) -> State | None:
        return self._peer.settle(delivery, state_transactional(txn_id, STATE_ACCEPTED))

    def discharge(self, txn_id: bytes, *, fail: bool = False) -> State | None:
        return self._answer(self.begin_discharge(txn_id, fail=fail))

    def begin_discharge(self, txn_id: bytes, *, fail: bool = False) -> int:
        """Discharge without waiting for the answer."""
        delivery_id = self._command(DISCHARGE, [txn_id, fail])
        self._peer.flush()
        return delivery_id

    def _command(self, code: int, fields: list[object]) -> int:
        message = AmqpMessage()
        message.value, message.has_value = Described(ULong(code), fields), True
        return self._link.send(message.encode(), tag=uuid.uuid4().bytes, settled=False)

    def _answer(self, delivery_id: int) -> State | None:
        return self._peer.wait(Disposed, lambda event: any(each[0] == delivery_id for each in event.deliveries)).state
