"""`twinbus receive`: receive messages from a queue or subscription; write each before settling it.

Rules:
- A message is settled only after it has been written and flushed. If the output fails, unsettled messages are released.
- With --delete the broker deletes a message as it sends it, so what is lost on the way is gone.
- When interrupted, it releases the messages it holds. With --follow, that is the normal end; until then it reconnects
  after a broken connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli import work
from twinbus.cli.entity import Dead, Entity, Subscription, path_of
from twinbus.cli.message_view import Body
from twinbus.cli.output import Output
from twinbus.cli.target import TargetNamespace, connected
from twinbus.cli.view import counted, one_line
from twinbus.errors import ConfigError, OperationTimeoutError, ServiceError, SessionCannotBeLockedError

if TYPE_CHECKING:
    from twinbus.client import BusClient, ReceivedMessage, Receiver

_BATCH = 100
# Use short steps: a receive-and-delete must not be interrupted in the middle, and a session lock may last only five
# seconds.
_STEP_S = 1.0
_FOR_EVER_S = 60.0
# Renew a session's lock when less than this is left.
_RENEW_MS = 15_000


class Then(StrEnum):
    """How to settle each message after it is printed."""

    COMPLETE = "complete"
    ABANDON = "abandon"
    DEFER = "defer"
    DEAD_LETTER = "dead-letter"


@dataclass(slots=True)
class Wish:
    """What to receive, and how to settle it."""

    path: str
    count: int | None
    wait_s: float
    follow: bool
    delete: bool
    then: Then
    reason: str | None
    description: str | None
    session: str | None
    any_session: bool
    deferred: Sequence[int]


@dataclass(slots=True)
class ReceiveResult:
    """The outcome of a receive."""

    written: int = 0
    settled: int = 0
    # Whether the entity was ever reached.
    connected: bool = False
    error: ServiceError | None = None


@connected
def receive(
    target: TargetNamespace,
    entity: Entity,
    subscription: Subscription = None,
    dead: Dead = False,
    max: Annotated[int, typer.Option("--max", "-m", metavar="N", min=1, help="Stop after N messages.")] = 1,
    all: Annotated[bool, typer.Option("--all", help="Receive until the entity is empty.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-F", help="Keep receiving until Ctrl-C.")] = False,
    wait: Annotated[str, typer.Option(metavar="DURATION", help="Maximum time to wait for a message.")] = "5s",
    session: Annotated[str | None, typer.Option(metavar="ID", help="Receive from this session.")] = None,
    any_session: Annotated[
        bool, typer.Option("--any-session", help="Receive from any session that has messages.")
    ] = False,
    deferred: Annotated[
        list[int] | None,
        typer.Option(metavar="NUMBER", help="Receive a deferred message by sequence number; repeatable."),
    ] = None,
    then: Annotated[Then, typer.Option(help="How to settle each message after it is printed.")] = Then.COMPLETE,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="With --then dead-letter: the reason.")] = None,
    description: Annotated[
        str | None, typer.Option(metavar="TEXT", help="With --then dead-letter: the description.")
    ] = None,
    delete: Annotated[
        bool,
        typer.Option("--delete", help="Receive and delete in one step: faster, but a message lost on the way is gone."),
    ] = False,
    body: Annotated[Body, typer.Option(help="How to show bodies.")] = Body.AUTO,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print bodies only, unchanged; one per line if there are several.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Receive messages. Each is written before it is completed, so none is lost.

    \b
    Example:
      twinbus receive orders
      twinbus receive orders --all --json > orders.jsonl
      twinbus receive news --subscription europe --follow --raw
      twinbus receive orders --max 10 --then dead-letter --reason unreadable
      twinbus receive orders --deferred 17 --deferred 21
    """
    from twinbus.durations import parse_ms

    path = path_of(entity, subscription, dead=dead)
    wish = Wish(
        path=path,
        count=None if all or follow else max,
        wait_s=parse_ms(wait) / 1000,
        follow=follow,
        delete=delete,
        then=then,
        reason=reason,
        description=description,
        session=session,
        any_session=any_session,
        deferred=deferred or [],
    )
    _check(wish, dead)
    output = Output(as_json=json, raw=raw, body=body, one=wish.count == 1 and len(wish.deferred) <= 1)
    received, interrupted = work.run(lambda stop: _receive(target, wish, output, stop))
    _tell(wish, received, interrupted)


