from __future__ import annotations

from twinbus.entities.locks import Locks
from twinbus.entities.message import QueuedMessage


def locked(seq: int, until_ms: int) -> QueuedMessage:
    message = QueuedMessage(seq, seq, 1, 0, None, 0, 0, None, None)
    message.locked_until_ms = until_ms
    return message


def test_earliest_first_over_renewals_and_changed_durations() -> None:
    locks: Locks[bytes, QueuedMessage] = Locks()
    assert locks.deadline_ms() is None
    for seq in range(4):
        locks.held[bytes([seq])] = locked(seq, 100 + seq)
    renewed = locks.get(b"\x00")
    assert renewed is not None
    renewed.locked_until_ms = 110
    locks.renew(b"\x00", renewed)
    assert locks.deadline_ms() == 101
    locks.duration_changed()
    locks.held[b"new"] = locked(9, 50)
    assert len(locks) == 5
    assert locks.deadline_ms() == 50
    assert [message.seq for message in locks.lapsed(102, 10)] == [1, 2, 9]
    assert [message.seq for message in locks.lapsed(102, 1)] == [1]
    older = locks.get(b"\x01")
    assert older is not None
    older.locked_until_ms = 60
    locks.renew(b"\x01", older)
    assert list(locks.held) == [b"new", b"\x01"]
    for key in (b"new", b"\x02"):
        locks.remove(key)
        assert locks.get(key) is None
    locks.duration_changed()
    assert [message.seq for message in locks.older.values()] == [1, 3, 0]
