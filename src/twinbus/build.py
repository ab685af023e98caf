"""Tell the package's two builds apart: pure Python, or with the hot modules compiled."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec


def build() -> str:
    """Return `compiled` or `pure`. All hot modules are compiled together, so checking one is enough."""
    spec = find_spec("twinbus.store.facts")
    origin = (spec.origin if spec else None) or ""
    return "compiled" if origin.endswith(tuple(EXTENSION_SUFFIXES)) else "pure"
