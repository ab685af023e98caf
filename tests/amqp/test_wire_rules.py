"""Rules whose violation hangs or breaks an official client, as far as the engine can keep them."""

from __future__ import annotations

import pytest

from twinbus.amqp import (
    STATE_ACCEPTED,
    STATE_REJECTED_NO_ERROR,
    AmqpError,
    Credit,
    Described,
    Link,
    Source,
    Symbol,
    Target,
    Transfer,
    ULong,
    state_rejected,
)
from twinbus.amqp.states import parse_state

from .pair import Pair, named, of

FIELDS = {
    "open": 10,
    "begin": 8,
    "attach": 14,
    "flow": 11,
    "transfer": 11,
    "disposition": 6,
    "detach": 3,
    "end": 1,
    "close": 1,
}


def conversation() -> Pair:
    """Return a conversation in which the server sends every kind of frame."""
    refusal = AmqpError("amqp:not-found", "no")

    def accept(link: Link) -> None:
        if link.name == "refused":
            link.refuse(refusal)
        else:
            link.accept(max_message_size=262_144, credit=0 if link.sender else 5)

    def serve(event: object) -> None:
        if isinstance(event, Transfer):
            state = STATE_ACCEPTED if event.delivery_id % 2 else state_rejected(AmqpError("a:b", "c"))
            event.link.session.settle(event.delivery_id, state)
        elif isinstance(event, Credit) and event.link.credit:
            event.link.send(b"x", tag=b"t" * 16, settled=False)
            event.link.send(b"x" * 1_000, tag=b"t" * 16, settled=False)
            event.link.send(b"x", tag=b"t" * 16, settled=True)
            event.link.drained()
            event.link.session.answer(70_000, STATE_REJECTED_NO_ERROR)

    pair = Pair(accept=accept, client={"frame_bytes_max": 512})
    pair.on_server = serve
    session = pair.session()
    out = session.attach_sender("out", target=Target("q"))
    session.attach_sender("refused", target=Target("nowhere"))
    session.attach_receiver("in", source=Source("q"), credit=10)
    pair.run()
    for number in range(9):
        out.send(b"x", tag=bytes([number]), settled=False)
    pair.run()
    out.detach()
    session.end()
    other = pair.client.begin()
    pair.run()
    pair.server.sessions[0].end(AmqpError("a:b"))
    pair.run()
    assert other.ended
    pair.client.close()
    pair.run()
    return pair


@pytest.fixture(scope="module")
def pair() -> Pair:
    return conversation()


@pytest.mark.parametrize("name", FIELDS)
def test_rule_5_and_6_small_descriptors_and_all_fields(pair: Pair, name: str) -> None:
    for frame in named(pair.to_client, name):
        assert frame.raw[8:10] == b"\x00\x53"
        assert frame.raw[11] in (0xC0, 0xD0)
        assert len(frame.fields) == FIELDS[name]
    assert named(pair.to_client, name)


def test_rule_1_errors_have_three_fields(pair: Pair) -> None:
    found = 0
    for frame in pair.to_client:
        for field in frame.fields:
            if isinstance(field, Described) and field.descriptor == ULong(0x25) and field.value[0] is not None:
                field = field.value[0]
            if isinstance(field, Described) and field.descriptor == ULong(0x1D):
                assert len(field.value) == 3
                assert isinstance(field.value[0], Symbol)
                assert isinstance(field.value[1], str)
                found += 1
    assert found >= 3


def test_rule_4_a_rejection_is_echoed_without_an_error() -> None:
    assert STATE_REJECTED_NO_ERROR == b"\x00\x53\x25\xc0\x02\x01\x40"
    assert parse_state(STATE_REJECTED_NO_ERROR).error is None  # type: ignore[union-attr]


def test_rule_7_credit_is_not_enforced(pair: Pair) -> None:
    assert len(of(pair.server_events, Transfer)) == 9


def test_rule_8_credit_comes_with_the_attach_and_is_renewed(pair: Pair) -> None:
    names = [frame.name for frame in pair.to_client]
    assert "flow" in names[names.index("attach") : names.index("disposition")]
    credits = [frame.fields[6] for frame in named(pair.to_client, "flow") if frame.fields[4] == 0]
    assert credits.count(5) >= 2


def test_rule_10_message_format_is_written(pair: Pair) -> None:
    for frame in named(pair.to_client, "transfer"):
        assert frame.fields[3] == 0
        assert frame.fields[3] is not None


def test_rule_11_server_ids_are_consecutive(pair: Pair) -> None:
    ids = [frame.fields[1] for frame in named(pair.to_client, "transfer")]
    assert sorted(set(ids)) == list(range(70_000, 70_003))
    assert ids == sorted(ids)


def test_rule_12_one_detach_per_link(pair: Pair) -> None:
    handles = [frame.fields[0] for frame in named(pair.to_client, "detach")]
    assert sorted(handles) == sorted(set(handles))


def test_rule_13_source_and_target_are_echoed_verbatim(pair: Pair) -> None:
    asked = {frame.fields[0]: frame for frame in named(pair.to_server, "attach")}
    for frame in named(pair.to_client, "attach"):
        wanted = [None, None] if frame.fields[0] == "refused" else asked[frame.fields[0]].fields[5:7]
        assert frame.fields[5:7] == wanted


def test_rule_14_drain_is_answered_with_no_credit_left(pair: Pair) -> None:
    answers = [frame.fields for frame in named(pair.to_client, "flow") if frame.fields[8] is True]
    assert answers
    for fields in answers:
        assert fields[6] == 0
        assert fields[5] == 10


def test_a_senders_attach_has_an_initial_delivery_count(pair: Pair) -> None:
    for frame in named(pair.to_client, "attach"):
        if frame.fields[2] is False:
            assert frame.fields[9] == 0
        if frame.fields[0] != "refused":
            assert frame.fields[10] == 262_144


def test_flows_always_tell_the_next_incoming_id(pair: Pair) -> None:
    assert all(frame.fields[0] is not None for frame in named(pair.to_client, "flow"))


def test_the_answer_has_the_clients_handle(pair: Pair) -> None:
    asked = {frame.fields[0]: frame.fields[1] for frame in named(pair.to_server, "attach")}
    for frame in named(pair.to_client, "attach"):
        assert frame.fields[1] == asked[frame.fields[0]]


def test_windows_are_never_closed(pair: Pair) -> None:
    for frame in named(pair.to_client, "begin"):
        assert frame.fields[2:4] == [5_000, 5_000]
        assert frame.fields[4] >= 255
    assert all(frame.fields[1] == 5_000 for frame in named(pair.to_client, "flow"))
