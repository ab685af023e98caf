"""Celery's `azureservicebus://` transport, unmodified, makes its queue and runs its tasks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from twinbus.auth.connection_string import ConnectionString
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.testing import Broker

if os.environ.get("CI") != "true":
    pytest.importorskip("celery", reason="celery is not installed: pip install 'twinbus[compat]'")

APP = Path(__file__).with_name("celery_app.py")


def test_tasks_run() -> None:
    with Broker([NamespaceConfig("contoso")], dev=False, tls_names=["contoso.twinbus.net"]) as broker:
        keys = ConnectionString.parse(broker.connection_string())
        environment = {
            **os.environ,
            "BROKER_PORT": str(broker.endpoint().port),
            "BROKER_KEY": keys.key or "",
            "REQUESTS_CA_BUNDLE": str(broker.ca_file),
        }
        done = subprocess.run(
            [sys.executable, APP], env=environment, capture_output=True, text=True, timeout=55, check=False
        )
        assert "sums [0, 2, 4]" in done.stdout, done.stdout + done.stderr
        queues = broker.call(lambda server: [queue.path for queue in server.hosts["contoso"].entities.queues()])
        assert "celery" in queues
