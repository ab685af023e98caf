"""Delivers a batch to many subscriptions over several commits, and still as a whole or not at all.

1. The first commit writes a mark that names the bodies, the next ones write the bodies and the copies, one subscription
   at a time, so that rows are neighbours in the store. The last one removes the mark. A restart that finds a mark
   deletes the bodies it names and every copy of them.
2. No copy is visible before the last commit is durable. Then the subscriptions show theirs one by one. Duplicate
   detection learns the ids with the last commit, too.
3. The topic is held meanwhile: later sends to it wait, so every subscription sees all messages in order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from twinbus.store.facts import Facts, Table

from .expiry import expires_at
from .message import ACTIVE, NewMessage, Relayed
from .records import BODY_KEY, META_PENDING, NUMBER
from .selection import Choice

if TYPE_CHECKING:
    from .commons import Commons
    from .queue import Queue
    from .subscription import Subscription
    from .topic import Topic
    from .views import StoredView

    # The messages a subscription gets, each with its filter view, and the rule choice for each.
    _Copies = tuple[list[Choice], list[tuple[Relayed, StoredView]]]

# Copies per step.
_COPIES: Final = 50


class FanOut:
    """One batch on its way to the subscriptions of a topic."""

    __slots__ = (
        "_commons",
        "_ids",
        "_last",
        "_mark",
        "_messages",
        "_now_ms",
        "_originals",
        "_scheduled",
        "_touched",
        "topic",
    )

    def __init__(self, topic: Topic, commons: Commons, messages: Sequence[NewMessage], now_ms: int) -> None:
        self.topic = topic
        self._commons = commons
        self._messages = messages
        self._now_ms = now_ms
        # Each message as subscriptions store it, with its filter view.
        self._originals: list[tuple[Relayed, StoredView]] = []
        # Scheduled messages, which the topic keeps until they are due.
        self._scheduled: list[NewMessage] = []
        # The ids that the last commit adds to duplicate detection, with their sequence numbers.
        self._ids: list[tuple[str, int]] = []
        # Never written: it collects the calls that make the copies visible.
        self._last = Facts()
        # The key of the mark; empty if there is nothing to deliver.
        self._mark = b""
        # Subscriptions that got copies.
        self._touched: list[Subscription] = []

    def steps(self, facts: Callable[[], Facts]) -> Iterator[None]:
        """Everything except the last commit. `facts` returns the facts that are open at each step."""
        yield from self._store(facts)
        bodies = self._commons.bodies
        plan = yield from self._selected(facts)
        for subscription, (choices, originals) in plan.items():
            self._touched.append(subscription)
            for start in range(0, len(originals), _COPIES):
                opened = facts()
                end = start + _COPIES
                for choice, (original, view) in zip(choices[start:end], originals[start:end], strict=True):
                    if subscription.queue.deleted:
                        bodies.release(original.body_number, opened)
                    else:
                        subscription.arrive(original, choice, view, self._now_ms, opened, self._last)
                yield None

    def finish(self, facts: Facts) -> None:
        """The last commit: these facts make the batch durable, and `show` then makes it visible."""
        topic = self.topic
        if not topic.deleted:
            if topic.duplicates is not None:
                for message_id, seq in self._ids:
                    topic.duplicates.add(message_id, seq, self._now_ms, facts)
            for new in self._scheduled:
                seq = topic.accept(new, self._now_ms, facts)
                if topic.duplicates is not None:
                    topic.duplicates.add(new.message_id, seq, self._now_ms, facts)
        if self._mark:
            facts.delete(Table.META, self._mark)

    def undo(self) -> None:
        """A step failed: forget the copies. The mark stays, so the next start deletes their rows and bodies."""
        parts: dict[Callable[[Any], None], Queue] = {}
        for each in self._touched:
            parts |= {part.arrivals.durable: part for part in each.queue.parts}
        for show, messages in self._last.then:
            part = parts[show]
            if not part.deleted:
                part.arrivals.withdraw(messages)
                for message in messages:
                    part.messages.withdraw(message)
        self._last = Facts()

    def show(self) -> Iterator[None]:
        """Make the batch visible, one subscription at a time. Call this when the last commit is durable."""
        for show, copies in self._last.then:
            show(copies)
            yield None

    def _store(self, facts: Callable[[], Facts]) -> Iterator[None]:
        """Number the messages and write their bodies. The numbers are contiguous, because the mark names a range."""
        topic = self.topic
        commons = self._commons
        now_ms = self._now_ms
        duplicates = topic.duplicates
        # The ids of this batch, which the window gets at its end.
        names: set[str] = set()
        body = commons.bodies.reserve(len(self._messages), facts())
        if self._messages:
            self._mark = META_PENDING + NUMBER.pack(body)
            facts().rows[Table.META, self._mark] = NUMBER.pack(body + len(self._messages) - 1)
        for at, new in enumerate(self._messages):
            if at % _COPIES == 0:
                yield None
            if new.ping:
                topic.pings += 1
                continue
            if duplicates is not None:
                name = new.message_id
                if name in names or duplicates.find(name, now_ms) is not None:
                    continue
                names.add(name)
            if new.scheduled_ms is not None and new.scheduled_ms > now_ms:
                self._scheduled.append(new)
                continue
            opened = facts()
            seq = topic.numbers.next(opened)
            if duplicates is not None:
                self._ids.append((new.message_id, seq))
            view = commons.views.of_new(new)
            expires_ms = expires_at(new.ttl_ms, topic.settings.default_ttl_ms, now_ms)
            view.place(seq, now_ms, expires_ms)
            opened.bodies[BODY_KEY.pack(body)] = new.body
            size = commons.bodies.size(new.size)
            self._originals.append(
                (Relayed(0, body, size, now_ms, expires_ms, ACTIVE, 0, None, None, seq, 0, None), view)
            )
            body += 1

    def _selected(self, facts: Callable[[], Facts]) -> Generator[None, None, dict[Subscription, _Copies]]:
        """Which subscription gets which messages. A subscription created meanwhile gets none."""
        topic = self.topic
        originals = self._originals
        if originals and not topic.selection.looks:
            # No filter looks at the message: a subscription that takes one takes all.
            shared = topic.selection.select(originals[0][1])
            for original, _ in originals:
                self._count(original, len(shared), facts())
            return {choice.subscription: ([choice] * len(originals), originals) for choice in shared}
        plan: dict[Subscription, _Copies] = {subscription: ([], []) for subscription in topic.subscriptions}
        for original, view in originals:
            selected = yield from topic.selection.select_in_steps(view)
            chosen = [choice for choice in selected if choice.subscription in plan]
            for choice in chosen:
                choices, taken = plan[choice.subscription]
                choices.append(choice)
                taken.append((original, view))
            self._count(original, len(chosen), facts())
            yield None
        return {subscription: copies for subscription, copies in plan.items() if copies[0]}

    def _count(self, original: Relayed, copies: int, facts: Facts) -> None:
        """Account for the copies of a message."""
        self.topic.count_copies(original.size * copies)
        if not copies:
            facts.delete(Table.BODIES, BODY_KEY.pack(original.body_number))
        elif copies > 1:
            self._commons.bodies.share(original.body_number, copies - 1)
