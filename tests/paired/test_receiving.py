"""Which messages are pings, however their content type was set."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from twinbus.paired.receiving import PING_CONTENT_TYPE, is_ping


@pytest.mark.parametrize(
    ("content_type", "ping"),
    [(PING_CONTENT_TYPE, True), (PING_CONTENT_TYPE.encode(), True), (None, False), ("text/plain", False), (b"", False)],
)
def test_pings_are_told_by_their_content_type(content_type: object, ping: bool) -> None:
    assert is_ping(SimpleNamespace(content_type=content_type)) is ping
