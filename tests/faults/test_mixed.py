"""The quick form of the mixed run; `make faults` runs it for half an hour. Three old faults, put back, make it fail."""

from __future__ import annotations

import mixed
import pytest


@pytest.mark.timeout(300)
def test_every_message_is_accounted_for() -> None:
    report = mixed.run(40, quick=mixed.QUICK)
    assert report.good, (
        f"{report} {report.lost[:5]} {report.resurrected[:5]} {report.unexpected[:5]} {report.faults[:5]}"
    )
    # A run in which nothing happened would prove nothing.
    assert min(report.completed, report.taken, report.left) > 50
    assert min(report.deleted, report.damaged) > 0
    assert min(report.kills, report.stops) > 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("planted", "steps", "fault"),
    [
        ("planted_early_removal", ("clock", "clock", "kill"), "cut "),
        ("planted_stale_entity", ("delete", "clock"), "refused "),
        ("planted_damage_stops", ("damage",), "cut kept-"),
    ],
)
def test_an_old_fault_is_found_out(planted: str, steps: tuple[str, ...], fault: str) -> None:
    report = mixed.run(41, quick=steps, planted=planted)
    assert any(each.startswith(fault) for each in report.faults), report.faults[:5]
