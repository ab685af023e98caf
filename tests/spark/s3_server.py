"""A local S3 server (moto) with one bucket, and the environment that points clients to it."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from twinbus.spark import store_path
from twinbus.spark.store_path import StorePath


@contextmanager
def s3_bucket() -> Iterator[StorePath]:
    """The bucket, while the server runs."""
    server = pytest.importorskip("moto.server", reason="moto is not installed: `make spark-store` runs this")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    environment = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        # For deltalake.
        "AWS_ALLOW_HTTP": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        connection = http.client.HTTPConnection(host, port)
        connection.request("PUT", "/bucket")
        assert connection.getresponse().status == 200
        connection.close()
        store_path._filesystem.cache_clear()
        try:
            yield StorePath("s3a://bucket")
        finally:
            store_path._filesystem.cache_clear()
            running.stop()
