"""Move messages atomically: the copies are sent and the originals completed together, or neither.

Two rules. A transaction takes effect when its discharge is accepted, not before. Any failure rolls it back, so the
originals stay where they were, locked by their receiver, which is on the same connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from twinbus.amqp import (
    STATE_ACCEPTED,
    AmqpMessage,
    Coordinator,
    Described,
    Disposed,
    Source,
    ULong,
    state_transactional,
)
from twinbus.amqp.states import Declared, State
from twinbus.client.conditions import refusal
from twinbus.client.endpoint import Endpoint
from twinbus.errors import InternalError, OperationTimeoutError, ServiceError
from twinbus.limits import CLIENT_TIMEOUT_MS, TRANSACTION_MESSAGES_MAX

if TYPE_CHECKING:
    from twinbus.client.connection import BusConnection
    from twinbus.client.message import ReceivedMessage
    from twinbus.client.receiver import Receiver
    from twinbus.client.sender import Sender

_DECLARE = ULong(0x31)
_DISCHARGE = ULong(0x32)

# Messages that one transaction can move: each is sent once and settled once.
MOVED_MAX = TRANSACTION_MESSAGES_MAX // 2


class Transactions(Endpoint):
    """A control link in the session of a sender: a transaction that is to span entities must share their session."""

    def __init__(self, connection: BusConnection, sender: Sender) -> None:
        super().__init__(connection, "$coordinator", sender)
        self._sender = sender
        # Unanswered requests by delivery id.
        self._asked: dict[int, asyncio.Future[State | None]] = {}
        self._number = 0
        self._link = self._await_link(
            self.session.attach_sender(
                f"transactions-{uuid4()}", source=Source("transactions"), target=Coordinator(), rcv_settle_mode=0
            )
        )

    async def open(self, timeout_ms: int = CLIENT_TIMEOUT_MS) -> None:
        """Wait until the link is attached; raise ServiceError if the peer has no transactions."""
        await self._come_up(timeout_ms)

    async def move(self, receiver: Receiver, moved: Sequence[tuple[ReceivedMessage, bytes]]) -> None:
        """Send each payload and complete its message, atomically; on ServiceError nothing was done."""
        if len(moved) > MOVED_MAX:
            raise ValueError(f"a transaction moves at most {MOVED_MAX} messages, not {len(moved)}")
        declared = await self._ask(Described(_DECLARE, [None]))
        if not isinstance(declared, Declared):
            raise refusal(declared) or InternalError("A transaction was not declared.")
        failed = False
        try:
            async with asyncio.timeout(CLIENT_TIMEOUT_MS / 1000):
                state = state_transactional(declared.txn_id, None)
                _check(await self._sender.send_many([payload for _, payload in moved], state=state))
                # Settle only after all sends are accepted: messages settled in a failed transaction stay locked.
                state = state_transactional(declared.txn_id, STATE_ACCEPTED)
                _check(await receiver.settle_nowait([message for message, _ in moved], state))
        except TimeoutError:
            failed = True
            raise OperationTimeoutError(f"No answer in a transaction within {CLIENT_TIMEOUT_MS} ms.") from None
        except BaseException:
            failed = True
            raise
        finally:
            if failed and self.error is None:
                await self._ask(Described(_DISCHARGE, [declared.txn_id, True]))
        answer = refusal(await self._ask(Described(_DISCHARGE, [declared.txn_id, False])))
        if answer is not None:
            raise answer

    async def _ask(self, command: Described) -> State | None:
        self.check()
        number = self._number
        self._number += 1
        message = AmqpMessage.of_value(command)
        delivery_id = self._link.send(message.encode(), tag=number.to_bytes(8, "big"), settled=False)
        answer: asyncio.Future[State | None] = asyncio.get_running_loop().create_future()
        self._asked[delivery_id] = answer
        self.connection.wire.flush_soon()
        try:
            async with asyncio.timeout(CLIENT_TIMEOUT_MS / 1000):
                return await answer
        except TimeoutError:
            raise OperationTimeoutError(f"No answer about a transaction within {CLIENT_TIMEOUT_MS} ms.") from None
        finally:
            self._asked.pop(delivery_id, None)

    def on_disposed(self, event: Disposed) -> None:
        for delivery_id, _, _ in event.deliveries:
            answer = self._asked.get(delivery_id)
            if answer is not None and not answer.done():
                answer.set_result(event.state)

    def fail(self, error: ServiceError) -> None:
        super().fail(error)
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(self._reason())


def _check(outcomes: list[ServiceError | None]) -> None:
    error = next((each for each in outcomes if each is not None), None)
    if error is not None:
        raise type(error)(*error.args)
