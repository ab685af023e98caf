"""The two quickest outages; `make faults` runs all seven. The checker fails on what it should."""

from __future__ import annotations

from pathlib import Path

import outages
import pytest
from outages_checker import Did, Entry, check

# One message for each allowed end.
GOOD: list[Entry] = [
    *((Did.SENT, name, 0) for name in ("plain/straight", "plain/diverted", "plain/twice", "detecting/hidden")),
    *((Did.TRIED, name, 0) for name in ("plain/straight", "plain/diverted", "plain/twice", "detecting/hidden")),
    # Their first attempt was not answered.
    (Did.ANSWERED, "plain/straight", 0),
    (Did.FAILED_OVER, "plain", 0),
    *((Did.TRIED, name, 0) for name in ("plain/diverted", "plain/twice", "detecting/hidden")),
    *((Did.ANSWERED, name, 0) for name in ("plain/diverted", "plain/twice", "detecting/hidden")),
    *((Did.DIVERTED, name, 0) for name in ("plain", "plain", "detecting")),
    *((Did.RETURNED, name, 0) for name in ("plain/straight", "plain/diverted", "plain/twice", "detecting/hidden")),
    (Did.FAILED_BACK, "plain", 0),
    *((Did.CARRIED, name, 0) for name in ("plain/diverted", "plain/twice", "detecting/hidden")),
    *((Did.SETTLED, name, 0) for name in ("plain/diverted", "plain/twice", "detecting/hidden")),
    (Did.RECEIVED, "plain/straight", 1),
    # The same message: its receiver was disconnected.
    (Did.RECEIVED, "plain/straight", 1),
    (Did.RECEIVED, "plain/diverted", 2),
    (Did.RECEIVED, "plain/twice", 3),
    (Did.RECEIVED, "plain/twice", 4),
    (Did.RECEIVED, "detecting/hidden", 1),
]
WRONGS = ("lost", "unexpected", "undoubted", "visible", "errors", "hung")


def test_a_good_log_is_good() -> None:
    report = check(GOOD, {"detecting"})
    assert report.good
    assert (report.sent, report.returned, report.received, report.in_doubt) == (4, 4, 5, 3)
    assert (report.failovers, report.failbacks, report.diverted, report.carried) == (1, 1, 3, 3)
    assert report.repeated == ["plain/twice"]
    assert "LOST 0, UNEXPECTED 0, REPEATED 1 (without doubt 0" in str(report)


@pytest.mark.parametrize(
    ("added", "removed", "wrong"),
    [
        pytest.param([], (Did.RECEIVED, "plain/diverted", 2), {"lost": ["plain/diverted"]}, id="never received"),
        pytest.param([(Did.RECEIVED, "plain/ghost", 9)], None, {"unexpected": ["plain/ghost"]}, id="never sent"),
        pytest.param(
            [(Did.SPOILED, "plain/diverted", 2)],
            (Did.RECEIVED, "plain/diverted", 2),
            {"lost": ["plain/diverted"], "unexpected": ["plain/diverted"]},
            id="another body",
        ),
        pytest.param([(Did.SENT, "plain/twice", 0)], None, {"unexpected": ["plain/twice"]}, id="an id used twice"),
        pytest.param(
            [(Did.RECEIVED, "plain/straight", 9)], None, {"undoubted": ["plain/straight"]}, id="repeated without doubt"
        ),
        pytest.param(
            [(Did.RECEIVED, "plain/twice", 9)], None, {"undoubted": ["plain/twice"]}, id="repeated more than doubted"
        ),
        pytest.param([(Did.RECEIVED, "detecting/hidden", 9)], None, {"visible": ["detecting/hidden"]}, id="not hidden"),
        pytest.param(
            [(Did.RAISED, "plain/diverted", 0)],
            (Did.RETURNED, "plain/diverted", 0),
            {"errors": ["plain/diverted"]},
            id="a caller saw an error",
        ),
        pytest.param([], (Did.RETURNED, "plain/diverted", 0), {"hung": ["plain/diverted"]}, id="a caller saw nothing"),
    ],
)
def test_a_doctored_log_is_red(added: list[Entry], removed: Entry | None, wrong: dict[str, list[str]]) -> None:
    report = check([entry for entry in GOOD if entry != removed] + added, {"detecting"})
    assert not report.good
    assert {name: found for name in WRONGS if (found := getattr(report, name))} == wrong


def test_a_completion_that_was_not_confirmed_is_a_doubt() -> None:
    log = [entry for entry in GOOD if entry != (Did.SETTLED, "plain/diverted", 0)]
    again: list[Entry] = [
        (Did.CARRIED, "plain/diverted", 0),
        (Did.SETTLED, "plain/diverted", 0),
        (Did.RECEIVED, "plain/diverted", 9),
    ]
    assert check(log + again, {"detecting"}).good


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ["killed", "lossy"])
def test_nothing_is_lost(name: str) -> None:
    result = outages.run(name, seed=7)
    assert result.good, str(result)


@pytest.mark.timeout(240)
def test_a_syphon_that_forgets_is_found_out() -> None:
    result = outages.run("killed", seed=8, planted=Path(__file__).parent / "planted_syphon", given_up_s=4)
    assert result.report.lost
    assert not result.good
