"""Fixtures for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.browser import Browser


@pytest.fixture
def browser() -> Iterator[Browser]:
    """A real browser, see `tests/browser.py`; its driver is loaded only by tests that need it."""
    from tests.browser import opened

    with opened() as found:
        yield found
