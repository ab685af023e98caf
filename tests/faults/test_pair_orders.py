"""One order of starting and stopping a pair, in which nobody waits for two absent namespaces; `make faults` runs all
24, and with keys of fewer rights."""

from __future__ import annotations

import pair_orders
import pytest

# The client does not know its primary's name at first, learns it, and loses the primary again.
STARTS = ("secondary", "syphon", "client", "primary")
STOPS = ("primary", "client", "syphon", "secondary")


def test_every_message_comes_home_or_is_listed() -> None:
    report = pair_orders.order(STARTS, STOPS, old=None, limited=False)
    assert report["findings"] == [], report
    # Without messages, nothing was tried.
    assert report["accepted"] > 0, report


def test_a_status_that_is_wrong_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(self: pair_orders.Site, *arguments: str, who: str = "syphon") -> tuple[int, str]:
        return 0, '{"queues": [], "diverted": 0, "primary": "contoso"}'

    monkeypatch.setattr(pair_orders.Site, "command", blind)
    monkeypatch.setattr(pair_orders.Site, "settle", lambda site: {"findings": site.findings})
    report = pair_orders.order(("secondary", "client"), (), old=None, limited=False)
    assert any("status lists {}" in finding for finding in report["findings"]), report
