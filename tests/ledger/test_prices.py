"""Price sheets: figures computed by hand at the bounds of the tiers, and errors of invalid sheets."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.errors import ConfigError
from twinbus.ledger import files
from twinbus.ledger.prices import GIGABYTE, Sheet, Tier, Tiers
from twinbus.ledger.words import Kind

STANDARD = Sheet.load("standard")
TEXT = files.sheets()["standard"]


@pytest.mark.parametrize(
    ("so_far", "units", "cost"),
    [
        (0, 0, "0"),
        (0, 13_000_000, "0"),
        (0, 13_000_001, "0.0000008"),
        (12_999_999, 2, "0.0000008"),
        (13_000_000, 1_000_000, "0.80"),
        # 87 million at 0.80
        (0, 100_000_000, "69.60"),
        (99_999_999, 2, "0.0000013"),
        # 69.60 and 2,400 million at 0.50
        (0, 2_500_000_000, "1269.60"),
        (2_499_999_999, 2, "0.0000007"),
        (2_500_000_000, 1_000_000, "0.20"),
        # 20 million messages through the backlog are 80 million operations: 67 million are billed
        (0, 80_000_000, "53.60"),
    ],
)
def test_operations_by_tier(so_far: int, units: int, cost: str) -> None:
    assert STANDARD.operations_cost(so_far, units) == Decimal(cost)


@pytest.mark.parametrize(
    ("peak", "hours", "cost"),
    [
        (1_000, 744, "0"),
        (1_001, 744, "0.03"),
        # 10,000 connections for 12 hours on 31 days equal 5,000 for a month, of which 1,000 are free
        (10_000, 12 * 31, "120"),
        (100_000, 744, "2970"),
        (100_001, 744, "2970.025"),
        (500_001, 744, "12970.015"),
        # a 744th of three cents, truncated to twelve decimals
        (744_001, 1, "0.000040322580"),
    ],
)
def test_connections_by_tier(peak: int, hours: int, cost: str) -> None:
    assert STANDARD.connections_cost(peak, hours) == Decimal(cost)


def test_the_base_charge_is_by_the_hour() -> None:
    assert STANDARD.base_cost(744) == Decimal("10.044")
    assert STANDARD.base_cost(Decimal("0.5")) == Decimal("0.00675")


def test_a_message_through_the_backlog_is_four_operations() -> None:
    way = [Kind.SEND, Kind.RECEIVE, Kind.COMPLETE, Kind.SEND, Kind.RECEIVE, Kind.COMPLETE]
    assert sum(STANDARD.billed(kind, "ok") for kind in way) == 4
    assert STANDARD.billed(Kind.EMPTY_POLL, "ok")
    assert STANDARD.billed(Kind.PING, "ok")
    assert not STANDARD.billed(Kind.SEND, "com.microsoft:server-busy")


def test_nothing_costs_anything_by_the_free_sheet() -> None:
    free = Sheet.load("free")
    assert (free.operations_cost(0, 10**12), free.base_cost(744), free.connections_cost(10**6, 744)) == (0, 0, 0)
    assert free.billed(Kind.COMPLETE, "ok")


@given(st.lists(st.integers(0, 10**9), max_size=20), st.integers(1, 1_000))
def test_a_month_costs_the_same_however_it_is_cut(pieces: list[int], per: int) -> None:
    tiers = Tiers(per, (Tier(7_000, Decimal("0.123456789")), Tier(10**8, Decimal("0.7")), Tier(None, Decimal("0.01"))))
    so_far = 0
    total = Decimal(0)
    for piece in pieces:
        total += tiers.cost(so_far, piece)
        so_far += piece
    assert total == tiers.total(so_far)


def test_units_are_never_negative() -> None:
    with pytest.raises(ValueError, match="never negative"):
        STANDARD.operations_cost(0, -1)


def test_bandwidth_by_tier(tmp_path: Path) -> None:
    path = tmp_path / "carried.toml"
    tiers = 'tiers = [{ up_to = 100, price = "0" }, { price = "0.02" }]'
    path.write_text(TEXT.replace("[bandwidth]", f"[bandwidth]\n{tiers}").replace('tiers = [{ price = "0" }]\n', "", 1))
    sheet = Sheet.load(path)
    assert sheet.bandwidth_cost(0, 100 * GIGABYTE) == 0
    assert sheet.bandwidth_cost(100 * GIGABYTE, 50 * GIGABYTE) == 1
    assert sheet.bandwidth_cost(99 * GIGABYTE, 51 * GIGABYTE) == 1
    assert STANDARD.bandwidth_cost(0, 10**15) == 0
    path.write_text(TEXT.partition("[bandwidth]")[0])
    assert Sheet.load(path).bandwidth_cost(0, 10**15) == 0
    path.write_text(TEXT.replace("[bandwidth]", "[bandwidth]\nper = 1"))
    with pytest.raises(ConfigError, match=r"'bandwidth\.per' is not known"):
        Sheet.load(path)


def test_a_sheet_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        TEXT.replace('"standard"', '"mine"').replace("65_536", "0").replace("refused = false", "refused = true")
    )
    sheet = Sheet.load(path)
    assert sheet.name == "mine"
    assert sheet.units(3, 12) == 3
    assert STANDARD.units(3, 12) == 12
    assert sheet.billed(Kind.SEND, "com.microsoft:server-busy")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "standard"', "", "'name' is missing: give a text of letters"),
        ('"USD"', '"dollars"', "'currency' is wrong: give a text of three capital letters"),
        ("[base]", "[bass]", "'bass' is not known: remove it; known are name, currency, base"),
        ('"0.0135"', "0.0135", "'base.per_hour' is wrong: give a price as a text"),
        ('"0.0135"', '"-1"', "'base.per_hour' is wrong: give a price"),
        ('"0.80"', '"0.0000000001"', "'operations.tiers[2].price' is wrong"),
        ('"0.80"', '"100001"', "'operations.tiers[2].price' is wrong"),
        ("100_000_000,", "13_000_000,", "'operations.tiers[2].up_to' is wrong: give a whole number from 13000001"),
        ('{ price = "0.20" }', '{ up_to = 9_000_000_000, price = "0.20" }', "the last tier has none"),
        ("1_000_000\n", "0\n", "'operations.per' is wrong: give a whole number from 1"),
        ("65_536", "1_024", "'operations.step_bytes' is wrong: give 65536"),
        ('"complete", ', '"finish", ', "'operations.free_kinds' is wrong: give a list of kinds"),
        ("refused = false", 'refused = "no"', "'operations.refused' is wrong: give true or false"),
        ("hours = 744", "hours = true", "'connections.hours' is wrong"),
        ("[connections]", "[connections", "is not TOML"),
        ("65_536", "9" * 5_000, "is not TOML"),
        ("65_536", "[" * 5_000, "is nested too deep"),
    ],
)
def test_a_wrong_sheet_names_the_field_and_the_fix(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in TEXT
    path = tmp_path / "wrong.toml"
    path.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        Sheet.load(path)
    assert said in str(caught.value)
    assert "wrong.toml" in str(caught.value)


def test_a_sheet_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Unknown price sheet 'standart': use one of free, standard, or the path"):
        Sheet.load("standart")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        Sheet.load(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        Sheet.load(tmp_path / "latin.toml")


def test_the_example_is_a_sheet() -> None:
    path = Path(__file__).parents[2] / "examples" / "prices.toml"
    assert Sheet.load(path).operations_cost(13_000_000, 1_000_000) == 1
