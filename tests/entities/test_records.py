from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.entities import records
from twinbus.entities.message import QueuedMessage, Relayed
from twinbus.errors import StoreCorruptError
from twinbus.store.facts import DAMAGED, index_key

texts = st.text(max_size=40)


def message(**fields: object) -> QueuedMessage:
    given_fields = {"seq": 7, "body_number": 9, "size": 10, "enqueued_ms": 11, "expires_ms": None, "state": 0}
    rest = {"delivery_count": 0, "session": None, "changes": None}
    return QueuedMessage(**(given_fields | rest | fields))  # type: ignore[arg-type]


@given(
    state=st.integers(0, 2),
    count=st.integers(0, 2**32 - 1),
    body=st.integers(1, 2**64 - 1),
    size=st.integers(0, 2**32 - 1),
    enqueued_ms=st.integers(0, 2**63),
    expires_ms=st.none() | st.integers(1, 2**63),
    session_id=st.none() | texts,
    changes=st.none() | st.dictionaries(texts, texts | st.binary(max_size=40), min_size=1, max_size=5),
    shared=st.booleans(),
)
def test_what_is_packed_is_unpacked(
    state: int,
    count: int,
    body: int,
    size: int,
    enqueued_ms: int,
    expires_ms: int | None,
    session_id: str | None,
    changes: dict[str, str | bytes] | None,
    shared: bool,
) -> None:
    packed = message(
        state=state,
        delivery_count=count,
        body_number=body,
        size=size,
        enqueued_ms=enqueued_ms,
        expires_ms=expires_ms,
        changes=changes,
    )
    assert records.unpack(records.pack(packed, session_id, shared)) == (
        state,
        count,
        body,
        size,
        enqueued_ms,
        expires_ms,
        session_id,
        changes,
        shared,
        None,
        0,
        None,
        False,
    )


@given(
    origin_seq=st.integers(0, 2**63),
    hops=st.integers(0, 4),
    source=st.none() | st.text(min_size=1, max_size=300),
    session_id=st.none() | texts,
    changes=st.none() | st.dictionaries(texts, texts, min_size=1, max_size=3),
    shared=st.booleans(),
)
def test_a_relayed_message_remembers_where_it_came_from(
    origin_seq: int,
    hops: int,
    source: str | None,
    session_id: str | None,
    changes: dict[str, str | bytes] | None,
    shared: bool,
) -> None:
    packed = Relayed(7, 9, 10, 11, None, 0, 2, None, changes, origin_seq, hops, source)
    record = records.unpack(records.pack(packed, session_id, shared))
    assert (record.session_id, record.shared) == (session_id, shared)
    read = records.message_of(7, record)
    assert isinstance(read, Relayed)
    assert (read.origin_seq, read.hops, read.dead_letter_source, read.changes) == (origin_seq, hops, source, changes)
    assert (read.seq, read.body_number, read.size, read.delivery_count) == (7, 9, 10, 2)


def test_a_plain_record_is_small() -> None:
    assert len(records.pack(message())) == 34


def test_keys_sort_by_entity_and_sequence_number() -> None:
    pairs = [(1, 2), (1, 256), (1, 2**40), (2, 1), (256, 0)]
    keys = [records.key(*pair) for pair in pairs]
    assert keys == sorted(keys)
    assert keys == [index_key(*pair) for pair in pairs]


def test_every_cut_of_a_record_is_corrupt() -> None:
    packed = records.pack(message(changes={"reason": "because", "raw": b"\x40"}), "session", True)
    relayed = Relayed(7, 9, 10, 11, None, 0, 2, None, {"reason": "because"}, 5, 1, "source")
    for whole in (packed, records.pack(relayed, "session", True)):
        for length in range(len(whole)):
            with pytest.raises(StoreCorruptError):
                records.unpack(whole[:length])


def test_another_version_is_refused() -> None:
    packed = b"\x09" + records.pack(message())[1:]
    with pytest.raises(StoreCorruptError, match="version 9"):
        records.unpack(packed)
    session = b"\x09" + records.pack_session("s", 1, b"")[1:]
    with pytest.raises(StoreCorruptError, match="version 9"):
        records.unpack_session(session)


def test_expiry_is_read_without_decoding_the_rest() -> None:
    for changes in (None, {"reason": "because"}):
        packed = records.pack(message(expires_ms=1_000, changes=changes), "session")
        assert not records.expired(packed, 999)
        assert records.expired(packed, 1_000)
    assert not records.expired(records.pack(message(expires_ms=None)), 2**63)
    assert not records.expired(DAMAGED, 2**63)


@given(session_id=texts, updated_ms=st.integers(0, 2**63), state=st.binary(max_size=50))
def test_session_records(session_id: str, updated_ms: int, state: bytes) -> None:
    assert records.unpack_session(records.pack_session(session_id, updated_ms, state)) == (
        session_id,
        updated_ms,
        state,
    )


def test_the_longest_session_id_fits_a_key() -> None:
    longest = "\U0001f600" * 128
    key = records.session_key(5, longest)
    assert len(key) <= 511
    assert key != records.session_key(5, longest[:-1] + "\U0001f601")
    assert records.session_key(5, "s") == b"\x00\x00\x00\x05s"


def test_text_with_lone_surrogates_can_be_written() -> None:
    assert records.unpack(records.pack(message(), "\ud800")).session_id == "\ud800"
    assert records.unpack_duplicate(records.pack_duplicate(5, "\udfff")) == (5, "\udfff")


@pytest.mark.parametrize("value", [b"", b"\x00" * 7, b"\x00" * 8 + b"\xff"])
def test_a_broken_duplicate_record_is_corrupt(value: bytes) -> None:
    with pytest.raises(StoreCorruptError):
        records.unpack_duplicate(value)


@pytest.mark.parametrize("value", [b"", b"\x01" + b"\x00" * 9, b"\x01" + b"\x00" * 8 + b"\x00\x05abc"])
def test_a_broken_session_record_is_corrupt(value: bytes) -> None:
    with pytest.raises(StoreCorruptError):
        records.unpack_session(value)