def _check(wish: Wish, dead: bool) -> None:
    if wish.delete and wish.then is not Then.COMPLETE:
        raise ConfigError("--delete and --then cannot be combined: --delete settles messages on delivery.")
    if wish.then is not Then.DEAD_LETTER and (wish.reason is not None or wish.description is not None):
        raise ConfigError("--reason and --description need --then dead-letter.")
    if wish.then is Then.ABANDON and wish.count is None:
        raise ConfigError(
            "Abandoned messages are redelivered at once: use --then abandon with --max, not --all or --follow."
        )
    if wish.then is Then.DEAD_LETTER and dead:
        raise ConfigError("A dead letter cannot be dead-lettered again.")
    if wish.session is not None and wish.any_session:
        raise ConfigError("--session and --any-session cannot be combined.")
    if wish.deferred and (wish.any_session or wish.follow):
        raise ConfigError("--deferred cannot be combined with --follow or --any-session.")


async def _receive(target: TargetNamespace, wish: Wish, output: Output, stop: work.Stop) -> tuple[ReceiveResult, bool]:
    received = ReceiveResult()
    async with target.client() as client:
        if wish.follow:
            await _followed(client, wish, output, received, stop)
        else:
            await _received(client, wish, output, received, stop)
    return received, stop.is_set()


async def _received(client: BusClient, wish: Wish, output: Output, received: ReceiveResult, stop: work.Stop) -> None:
    if wish.any_session:
        await _sessions(client, wish, output, received, stop)
        return
    receiver = await stop.or_done(_opened(client, wish))
    if receiver is not None and wish.deferred:
        messages = await receiver.receive_deferred(wish.deferred)
        await _done(receiver, messages, wish, output, received)
    elif receiver is not None:
        received.connected = True
        await _drain(receiver, wish, output, received, stop)


async def _followed(client: BusClient, wish: Wish, output: Output, received: ReceiveResult, stop: work.Stop) -> None:
    """Receive until stopped, reconnecting after a broken connection if there was one."""
    from twinbus.client import Backoff

    backoff = Backoff()
    while not stop.is_set():
        before = received.written
        try:
            await _received(client, wish, output, received, stop)
            error = received.error
        except ServiceError as raised:
            error = raised
        if error is None:
            continue
        if not received.connected or not error.retryable:
            raise error
        # Messages written but not settled are delivered and written again.
        received.error = None
        if received.written > before:
            backoff.reset()
        typer.echo(one_line(f"twinbus: {error.text} Trying again."), err=True)
        await stop.or_done(asyncio.sleep(backoff.next_ms() / 1000))


async def _opened(client: BusClient, wish: Wish) -> Receiver:
    if wish.session is not None:
        return await client.accept_session(wish.path, wish.session, delete=wish.delete, timeout_ms=_ms(wish.wait_s))
    return await client.receiver(wish.path, delete=wish.delete)


async def _sessions(client: BusClient, wish: Wish, output: Output, received: ReceiveResult, stop: work.Stop) -> None:
    """Receive from one session after the other, as long as some have messages."""
    while not stop.is_set() and not _enough(wish, received):
        try:
            receiver = await stop.or_done(
                client.accept_session(wish.path, delete=wish.delete, timeout_ms=_ms(wish.wait_s))
            )
        except (OperationTimeoutError, SessionCannotBeLockedError):
            if wish.follow:
                continue
            return
        if receiver is None:
            return
        received.connected = True
        # An empty session gives way to the next one.
        await _drain(receiver, wish, output, received, stop, follow=False)
        await receiver.close()


