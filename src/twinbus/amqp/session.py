"""A session: the delivery ids and windows that its links share, and everything it writes.

Four rules. Our delivery ids are consecutive across all links and start far from those a client uses. The peer's
transfers are counted only to refresh its window, never to refuse any. Dispositions of adjacent ids with the same state
are merged into one frame, which precedes any later transfer of the session. Transfers beyond the peer's window wait
here, and frames that must follow them wait behind them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from twinbus.amqp import frames
from twinbus.amqp.link import Link
from twinbus.amqp.outgoing import LargeDelivery, Mark
from twinbus.amqp.phases import (
    ATTACHED,
    BEGINNING,
    END_SENT,
    ENDED,
    ENDING,
    GONE,
    LINK_TRANSITIONS,
    SESSION_OVER,
    SESSION_TRANSITIONS,
    after,
)
from twinbus.amqp.serial import MASK
from twinbus.amqp.states import AmqpError
from twinbus.amqp.terminus import Coordinator, Source, Target
from twinbus.errors import IllegalStateError, PeerLimitError, UnattachedHandleError
from twinbus.limits import (
    FIRST_DELIVERY_ID,
    INCOMING_WINDOW_TRANSFERS,
    LINK_OBJECT_BYTES,
    OUTPUT_STEP_BYTES,
    UNSETTLED_DELIVERIES_MAX,
)

if TYPE_CHECKING:
    from twinbus.amqp.connection import Connection


class Session:
    """One session of a connection, in either role."""

    def __init__(self, connection: Connection, channel: int) -> None:
        self.connection = connection
        # Our channel number.
        self.channel = channel
        # The peer's channel number; -1 until its begin arrives.
        self.remote_channel = -1
        # For the owner's use.
        self.context: Any = None
        # Outgoing unsettled deliveries: id to link and tag.
        self.unsettled: dict[int, tuple[Link, bytes]] = {}
        # Bound on deliveries waiting for the peer's settlement or for our answer to it.
        self.unsettled_max = UNSETTLED_DELIVERIES_MAX
        # Outgoing deliveries the peer has disposed of and we have yet to answer: id to link.
        self.disposing: dict[int, Link] = {}
        # Outgoing deliveries we have answered without settling: the peer may dispose of them again. Id to link and tag.
        self.kept: dict[int, tuple[Link, bytes]] = {}
        # `unsettled_between` has searched all ids up to this one and found these unsettled.
        self.searched_to = 0
        self.searched: list[int] = []
        # Entries in `unsettled`, `disposing` and `kept` whose links are gone.
        self.stale_count = 0
        # Links by the peer's handle, from its attach until its detach.
        self.links: dict[int, Link] = {}
        # Peer handles that were in use and are free again: some clients detach twice.
        self.left: set[int] = set()
        self.phase = BEGINNING

        # --- internal ---
        # Client: links by our handle, from our attach until both sides have detached.
        self.own_links: dict[int, Link] = {}
        self.remote_handle_max = MASK
        # Bytes 4 to 8 of every frame: data offset, type, channel.
        self.frame_word = 0x02000000 | channel
        self.first_delivery_id = 0 if connection.client else FIRST_DELIVERY_ID
        self.next_delivery_id = self.first_delivery_id
        self.next_outgoing_id = 1
        # Transfer frames the peer accepts now.
        self.remote_window = 0
        # Our count of the peer's next transfer frame.
        self.next_incoming_id = 0
        # Transfer frames left of the window we granted.
        self.incoming_left = INCOMING_WINDOW_TRANSFERS
        # Output queued behind a closed window or a large delivery; True marks frames that use up the window.
        self.waiting: deque[tuple[bytes, bool] | LargeDelivery | Mark] = deque()
        # Links that may have a large delivery or a mark in `waiting`; cleared when nothing waits.
        self.waiting_links: set[Link] = set()
        # Bytes in `waiting`; also counted in the connection's total.
        self.waiting_bytes = 0
        # Links that had messages to send while the peer's window was closed; they get a Credit event when it opens.
        self.stalled: dict[Link, None] = {}
        # Whether the connection is going to flush this session.
        self.dirty = False
        # Whether a flow for the session alone is due.
        self.session_flow_wanted = False
        # Links for which a flow is due.
        self.flow_links: list[Link] = []
        # Whether one of the two ranges below is pending.
        self.has_ranges = False
        # The pending range of dispositions as receiver; none if the state is None.
        self.in_first = 0
        self.in_last = 0
        self.in_state: bytes | None = None
        self.in_settled = False
        # The pending range of dispositions as sender.
        self.out_first = 0
        self.out_last = 0
        self.out_state: bytes | None = None

    # --- for the owner ----------------------------------------------------------------------------------------------

    def attach_sender(
        self,
        name: str,
        *,
        source: Source | None = None,
        target: Target | Coordinator,
        properties: dict[Any, Any] | None = None,
        snd_settle_mode: int = 0,
        rcv_settle_mode: int = 0,
        max_message_size: int | None = None,
    ) -> Link:
        """Client: attach a sending link."""
        return self._attach(
            name, True, source or Source(), target, properties, snd_settle_mode, rcv_settle_mode, max_message_size, 0
        )

    def attach_receiver(
        self,
        name: str,
        *,
        source: Source,
        target: Target | None = None,
        properties: dict[Any, Any] | None = None,
        snd_settle_mode: int = 0,
        rcv_settle_mode: int = 0,
        max_message_size: int | None = None,
        credit: int = 0,
    ) -> Link:
        """Client: attach a receiving link. `credit` is granted once it is attached and topped up automatically."""
        return self._attach(
            name,
            False,
            source,
            target or Target(),
            properties,
            snd_settle_mode,
            rcv_settle_mode,
            max_message_size,
            credit,
        )

    def settle(self, delivery_id: int, state: bytes) -> None:
        """Tell the sender the outcome of a delivery we received, and settle it."""
        self.dispose(delivery_id, delivery_id, state, True)

    def dispose(self, first: int, last: int, state: bytes, settled: bool) -> None:
        """Tell the sender the outcome of deliveries we received. Unless settled, it answers with an Outcome event."""
        held = self.in_state
        if held is not None:
            if first == (self.in_last + 1) & MASK and settled == self.in_settled and state == held:
                self.in_last = last
                return
            self._write_range_in()
        elif self.phase >= ENDING:
            return
        self.in_first = first
        self.in_last = last
        self.in_state = state
        self.in_settled = settled
        self.has_ranges = True
        if not self.dirty:
            self.dirty = True
            self.connection.dirty.append(self)

    def answer(self, delivery_id: int, state: bytes) -> None:
        """Confirm the peer's disposition of a delivery we sent: echo the outcome, settle and forget the delivery."""
        self.answer_all(delivery_id, delivery_id, state)

    def answer_all(self, first: int, last: int, state: bytes) -> None:
        """Do the same for several deliveries with consecutive ids."""
        disposing, unsettled = self.disposing, self.unsettled
        for delivery_id in range(first, last + 1):
            link = disposing.pop(delivery_id, None)
            if link is None:
                entry = unsettled.pop(delivery_id, None)
                if entry is not None:
                    entry[0].unsettled_count -= 1
            else:
                link.unsettled_count -= 1
        self.answer_range(first, last, state)

    def keep(self, delivery_id: int, tag: bytes, state: bytes) -> None:
        """Answer the peer's disposition without settling the delivery, which stays in its hands."""
        link = self.disposing.pop(delivery_id, None)
        if link is None or self.phase >= ENDING:
            return
        self.kept[delivery_id] = (link, tag)
        self._write_range_out()
        self.connection.write(frames.disposition_frame(self.channel, False, delivery_id, delivery_id, False, state))

    def settle_kept(self, delivery_id: int, state: bytes) -> None:
        """Settle a kept delivery, unless the peer has disposed of it since."""
        entry = self.kept.pop(delivery_id, None)
        if entry is not None and entry[0].phase == ATTACHED:
            entry[0].unsettled_count -= 1
            self.answer_range(delivery_id, delivery_id, state)

    def end(self, error: AmqpError | None = None) -> None:
        """End the session with all its links."""
        if self.phase >= ENDING:
            return
        self.flush()
        self.connection.write(frames.end_frame(self.channel, error))
        self.clear(END_SENT)

    # --- writing ----------------------------------------------------------------------------------------------------

    def _attach(
        self,
        name: str,
        sender: bool,
        source: Source,
        target: Target | Coordinator,
        properties: dict[Any, Any] | None,
        snd_settle_mode: int,
        rcv_settle_mode: int,
        max_message_size: int | None,
        credit: int,
    ) -> Link:
        if self.phase >= ENDING:
            raise IllegalStateError("the session has ended")
        handle = 0
        while handle in self.own_links:
            handle += 1
        if handle > self.remote_handle_max:
            raise PeerLimitError(f"the peer accepts at most {self.remote_handle_max + 1} links in a session")
        link = Link(self, name, handle, sender)
        link.source = source
        link.target = target
        link.snd_settle_mode = snd_settle_mode
        link.rcv_settle_mode = rcv_settle_mode
        link.credit_top = 0 if sender else credit
        if max_message_size:
            link.size_max = max_message_size
        self.own_links[handle] = link
        self.connection.write(
            frames.attach_frame(
                self.channel,
                name,
                handle,
                not sender,
                snd_settle_mode,
                rcv_settle_mode,
                source.raw,
                target.raw,
                max_message_size or 0,
                properties,
            )
        )
        return link

    def want_flow(self, link: Link | None) -> None:
        """Schedule a flow for the link, or for the session alone, with the next output."""
        if link is None:
            self.session_flow_wanted = True
        elif not link.flow_wanted:
            link.flow_wanted = True
            self.flow_links.append(link)
        if not self.dirty:
            self.dirty = True
            self.connection.dirty.append(self)

    def write_transfer(self, frame: bytes) -> None:
        if self.remote_window > 0 and not self.waiting:
            self.remote_window -= 1
            self.next_outgoing_id = (self.next_outgoing_id + 1) & MASK
            self.connection.write(frame)
        else:
            self._wait(frame, True)

    def write_large(self, delivery: LargeDelivery) -> None:
        """Write a delivery step by step, as fast as the output is taken."""
        self.waiting.append(delivery)
        self.waiting_links.add(delivery.link)
        self._count_waiting(delivery.left)
        self.write_waiting()

    def mark(self, link: Link, context: Any) -> None:
        """Have `Connection.written` return `context` once everything sent on the link so far has been written."""
        mark = Mark(link, context)
        if self.waiting:
            self.waiting.append(mark)
            self.waiting_links.add(link)
        else:
            self.connection.mark(mark)

    def write_behind(self, frame: bytes) -> None:
        """Write a frame that must not overtake the transfers before it."""
        if self.has_ranges:
            self.flush_ranges()
        if self.waiting:
            self._wait(frame, False)
        else:
            self.connection.write(frame)

    def write_waiting(self) -> None:
        """Write queued output as far as the peer's window and the step size of large deliveries allow."""
        waiting = self.waiting
        while waiting:
            entry = waiting[0]
            if isinstance(entry, LargeDelivery):
                if not self._write_step(entry):
                    return
            elif isinstance(entry, Mark):
                self.connection.mark(entry)
            else:
                frame, counts = entry
                if counts:
                    if self.remote_window <= 0:
                        return
                    self.remote_window -= 1
                    self.next_outgoing_id = (self.next_outgoing_id + 1) & MASK
                else:
                    self.connection.frames_behind -= 1
                self._count_waiting(-len(frame))
                self.connection.write(frame)
            waiting.popleft()
        self.waiting_links.clear()

    def unstalled(self) -> list[Link]:
        """Return the stalled links that can send again, if the window is open and nothing is queued."""
        if not self.stalled or self.remote_window <= 0 or self.waiting:
            return []
        stalled, self.stalled = self.stalled, {}
        return [link for link in stalled if link.phase == ATTACHED and link.credit > 0]

    def _write_step(self, delivery: LargeDelivery) -> bool:
        """Write frames of a large delivery; return True when it is complete."""
        connection = self.connection
        while delivery.left > 0:
            if self.remote_window <= 0:
                return False
            if connection.output_bytes >= OUTPUT_STEP_BYTES:
                connection.halt(self)
                return False
            self.remote_window -= 1
            self.next_outgoing_id = (self.next_outgoing_id + 1) & MASK
            before = delivery.offset
            connection.write(frames.frame(self.channel, delivery.next_frame()))
            self._count_waiting(before - delivery.offset)
        return True

    def _wait(self, frame: bytes, counts: bool) -> None:
        self.waiting.append((frame, counts))
        if not counts:
            self.connection.frames_behind += 1
        self._count_waiting(len(frame))

    def _count_waiting(self, change: int) -> None:
        self.waiting_bytes += change
        self.connection.waiting_bytes += change

    def drop_large(self, link: Link) -> None:
        """The peer detached a link: drop the rest of its large deliveries and its marks."""
        # Most links have none, and thousands of links may detach while thousands of frames wait.
        if link not in self.waiting_links:
            return
        self.waiting_links.discard(link)
        kept: deque[tuple[bytes, bool] | LargeDelivery | Mark] = deque()
        for entry in self.waiting:
            if isinstance(entry, LargeDelivery) and entry.link is link:
                self._count_waiting(-entry.left)
            elif not (isinstance(entry, Mark) and entry.link is link):
                kept.append(entry)
        self.waiting = kept
        self.write_waiting()

    def answer_range(self, first: int, last: int, state: bytes) -> None:
        held = self.out_state
        if held is not None:
            if first == (self.out_last + 1) & MASK and state == held:
                self.out_last = last
                return
            self._write_range_out()
        elif self.phase >= ENDING:
            return
        self.out_first = first
        self.out_last = last
        self.out_state = state
        self.has_ranges = True
        if not self.dirty:
            self.dirty = True
            self.connection.dirty.append(self)

    def _write_range_in(self) -> None:
        if self.in_state is not None:
            self.connection.write(
                frames.disposition_frame(
                    self.channel, True, self.in_first, self.in_last, self.in_settled, self.in_state
                )
            )
            self.in_state = None

    def _write_range_out(self) -> None:
        if self.out_state is not None:
            self.connection.write(
                frames.disposition_frame(self.channel, False, self.out_first, self.out_last, True, self.out_state)
            )
            self.out_state = None

    def flush_ranges(self) -> None:
        """Write the pending ranges of dispositions."""
        self._write_range_in()
        self._write_range_out()
        self.has_ranges = False

    def flush(self) -> None:
        """Write everything held back for merging."""
        if self.has_ranges:
            self.flush_ranges()
        if self.flow_links:
            links = self.flow_links
            self.flow_links = []
            for link in links:
                link.flow_wanted = False
                if link.phase == ATTACHED:
                    self._write_flow(link.flow_fields(), link.sender)
        if self.session_flow_wanted:
            self._write_flow(frames.FLOW_NO_LINK, False)

    def _write_flow(self, link_fields: bytes, behind: bool) -> None:
        self.session_flow_wanted = False
        self.incoming_left = INCOMING_WINDOW_TRANSFERS
        frame = frames.flow_frame(
            self.channel,
            self.next_incoming_id,
            INCOMING_WINDOW_TRANSFERS,
            self.next_outgoing_id,
            INCOMING_WINDOW_TRANSFERS,
            link_fields,
        )
        if behind:
            self.write_behind(frame)
        else:
            self.connection.write(frame)

    @property
    def ended(self) -> bool:
        """Whether either side has ended the session."""
        return self.phase >= ENDING

    def clear(self, event: str) -> None:
        """The session is over: drop everything still to be written or answered."""
        if self.phase == ENDED:
            return
        self.phase = after(SESSION_TRANSITIONS, self.phase, event)
        for link in {**dict.fromkeys(self.links.values()), **dict.fromkeys(self.own_links.values())}:
            self.drop_partial(link)
            if link.phase != GONE:
                link.phase = after(LINK_TRANSITIONS, link.phase, SESSION_OVER)
            if link.remote_handle >= 0:
                self.release_link(link)
        self.links = {}
        self.own_links = {}
        self.unsettled = {}
        self.disposing = {}
        self.kept = {}
        self.searched = []
        if self.waiting:
            frames_behind = sum(type(entry) is tuple and not entry[1] for entry in self.waiting)
            self.connection.frames_behind -= frames_behind
        self.waiting.clear()
        self.waiting_links.clear()
        self._count_waiting(-self.waiting_bytes)
        self.stalled = {}
        self.flow_links = []
        self.session_flow_wanted = False
        self.has_ranges = False
        self.in_state = None
        self.out_state = None

    def forget(self, link: Link) -> None:
        """A link is gone: drop its unfinished delivery and disown its unsettled ones.

        Disowned deliveries are swept once they make up half of the total, so a link that comes and goes beside a busy
        one costs no more than its own share.
        """
        self.drop_partial(link)
        self.stalled.pop(link, None)
        self.stale_count += link.unsettled_count
        link.unsettled_count = 0
        if self.stale_count * 2 >= len(self.unsettled) + len(self.disposing) + len(self.kept):
            self.unsettled = {key: entry for key, entry in self.unsettled.items() if entry[0].phase <= ATTACHED}
            self.kept = {key: entry for key, entry in self.kept.items() if entry[0].phase <= ATTACHED}
            self.disposing = {key: owner for key, owner in self.disposing.items() if owner.phase <= ATTACHED}
            self.stale_count = 0

    def drop_partial(self, link: Link) -> None:
        if link.partial is not None:
            self.let_go(len(link.partial))
            link.partial = None

    def let_go(self, count: int) -> None:
        """Release `count` bytes of an unfinished delivery from the budgets."""
        self.connection.partial_bytes -= count
        account = self.connection.partial_account
        if account is not None and count:
            account.give(count)

    def release_link(self, link: Link) -> None:
        """Release the peer's handle and the bytes of its attach frame."""
        connection = self.connection
        connection.link_count -= 1
        if connection.link_account is not None:
            connection.link_account.give(link.attach_bytes + LINK_OBJECT_BYTES)

    def link_at(self, handle: int) -> Link:
        """Return the link with this handle of the peer."""
        link = self.links.get(handle)
        if link is None:
            raise UnattachedHandleError(f"no link is attached with handle {handle}")
        return link
