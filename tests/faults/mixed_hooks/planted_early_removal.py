"""A planted fault: receive-and-delete removes messages before they are written, and disconnects slow readers."""

from __future__ import annotations

from twinbus.broker.links.consumer import BURST, Consumer
from twinbus.broker.messages.stored import render
from twinbus.limits import WRITE_BUFFER_BYTES_MAX
from twinbus.store.facts import Facts

_feed = Consumer.feed


def hasty(self: Consumer, now_ms: int, facts: Facts) -> int:
    if not self.deleting:
        return _feed(self, now_ms, facts)
    count = 0 if self.gone or self.held else min(self.link.sendable(), BURST)
    messages = self.queue.take(count, now_ms, facts, 1 << 40) if count > 0 else []
    bodies = self._host.store.bodies([message.body_number for message in messages])
    self.queue.remove_taken(messages, facts)
    for message, body in zip(messages, bodies, strict=True):
        self.link.send(render(body, message), tag=b"", settled=True)
    connection = self.connection
    if connection.engine.output_bytes + connection.engine.waiting_bytes > WRITE_BUFFER_BYTES_MAX:
        connection._cut("does not read")
    else:
        connection.flush_soon()
    return len(messages)


Consumer.feed = hasty  # type: ignore[method-assign]
