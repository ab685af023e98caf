"""`twinbus send`: send one or many messages to a queue or topic, optionally at a given rate.

Rules:
- A message counts once the broker has accepted it, which means it is on disk. After the first refusal nothing more is
  sent, and the refused messages are listed.
- When interrupted, it waits for the outcomes of messages in flight and reports how many were accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from twinbus.cli import work
from twinbus.cli.entity import Destination
from twinbus.cli.settings import Json
from twinbus.cli.target import TargetNamespace, connected
from twinbus.cli.view import counted, show_json
from twinbus.clock import SystemClock
from twinbus.errors import ConfigError, ServiceError

if TYPE_CHECKING:
    from twinbus.client import Message, Sender

# The maximum that an AMQP header can hold.
_TTL_MS_MAX = 0xFFFFFFFF
_LINE_BYTES_MAX = 1 << 28
_NAMED = 5
# With `--count`, replaced by the message's number.
_NUMBER = "{n}"
# Options in which it is replaced, besides the body.
_NUMBERED = ("message_id", "session_id", "subject", "correlation_id", "partition_key", "to", "reply_to")


@dataclass(slots=True)
class Sent:
    """The outcome of a send."""

    accepted: int = 0
    # Ids of refused messages, and why the first was refused.
    refused: list[str] = field(default_factory=list)
    error: ServiceError | None = None
    seconds: float = 0.0
    interrupted: bool = False
    # Id of the last message; used if there is only one.
    message_id: str | None = None

    def settle(self, error: ServiceError | None, message_id: str) -> None:
        if error is None:
            self.accepted += 1
        else:
            self.refused.append(message_id)
            self.error = self.error or error


@connected
def send(
    target: TargetNamespace,
    entity: Destination,
    body: Annotated[
        str | None, typer.Argument(metavar="BODY", help="Body of the message; - reads standard input.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="File that contains the body.")
    ] = None,
    lines: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="File of messages: one JSON object per line, as `receive --json` prints them."
        ),
    ] = None,
    property: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            "-p",
            metavar="NAME=TEXT",
            help="Application property: NAME=text sets a string, NAME:=5 a number; repeatable.",
        ),
    ] = None,
    message_id: Annotated[str | None, typer.Option(metavar="TEXT", help="Message id [a new one].")] = None,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Session id.")] = None,
    content_type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Content type, such as application/json.")
    ] = None,
    subject: Annotated[str | None, typer.Option(metavar="TEXT", help="Subject (label).")] = None,
    correlation_id: Annotated[str | None, typer.Option(metavar="TEXT", help="Correlation id.")] = None,
    to: Annotated[str | None, typer.Option(metavar="TEXT", help="The To property.")] = None,
    reply_to: Annotated[str | None, typer.Option(metavar="TEXT", help="The ReplyTo property.")] = None,
    partition_key: Annotated[str | None, typer.Option(metavar="TEXT", help="Partition key.")] = None,
    ttl: Annotated[str | None, typer.Option(metavar="DURATION", help="Time to live [the entity's].")] = None,
    schedule: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Schedule it: 10m from now, or 2026-11-30T08:00Z.")
    ] = None,
    count: Annotated[
        int, typer.Option(metavar="N", min=1, help="Send it N times; {n} becomes the message's number.")
    ] = 1,
    rate: Annotated[float | None, typer.Option(metavar="N", min=0.001, help="Messages per second [no limit].")] = None,
    json: Json = False,
) -> None:
    """Send messages to a queue or topic.

    \b
    Example:
      twinbus send orders '{"id": 7}' --content-type application/json --property region=eu
      twinbus send orders --file order.json --session customer-4 --ttl 1h
      twinbus send orders 'order {n}' --count 10000 --rate 500
      twinbus receive orders --dead --all --json | twinbus send orders --lines -
    """
    defaults: dict[str, Any] = {
        "message_id": message_id,
        "session_id": session,
        "content_type": content_type,
        "subject": subject,
        "correlation_id": correlation_id,
        "to": to,
        "reply_to": reply_to,
        "partition_key": partition_key,
        "ttl_ms": _ttl_ms(ttl),
        "scheduled_ms": None if schedule is None else moment_ms(schedule, "--schedule", future=True),
        "application_properties": _properties(property),
    }
    if lines is not None:
        if body is not None or file is not None or count != 1 or message_id is not None:
            raise ConfigError("--lines cannot be combined with BODY, --file, --message-id or --count.")
        if lines != "-" and not Path(lines).is_file():
            raise ConfigError(f"There is no file {lines}: --lines needs a file of JSON lines, or - for standard input.")
    content = b"" if lines is not None else _body(body, file)

    def messages(stop: work.Stop) -> AsyncGenerator[Message, None]:
        return _copies(content, defaults, count) if lines is None else _read_lines(lines, defaults, stop)

    sent = work.run(lambda stop: _send(target, entity, messages(stop), rate, count if lines is None else None, stop))
    _tell(entity, sent, json)


async def _send(
    target: TargetNamespace,
    entity: str,
    messages: AsyncGenerator[Message, None],
    rate: float | None,
    total: int | None,
    stop: work.Stop,
) -> Sent:
    sent = Sent()
    async with target.client() as client, contextlib.aclosing(messages):
        sender = await stop.or_done(client.sender(entity))
        if sender is None:
            sent.interrupted = True
            return sent
        start = time.monotonic()
        with work.ProgressCounter(f"sending to {entity}", total) as counter:
            try:
                await _submit(sender, messages, rate, stop, sent, counter)
            finally:
                await sender.idle()
        sent.seconds = time.monotonic() - start
    return sent


async def _submit(
    sender: Sender,
    messages: AsyncGenerator[Message, None],
    rate: float | None,
    stop: work.Stop,
    sent: Sent,
    counter: work.ProgressCounter,
) -> None:
    start = time.monotonic()
    number = 0
    async for message in messages:
        if rate is not None:
            early_s = start + number / rate - time.monotonic()
            if early_s > 0:
                await stop.or_done(asyncio.sleep(early_s))
        if stop.is_set() or sent.error is not None:
            break
        number += 1
        sent.message_id = message.message_id
        try:
            if sender.room() <= 0:
                await sender.wait_for_room()
            sender.submit(message.encode(), sent.settle, str(message.message_id))
        except ServiceError as error:
            sent.settle(error, str(message.message_id))
        counter.add(sent.accepted - counter.done)
    sent.interrupted = stop.is_set()


def _tell(entity: str, sent: Sent, as_json: bool) -> None:
    rate = sent.accepted / sent.seconds if sent.seconds else 0.0
    if as_json:
        result = {
            "entity": entity,
            "accepted": sent.accepted,
            "refused": len(sent.refused),
            "seconds": round(sent.seconds, 3),
            "error": None if sent.error is None else sent.error.text,
        }
        show_json(result | ({"message_id": sent.message_id} if sent.accepted == 1 else {}))
    elif sent.accepted == 1 and not sent.refused:
        typer.echo(f"Accepted by {entity}: {sent.message_id}.")
    elif sent.accepted or sent.error is None:
        many = counted(sent.accepted, "message")
        typer.echo(f"{many} accepted by {entity} in {sent.seconds:.1f} s ({rate:,.0f} a second).")
    if sent.error is not None:
        names = ", ".join(sent.refused[:_NAMED]) + (" ..." if len(sent.refused) > _NAMED else "")
        raise type(sent.error)(f"{len(sent.refused):,} not accepted ({names}): {sent.error.text}")
    if sent.interrupted:
        raise typer.Exit(work.INTERRUPTED)


# --- what is sent -----------------------------------------------------------------------------------------------------


def _body(text: str | None, file: Path | None) -> bytes:
    if text is not None and file is not None:
        raise ConfigError("Pass either BODY or --file, not both.")
    if file is not None:
        return file.read_bytes()
    if text is not None and text != "-":
        return text.encode()
    if text is None and sys.stdin.isatty():
        raise ConfigError("No message given: pass BODY, --file FILE, --lines FILE, or - for standard input.")
    return sys.stdin.buffer.read()


async def _copies(body: bytes, defaults: dict[str, Any], count: int) -> AsyncGenerator[Message, None]:
    from twinbus.client import Message

    made = Message(body=body, **defaults)
    # Fields that contain the placeholder; a single message keeps it literally.
    numbered = [name for name in _NUMBERED if count > 1 and _NUMBER in (defaults.get(name) or "")]
    in_body = count > 1 and _NUMBER.encode() in body
    for number in range(1, count + 1):
        texts = {name: defaults[name].replace(_NUMBER, str(number)) for name in numbered}
        if in_body:
            texts["body"] = body.replace(_NUMBER.encode(), str(number).encode())
        if made.message_id is None:
            texts["message_id"] = uuid4().hex
        yield replace(made, **texts)


async def _read_lines(name: str, defaults: dict[str, Any], stop: work.Stop) -> AsyncGenerator[Message, None]:
    from twinbus.cli.message_view import message_of

    number = 0
    async for line in _lines(name, stop):
        number += 1
        if line.strip():
            message = message_of(line, number, defaults)
            yield message if message.message_id is not None else replace(message, message_id=uuid4().hex)


async def _lines(name: str, stop: work.Stop) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a file, or of standard input as they arrive."""
    if name != "-":
        with open(name, "rb") as file:  # noqa: ASYNC230 - a local file does not block for long
            for line in file:
                yield line
        return
    if stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
        for line in sys.stdin.buffer:
            yield line
        return
    # A pipe may be slow, and the connection must stay alive meanwhile.
    reader = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while coming := await stop.or_done(reader.readline()):
        yield coming


def _properties(texts: list[str] | None) -> dict[str, Any] | None:
    from twinbus.cli.properties import pairs

    return pairs("--property", texts or []) or None


def _ttl_ms(text: str | None) -> int | None:
    from twinbus.durations import parse_ms
    from twinbus.limits import UNLIMITED_MS

    if text is None:
        return None
    ms = parse_ms(text)
    if ms >= UNLIMITED_MS:
        return None
    if not 1 <= ms <= _TTL_MS_MAX:
        raise ConfigError(f"--ttl {text}: a message's time to live is 1ms to 49d; longer is `never`.")
    return ms


def moment_ms(text: str, option: str, *, future: bool) -> int:
    """Parse a time into milliseconds since the Unix epoch: a duration from now or ago, or a date."""
    from datetime import UTC, datetime

    from twinbus.durations import parse_ms

    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        now_ms = SystemClock().now_ms()
        try:
            ms = parse_ms(text)
        except ConfigError:
            raise ConfigError(f"{option} {text!r}: write a duration such as 10m, or 2026-11-30T08:00Z.") from None
        return now_ms + ms if future else max(now_ms - ms, 0)
    return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)
