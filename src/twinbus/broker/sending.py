"""Sends to an entity: at once, or in steps if the batch is large or a topic makes many copies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from twinbus.broker.durability import resolve
from twinbus.broker.slices import Work
from twinbus.entities.large_send import LargeSend
from twinbus.entities.message import NewMessage
from twinbus.entities.queue import Queue
from twinbus.entities.topic import Topic
from twinbus.limits import SEND_STEP_MESSAGES
from twinbus.store.facts import Facts

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost


def takes_long(entity: Queue | Topic, messages: list[NewMessage]) -> bool:
    """Whether a send is large, makes many copies, or has to wait for one that does."""
    if isinstance(entity, Topic):
        return entity.held is not None or entity.hands_out_long(messages)
    return len(messages) > SEND_STEP_MESSAGES


def sending(
    host: NamespaceHost, entity: Queue | Topic, messages: list[NewMessage], sent: Callable[[Facts], None]
) -> Work:
    """Send in steps; `sent` gets the facts that make the send durable."""
    if isinstance(entity, Topic):
        yield from _handing_out(host, entity, messages, sent)
        return
    commits = host.commits
    batch = LargeSend(entity, messages, host.clock.now_ms())
    try:
        yield from batch.steps(commits.facts)
    except Exception:
        batch.undo()
        raise
    facts = commits.facts
    batch.finish(facts)
    sent(facts)
    commits.request()


def _handing_out(host: NamespaceHost, topic: Topic, messages: list[NewMessage], sent: Callable[[Facts], None]) -> Work:
    """Send to a topic after any send in progress."""
    commits = host.commits
    while topic.held is not None:
        yield topic.held
    now_ms = host.clock.now_ms()
    if not topic.hands_out_long(messages):
        topic.send(messages, now_ms, commits.facts)
        sent(commits.facts)
        commits.request()
        return
    batch = topic.hand_out(messages, now_ms)
    try:
        for _ in batch.steps(lambda: commits.facts):
            commits.request_if_needed()
            yield None
        batch.finish(commits.facts)
    except Exception:
        batch.undo()
        host.let_go(topic)
        raise
    yield from durable(host)
    yield from batch.show()
    sent(commits.facts)
    host.let_go(topic)
    commits.request()


def durable(host: NamespaceHost) -> Work:
    """Wait until the open facts are on disk."""
    waiting: list[Work] = []
    host.commits.facts.then.append((host.slices.resume, waiting))
    host.commits.request()
    yield waiting


async def send(host: NamespaceHost, entity: Queue | Topic, messages: list[NewMessage]) -> None:
    """Send. When this returns, everything is in the open facts or already written."""
    if not takes_long(entity, messages):
        entity.send(messages, host.clock.now_ms(), host.commits.facts)
        return
    done: asyncio.Future[None] = host.loop.create_future()
    host.slices.start(_told(host, entity, messages, done))
    await done


def _told(host: NamespaceHost, entity: Queue | Topic, messages: list[NewMessage], done: asyncio.Future[None]) -> Work:
    try:
        yield from sending(host, entity, messages, lambda facts: facts.then.append((resolve, done)))
    except Exception as error:
        # Whatever the error is, a caller waits for it.
        if not done.done():
            done.set_exception(error)
