"""Fixtures for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

    from tests.browser import Browser


# Commands that tests run are run once: an archive of Spark's classes would never pay. Its own test makes one.
os.environ.setdefault("TWINBUS_ARCHIVE", "off")
# What a namespace said in one test is nothing to the next; tests of that memory have a folder of their own.
os.environ["TWINBUS_STATE_DIR"] = ""


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chrome]:
    """A browser's process; its driver is loaded only where a test needs it."""
    from tests.browser import chromium

    with chromium() as driver:
        yield driver


@pytest.fixture
def browser(chromium: Chrome) -> Iterator[Browser]:
    """A new window of a real browser, see `tests/browser.py`."""
    from tests.browser import opened

    with opened(chromium) as found:
        yield found
