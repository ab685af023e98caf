"""A Celery application on the unmodified `azureservicebus://` transport; run by test_celery.py as its own process.

Celery takes only names that end in `.net`, on the service's own ports, and the SDK under it trusts certifi's bundle
only. Here the resolver is told that the name and every port of it are the broker's one port, and certifi that the
broker's CA is its bundle; elsewhere that is a line in the hosts file and `cat ca.pem >> "$(python -m certifi)"`.
"""

from __future__ import annotations

import os
import socket
import time
from typing import Any

import certifi

NAME = "contoso.twinbus.net"
resolve = socket.getaddrinfo


def to_broker(host: Any, port: Any, *args: Any, **options: Any) -> Any:
    if host == NAME:
        host, port = "127.0.0.1", int(os.environ["BROKER_PORT"])
    return resolve(host, port, *args, **options)


socket.getaddrinfo = to_broker  # type: ignore[assignment]
certifi.where = lambda: os.environ["REQUESTS_CA_BUNDLE"]

from celery import Celery  # noqa: E402 - it must find the two above
from celery.contrib.testing.worker import start_worker  # noqa: E402

app = Celery("app", broker=f"azureservicebus://RootManageSharedAccessKey:{os.environ['BROKER_KEY']}@{NAME}")
app.conf.update(task_ignore_result=True, worker_hijack_root_logger=False, broker_connection_retry_on_startup=True)
app.conf.broker_transport_options = {"wait_time_seconds": 1, "peek_lock_seconds": 30}
sums: list[int] = []


@app.task(name="add")
def add(left: int, right: int) -> None:
    sums.append(left + right)


with start_worker(app, perform_ping_check=False, pool="solo"):
    for number in range(3):
        add.delay(number, number)
    deadline = time.monotonic() + 120
    while len(sums) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
print("sums", sorted(sums), flush=True)
os._exit(0)
