"""JSON that clients send."""

from __future__ import annotations

import json
from typing import Any


def read_json(text: str | bytes) -> Any:
    """The value; ValueError for what is not JSON, and for what is nested deeper than anybody writes by hand."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
