"""What several of the compatibility tests need."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.npm import installed

FOLDER = Path(__file__).parent / "node"


@pytest.fixture(scope="session")
def node() -> str:
    """The Node executable, with the client installed."""
    return installed(FOLDER, "the JavaScript client")
