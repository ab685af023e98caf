"""The load of the kill test: sends, receives and settles across every kill of the broker, and logs the answers.

Nothing is ever sent twice and every message has its own id, so that each line of the log is about one fate. With
`--drain` it receives all remaining messages instead. It stops on SIGTERM. A refusal is an error; a lost connection is
not.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TextIO

from kill_checker import Did

from twinbus.amqp import STATE_ACCEPTED, AmqpError, state_rejected
from twinbus.client import BusClient, Message, ReceivedMessage, Receiver
from twinbus.errors import ConnectionForcedError, OperationTimeoutError, ServiceError

WINDOW = 60
PREFETCH = 60
# Of the messages received: every tenth is dead-lettered, every seventh only held, so that some are always locked.
BURY_EACH = 10
HOLD_EACH = 7
QUIET_S = 1.5
BURIAL = state_rejected(AmqpError("com.microsoft:dead-letter", "", {"DeadLetterReason": "kill test"}))
# The errors that a client gets when the broker dies; any other is a fault of the broker.
DEATHS = (ConnectionForcedError, OperationTimeoutError)


class Load:
    """One sender and one receiver that outlive the broker."""

    def __init__(self, connection_string: str, queue: str, file: TextIO) -> None:
        self.connection_string = connection_string
        self.queue = queue
        # Flushed with each burst, because the test reads it meanwhile.
        self.file = file
        # Number of the next message; ids are never reused.
        self.number = 0
        # Number of messages received; determines what to do with each.
        self.received = 0
        # The first refusal.
        self.refusal: ServiceError | None = None

    def log(self, did: Did, message: str) -> None:
        self.file.write(f"{did} {message}\n")

    async def run(self) -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        tasks = [asyncio.create_task(self.again_and_again(work)) for work in (self.send, self.receive)]
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def again_and_again(self, work: Callable[[BusClient], Awaitable[None]]) -> None:
        """One connection after the other, until cancelled."""
        while True:
            client = BusClient.from_connection_string(self.connection_string, timeout_ms=5_000)
            try:
                await work(client)
            except DEATHS:
                await asyncio.sleep(0.02)
            finally:
                await client.close()
            if self.refusal is not None:
                raise self.refusal

    async def send(self, client: BusClient) -> None:
        """Keeps the window full; what is unanswered when the broker dies stays in doubt."""
        sender = await client.sender(self.queue, window=WINDOW)
        while self.refusal is None:
            await sender.wait_for_room()
            for _ in range(sender.room()):
                name = f"{self.number:08}"
                self.number += 1
                self.log(Did.SENT, name)
                sender.submit(Message(b"x" * 500, message_id=name).encode(), self.answered, (name, Did.ACCEPTED))
            self.file.flush()

    async def receive(self, client: BusClient) -> None:
        receiver = await client.receiver(self.queue, prefetch=PREFETCH)
        while self.refusal is None:
            messages = await receiver.receive_batch(PREFETCH, wait_s=None)
            completing, burying = [], []
            for message in messages:
                self.log(Did.RECEIVED, str(message.message_id))
                self.received += 1
                if self.received % BURY_EACH == 0:
                    burying.append(message)
                elif self.received % HOLD_EACH != 0:
                    completing.append(message)
            self.settle(receiver, completing, STATE_ACCEPTED, Did.COMPLETING, Did.COMPLETED)
            self.settle(receiver, burying, BURIAL, Did.BURYING, Did.BURIED)
            self.file.flush()

    def settle(self, receiver: Receiver, messages: list[ReceivedMessage], state: bytes, doing: Did, done: Did) -> None:
        names = [str(message.message_id) for message in messages]
        for name in names:
            self.log(doing, name)

        def settled(answers: asyncio.Future[list[ServiceError | None]]) -> None:
            for name, error in zip(names, answers.result(), strict=True):
                self.answered(error, (name, done))
            self.file.flush()

        receiver.settle_nowait(messages, state).add_done_callback(settled)

    def answered(self, error: ServiceError | None, about: tuple[str, Did]) -> None:
        if error is None:
            self.log(about[1], about[0])
        elif not isinstance(error, DEATHS):
            self.refusal = error

    async def drain(self) -> None:
        """Takes everything out of the queue and its dead-letter queue."""
        async with BusClient.from_connection_string(self.connection_string) as client:
            for dead in (False, True):
                receiver = await client.receiver(self.queue, prefetch=500, delete=True, dead_letters=dead)
                while messages := await receiver.receive_batch(500, wait_s=QUIET_S):
                    for message in messages:
                        self.log(Did.FOUND_DEAD if dead else Did.FOUND, str(message.message_id))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connection-string", required=True)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--drain", action="store_true")
    options = parser.parse_args()
    with options.log.open("a") as file:
        load = Load(options.connection_string, options.queue, file)
        asyncio.run(load.drain() if options.drain else load.run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
