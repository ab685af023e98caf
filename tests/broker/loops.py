"""Brokers on each of the supported event loops: asyncio's own, and uvloop if installed."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from twinbus.testing import Broker

LOOPS = [
    "asyncio",
    pytest.param(
        "uvloop", marks=pytest.mark.skipif(importlib.util.find_spec("uvloop") is None, reason="uvloop not installed")
    ),
]


class UvloopBroker(Broker):
    """A broker as `twinbus serve` runs it."""

    @staticmethod
    def _loop_factory() -> Any:
        import uvloop

        return uvloop.new_event_loop()


def broker_on(loop: str, *arguments: Any, **options: Any) -> Broker:
    return UvloopBroker(*arguments, **options) if loop == "uvloop" else Broker(*arguments, **options)
