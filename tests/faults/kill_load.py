"""The load of the kill test: sends, receives and settles through every death of the broker, and logs what it was told.

Nothing is ever sent twice and every message has its own id, so that each line of the log is about one fate. With
`--drain` it takes out all that is left instead. It stops on SIGTERM; a settlement the broker refuses is an error.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import time
from pathlib import Path
from typing import TextIO

from kill_checker import Did

from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import Attached, Closed, Credit, Detached, Disposed, Ended, Event, Opened, Outcome, Transfer
from twinbus.amqp.link import Link
from twinbus.amqp.message import AmqpMessage
from twinbus.amqp.session import Session
from twinbus.amqp.states import ACCEPTED, STATE_ACCEPTED, AmqpError, Rejected, State, state_rejected
from twinbus.amqp.terminus import Source, Target
from twinbus.auth.connection_string import ConnectionString

WINDOW = 60
PREFETCH = 60
# Of the messages received: every tenth is dead-lettered, every seventh only held, so that some are always locked.
BURY_EACH = 10
HOLD_EACH = 7
QUIET_S = 1.5
BURIAL = state_rejected(AmqpError("com.microsoft:dead-letter", "", {"DeadLetterReason": "kill test"}))


class Log:
    """What happened, in order. Flushed with each burst, because somebody watches it."""

    def __init__(self, file: TextIO) -> None:
        self.file = file
        self.last_at = time.monotonic()

    def __call__(self, did: Did, message: str) -> None:
        self.file.write(f"{did} {message}\n")
        self.last_at = time.monotonic()


class Peer(asyncio.Protocol):
    """One life of one connection with one link. `over` is done when it ended, whatever ended it."""

    def __init__(self, options: argparse.Namespace, log: Log) -> None:
        self.options = options
        self.log = log
        self.connection = Connection(Role.CLIENT, container_id="twinbus-kill", hostname="localhost")
        self.transport: asyncio.Transport | None = None
        self.link: Link | None = None
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        target = self.options.target
        self.connection.start(sasl=("PLAIN", f"\0{target.key_name}\0{target.key}".encode()))
        self.flush()

    def data_received(self, data: bytes) -> None:
        try:
            for event in self.connection.receive(data):
                self.handle(event)
        except Exception as error:
            self.end(error)
        self.flush()
        self.log.file.flush()

    def connection_lost(self, error: Exception | None) -> None:
        self.end(None)

    def flush(self) -> None:
        if self.transport is not None and (output := self.connection.take_output()):
            self.transport.write(output)

    def handle(self, event: Event) -> None:
        if isinstance(event, Opened):
            self.link = self.attach(self.connection.begin())
        elif isinstance(event, Ended | Detached | Closed):
            raise RuntimeError(f"The broker ended it: {event.error}")

    def attach(self, session: Session) -> Link:
        raise NotImplementedError

    def end(self, error: Exception | None) -> None:
        if not self.over.done():
            if error is None:
                self.over.set_result(None)
            else:
                self.over.set_exception(error)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class Sender(Peer):
    """Keeps WINDOW messages under way. What is unanswered when the broker dies stays in doubt."""

    # Number of the next message; ids are never used again.
    number = 0

    def attach(self, session: Session) -> Link:
        return session.attach_sender("kill-send", source=Source("kill"), target=Target(self.options.queue))

    def handle(self, event: Event) -> None:
        if isinstance(event, Disposed):
            for _, _, tag in event.deliveries:
                if event.state is not ACCEPTED:
                    raise RuntimeError(f"A send was refused: {event.state}")
                self.log(Did.ACCEPTED, tag.decode())
            self.pump()
        elif isinstance(event, Attached | Credit):
            self.pump()
        else:
            super().handle(event)

    def pump(self) -> None:
        link = self.link
        if link is None:
            return
        for _ in range(min(WINDOW - len(link.session.unsettled), link.sendable())):
            name = f"{Sender.number:08}"
            Sender.number += 1
            message = AmqpMessage.of_data(b"x" * 500)
            message.message_id = name
            self.log(Did.SENT, name)
            link.send(message.encode(), tag=name.encode(), settled=False)


class Receiver(Peer):
    """Receives and settles; each settlement is confirmed before it counts."""

    def __init__(self, options: argparse.Namespace, log: Log) -> None:
        super().__init__(options, log)
        self.count = 0
        # Settlements under way: delivery id -> message id and what its confirmation means.
        self.settling: dict[int, tuple[str, Did]] = {}

    def attach(self, session: Session) -> Link:
        return session.attach_receiver("kill-receive", source=Source(self.options.queue), credit=PREFETCH)

    def handle(self, event: Event) -> None:
        if isinstance(event, Transfer):
            name = message_id(event)
            self.log(Did.RECEIVED, name)
            self.count += 1
            session, number = event.link.session, event.delivery_id
            if self.count % BURY_EACH == 0:
                self.log(Did.BURYING, name)
                self.settling[number] = (name, Did.BURIED)
                session.dispose(number, number, BURIAL, False)
            elif self.count % HOLD_EACH != 0:
                self.log(Did.COMPLETING, name)
                self.settling[number] = (name, Did.COMPLETED)
                session.dispose(number, number, STATE_ACCEPTED, False)
        elif isinstance(event, Outcome):
            for number in range(event.first, event.last + 1):
                name, did = self.settling.pop(number)
                if not confirms(event.state, did):
                    raise RuntimeError(f"A settlement was refused: {event.state}")
                self.log(did, name)
        else:
            super().handle(event)


class Drain(Peer):
    """Takes everything out of a queue."""

    def __init__(self, options: argparse.Namespace, log: Log, address: str, did: Did) -> None:
        super().__init__(options, log)
        self.address = address
        self.did = did

    def attach(self, session: Session) -> Link:
        return session.attach_receiver("kill-drain", source=Source(self.address), snd_settle_mode=1, credit=500)

    def handle(self, event: Event) -> None:
        if isinstance(event, Transfer):
            self.log(self.did, message_id(event))
        else:
            super().handle(event)


def message_id(event: Transfer) -> str:
    assert event.payload is not None
    return str(AmqpMessage.decode(event.payload).message_id)


def confirms(state: State | None, did: Did) -> bool:
    if did is Did.BURIED:
        return isinstance(state, Rejected) and state.error is None
    return state is ACCEPTED


async def live(make: type[Sender] | type[Receiver], options: argparse.Namespace, log: Log) -> None:
    """One connection after the other, until cancelled; the broker's deaths are expected."""
    while True:
        peer = make(options, log)
        with contextlib.suppress(ConnectionError):
            await asyncio.get_running_loop().create_connection(lambda: peer, "127.0.0.1", options.target.port)  # noqa: B023
            try:
                await peer.over
            finally:
                peer.abort()
        await asyncio.sleep(0.02)


async def load(options: argparse.Namespace, log: Log) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    tasks = [asyncio.create_task(live(make, options, log)) for make in (Sender, Receiver)]
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


async def drain(options: argparse.Namespace, log: Log) -> None:
    for address, did in ((options.queue, Did.FOUND), (f"{options.queue}/$DeadLetterQueue", Did.FOUND_DEAD)):
        peer = Drain(options, log, address, did)
        await asyncio.get_running_loop().create_connection(lambda: peer, "127.0.0.1", options.target.port)  # noqa: B023
        log.last_at = time.monotonic()
        while time.monotonic() - log.last_at < QUIET_S:
            await asyncio.sleep(0.05)
            if peer.over.done():
                peer.over.result()
                raise RuntimeError("The broker closed the connection.")
        peer.abort()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connection-string", dest="target", type=ConnectionString.parse, required=True)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--drain", action="store_true")
    options = parser.parse_args()
    with options.log.open("a") as file:
        asyncio.run((drain if options.drain else load)(options, Log(file)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
