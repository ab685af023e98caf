"""The simulations drive the rules through the same house as the tests of the rules."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "entities"))
