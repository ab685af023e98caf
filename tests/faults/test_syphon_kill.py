"""A short run of the syphon's kill test; `make faults` runs it longer."""

from __future__ import annotations

import syphon_kill

# A syphon that completes messages it never sent.
FORGETFUL = """
from twinbus.paired.syphon.bus_port import BusDestination
async def send(self, parcels, on_accepted):
    [on_accepted(index) for index in range(len(parcels))]
    return [None] * len(parcels)
BusDestination.send = send
"""


def test_nothing_is_lost() -> None:
    report = syphon_kill.run(kills=2, seed=5, count=6_000)
    assert report.good, report
    # A run in which nothing was interrupted would prove nothing.
    assert report.kills_in_transfer == 2
    assert report.plain.sent == report.detecting.sent == report.detecting.received == 3_000


def test_a_syphon_that_completes_what_it_did_not_send_is_found_out() -> None:
    report = syphon_kill.run(kills=0, seed=5, count=400, planted=FORGETFUL)
    assert not report.good
    assert len(report.plain.lost) == 200


def test_the_account() -> None:
    found = syphon_kill.account(["a", "b", "c"], ["a", "a", "b", "x"])
    assert (found.sent, found.received, found.lost, found.unexpected, found.repeated) == (3, 4, ["c"], ["x"], 1)
