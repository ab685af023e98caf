from __future__ import annotations

from pathlib import Path

import pytest

from twinbus.clock import SteppedClock
from twinbus.limits import STORE_SPACE_CHECK_MS
from twinbus.store.space import Ballast, Space

MB = 1 << 20


class Disk:
    """A disk with a given amount of free space."""

    def __init__(self, available: int) -> None:
        self.available = available

    def __call__(self) -> int:
        return self.available


def space_on(folder: Path, disk: Disk, clock: SteppedClock | None = None, reserve_bytes: int = MB) -> Space:
    return Space(folder, map_bytes=100 * MB, reserve_bytes=reserve_bytes, clock=clock or SteppedClock(), available=disk)


def test_ballast_has_real_blocks_and_survives(tmp_path: Path) -> None:
    ballast = Ballast(tmp_path, MB)
    assert not ballast.present
    assert ballast.make()
    assert (tmp_path / "ballast").stat().st_blocks * 512 >= MB
    assert Ballast(tmp_path, MB).present
    assert not Ballast(tmp_path, 2 * MB).present
    ballast.release()
    assert not ballast.present
    assert not (tmp_path / "ballast").exists()
    ballast.release()


def test_a_sparse_ballast_holds_nothing_back(tmp_path: Path) -> None:
    with open(tmp_path / "ballast", "wb") as file:
        file.truncate(MB)
    assert not Ballast(tmp_path, MB).present


def test_ballast_without_the_call_that_macos_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.posix_fallocate")
    ballast = Ballast(tmp_path, MB + 5)
    assert ballast.make()
    assert (tmp_path / "ballast").stat().st_size == MB + 5
    assert Ballast(tmp_path, MB).present


def test_a_ballast_the_disk_does_not_give_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", refuse)
    ballast = Ballast(tmp_path, MB)
    assert not ballast.make()
    assert not ballast.present
    assert list(tmp_path.iterdir()) == []


def test_no_reserve_no_ballast(tmp_path: Path) -> None:
    space = space_on(tmp_path, Disk(0), reserve_bytes=0)
    space.judge(0, 0)
    space.refused()
    space.judge(0, 0)
    assert not space.full
    assert list(tmp_path.iterdir()) == []


def test_map_full_at_its_bound_and_not_one_below(tmp_path: Path) -> None:
    space = space_on(tmp_path, Disk(1000 * MB))
    for used, full in ((100 * MB - 1, False), (100 * MB, True), (100 * MB - 1, False)):
        space.judge(used, 100 * MB)
        assert space.full is full


def test_disk_full_below_the_reserve_counting_what_is_free_in_the_file(tmp_path: Path) -> None:
    disk = Disk(10 * MB)
    space = space_on(tmp_path, disk)
    space.judge(5 * MB, 5 * MB)
    assert (tmp_path / "ballast").exists()
    assert not space.full
    disk.available = MB - 1
    space.judge(5 * MB, 5 * MB)
    assert space.full
    space.judge(5 * MB, 5 * MB + 1)
    assert not space.full


def test_a_refused_write_gives_up_the_ballast_until_the_disk_has_room(tmp_path: Path) -> None:
    disk = Disk(10 * MB)
    space = space_on(tmp_path, disk)
    space.judge(5 * MB, 5 * MB)
    disk.available = 0
    space.refused()
    assert space.full
    assert not (tmp_path / "ballast").exists()
    disk.available = 2 * MB - 1  # creating the ballast would leave too little
    space.judge(5 * MB, 5 * MB)
    assert space.full
    disk.available = 2 * MB
    space.judge(5 * MB, 5 * MB)
    assert not space.full
    assert (tmp_path / "ballast").exists()


def test_a_drained_file_is_room_even_when_the_disk_stays_full(tmp_path: Path) -> None:
    disk = Disk(10 * MB)
    space = space_on(tmp_path, disk)
    space.judge(50 * MB, 52 * MB)
    disk.available = 0
    space.refused()
    space.judge(50 * MB, 52 * MB)  # two megabytes were free, in pieces too small to use
    assert space.full
    space.judge(46 * MB + 1, 52 * MB)
    assert space.full
    space.judge(46 * MB, 52 * MB)
    assert not space.full
    space.refused()
    space.judge(46 * MB, 52 * MB)
    assert space.full
    space.judge(42 * MB, 52 * MB)
    assert not space.full


def test_opened_on_a_full_disk_it_starts_full(tmp_path: Path) -> None:
    space = space_on(tmp_path, Disk(MB))
    space.judge(MB, MB)
    assert space.full
    assert list(tmp_path.iterdir()) == []


def test_judged_once_a_second_or_after_a_quarter_of_the_reserve(tmp_path: Path) -> None:
    clock = SteppedClock()
    space = space_on(tmp_path, Disk(10 * MB), clock)
    assert space.due
    space.judge(0, 0)
    assert not space.due
    clock.step(ms=STORE_SPACE_CHECK_MS - 1)
    assert not space.due
    clock.step(ms=1)
    assert space.due
    space.judge(0, 0)
    space.wrote(MB // 4)
    assert not space.due
    space.wrote(1)
    assert space.due
    space.judge(0, 0)
    clock.step(ms=-5000)  # the system clock was set back
    assert space.due