async def _drain(
    receiver: Receiver, wish: Wish, output: Output, received: ReceiveResult, stop: work.Stop, follow: bool | None = None
) -> None:
    follow = wish.follow if follow is None else follow
    held: list[ReceivedMessage] = []
    hold = _SessionHold(receiver)
    waited_s = 0.0
    while not stop.is_set() and not _enough(wish, received):
        await hold.keep()
        wanted = _BATCH if wish.count is None else min(_BATCH, wish.count - received.written)
        step_s = _STEP_S if wish.delete or receiver.session_id is not None else _FOR_EVER_S
        wait_s = step_s if follow else min(step_s, max(wish.wait_s - waited_s, 0.0))
        asked = receiver.receive_batch(wanted, wait_s)
        messages = await asked if wish.delete else await stop.or_done(asked)
        if messages:
            waited_s = 0.0
            held += await _done(receiver, messages, wish, output, received)
        elif not follow and not stop.is_set():
            waited_s += wait_s
            if waited_s >= wish.wait_s:
                break
    # Abandon at the end, or they would be delivered again and again.
    for message in held:
        await _settle(receiver, [message], wish, received)


def _enough(wish: Wish, received: ReceiveResult) -> bool:
    return received.error is not None or (wish.count is not None and received.written >= wish.count)


async def _done(
    receiver: Receiver, messages: list[ReceivedMessage], wish: Wish, output: Output, received: ReceiveResult
) -> list[ReceivedMessage]:
    """Write messages and settle them; return those to settle at the end."""
    try:
        output.write(messages)
    except BaseException:
        receiver.release(messages)
        raise
    received.written += len(messages)
    if wish.delete:
        received.settled += len(messages)
    elif wish.then is Then.ABANDON:
        return messages
    else:
        await _settle(receiver, messages, wish, received)
    return []


async def _settle(receiver: Receiver, messages: list[ReceivedMessage], wish: Wish, received: ReceiveResult) -> None:
    if wish.then is Then.COMPLETE:
        outcomes = await receiver.complete_many(messages)
        received.settled += outcomes.count(None)
        received.error = received.error or next((each for each in outcomes if each is not None), None)
        return
    for message in messages:
        try:
            if wish.then is Then.ABANDON:
                await receiver.abandon(message)
            elif wish.then is Then.DEFER:
                await receiver.defer(message)
            else:
                await receiver.dead_letter(message, wish.reason, wish.description)
            received.settled += 1
        except ServiceError as error:
            received.error = received.error or error


class _SessionHold:
    """Renews a session's lock before it expires."""

    def __init__(self, receiver: Receiver) -> None:
        # Without a session there is nothing to renew.
        self._receiver = receiver
        # The lock's expiry as last reported.
        self._until_ms: int | None = None
        # The same on the steady clock, because the time of day may be set meanwhile.
        self._ends_ms = 0

    async def keep(self) -> None:
        from twinbus.client import SessionReceiver
        from twinbus.clock import SystemClock

        receiver = self._receiver
        if not isinstance(receiver, SessionReceiver) or receiver.locked_until_ms is None:
            return
        clock = SystemClock()
        if receiver.locked_until_ms != self._until_ms:
            self._until_ms = receiver.locked_until_ms
            self._ends_ms = clock.steady_ms() + self._until_ms - clock.now_ms()
        if self._ends_ms - clock.steady_ms() < _RENEW_MS:
            await receiver.renew_session()


def _ms(seconds: float) -> int:
    # The service needs a moment to look; a timeout of zero would never find a session.
    return int(min(max(seconds, 0.1), _FOR_EVER_S) * 1000)


def _tell(wish: Wish, received: ReceiveResult, interrupted: bool) -> None:
    if received.error is not None:
        left = received.written - received.settled
        raise type(received.error)(
            f"{left:,} of {received.written:,} messages were written but not settled, and will come again: "
            f"{received.error.text}"
        )
    if interrupted or wish.count is None or received.written != wish.count:
        if received.written:
            typer.echo(f"{counted(received.written, 'message')} received from {wish.path}.", err=True)
        elif not interrupted:
            typer.echo(f"No messages received from {wish.path}.", err=True)
    if interrupted and not wish.follow:
        raise typer.Exit(work.INTERRUPTED)
