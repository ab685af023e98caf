"""Frames are found wherever the stream is cut, and none without a mask passes."""

from __future__ import annotations

import random

import pytest

from twinbus.broker.connections.frame_scan import FrameScan, UnmaskedFrameError

SIZES = (0, 1, 125, 126, 300, 65_535, 65_536, 70_000)


def frame(size: int, opcode: int = 2) -> bytes:
    if size < 126:
        head = bytes((0x80 | opcode, 0x80 | size))
    elif size < 65_536:
        head = bytes((0x80 | opcode, 0x80 | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, 0x80 | 127)) + size.to_bytes(8, "big")
    return head + bytes(4) + bytes(size)


@pytest.mark.parametrize("seed", range(20))
def test_frames_are_counted_wherever_the_stream_is_cut(seed: int) -> None:
    chance = random.Random(seed)
    sizes = [chance.choice(SIZES) for _ in range(40)]
    stream = b"".join(map(frame, sizes))
    scan = FrameScan()
    at = 0
    while at < len(stream):
        read = stream[at : at + chance.choice((1, 2, 3, 7, 1_000, 100_000))]
        at += len(read)
        done = 0
        while done < len(read):
            before, done = done, scan.end_of(read, done, 3)
            assert done > before
    assert scan.frames == len(sizes)


def test_a_piece_has_no_more_frames_than_asked_for() -> None:
    scan = FrameScan()
    data = frame(0) * 10 + frame(200)
    assert scan.end_of(data, 0, 4) == 4 * 6
    assert scan.end_of(data, 4 * 6, 6) == 10 * 6
    assert scan.end_of(data, 10 * 6, 4) == len(data)
    assert scan.frames == 11


@pytest.mark.parametrize("before", [b"", frame(5), frame(70_000)])
@pytest.mark.parametrize("split", [0, 1])
def test_a_frame_without_a_mask_is_noticed(before: bytes, split: int) -> None:
    scan = FrameScan()
    bad = b"\x82\x00"
    data = before + bad[:split]
    assert scan.end_of(data, 0, 100) == len(data)
    with pytest.raises(UnmaskedFrameError):
        scan.end_of(bad[split:], 0, 100)
