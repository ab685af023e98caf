"""The metrics page: complete, bounded, well-formed, and only for those who may see it."""

from __future__ import annotations

import base64
import re
import urllib.error
import urllib.request
from http.client import HTTPConnection

import pytest

from tests.broker.peer import Peer, text
from twinbus.broker.metering import meter as meter_module
from twinbus.broker.metering import metrics
from twinbus.broker.metering.histogram import Histogram
from twinbus.broker.metering.metrics import may_see_metrics, render_metrics
from twinbus.broker.server import Server
from twinbus.entities.topic_settings import SubscriptionSettings, TopicSettings
from twinbus.testing import Broker

LINE = re.compile(r'[a-z_]+(\{([a-z]+="([^"\\\n]|\\.)*",?)*\})? [0-9.e+-]+')


def page(broker: Broker) -> dict[str, float]:
    """Every sample by name and labels; also checks the format."""
    found = {}
    for line in broker.call(lambda server: render_metrics(server.hosts["contoso"])).splitlines():
        if not line.startswith("#"):
            assert LINE.fullmatch(line), line
            name, _, value = line.rpartition(" ")
            assert name not in found, "a series twice"
            found[name] = float(value)
    return found


def test_what_happens_is_shown() -> None:
    with Broker(queues=["orders"]) as broker:
        with Peer(broker) as peer:
            sender = peer.sender("orders")
            for _ in range(3):
                peer.send(sender, text("x" * 100))
            peer.settle(peer.receive(peer.receiver("orders", 1)))
            found = page(broker)
        here = 'namespace="contoso",entity="orders"'
        assert found[f'twinbus_operations_total{{{here},kind="send",outcome="ok"}}'] == 3
        assert found[f'twinbus_operations_total{{{here},kind="complete",outcome="ok"}}'] == 1
        assert found[f'twinbus_operation_bytes_total{{{here},kind="send",outcome="ok"}}'] > 300
        assert found[f'twinbus_operation_units_total{{{here},kind="send",outcome="ok"}}'] == 3
        assert found[f'twinbus_messages{{{here},state="active"}}'] == 2
        assert found[f"twinbus_entity_bytes{{{here}}}"] > 200
        assert found['twinbus_connections{namespace="contoso"}'] == 1
        assert found['twinbus_links{namespace="contoso",role="sender"}'] == 1
        assert found['twinbus_links{namespace="contoso",role="receiver"}'] == 1
        assert found['twinbus_commit_seconds_count{namespace="contoso"}'] >= 4
        assert 0 < found['twinbus_commit_seconds_sum{namespace="contoso"}'] < 60
        assert found['twinbus_commit_rows_sum{namespace="contoso"}'] >= 8
        assert found['twinbus_store_full{namespace="contoso"}'] == 0
        assert found['twinbus_store_bytes{namespace="contoso"}'] > 4_096
        assert found["process_resident_memory_bytes"] > 1_000_000
        assert "twinbus_ledger_errors_total" not in found


def test_past_the_bound_entities_are_one_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "METRICS_ENTITIES_MAX", 2)
    monkeypatch.setattr(meter_module, "METRICS_ENTITIES_MAX", 2)
    with Broker(queues=[f"q{number}" for number in range(5)]) as broker:
        with Peer(broker) as peer:
            for number in range(5):
                peer.send(peer.sender(f"q{number}"), text())
        found = page(broker)
    sends = {name: value for name, value in found.items() if 'kind="send"' in name and "operations" in name}
    assert len(sends) == 3
    assert sends['twinbus_operations_total{namespace="contoso",entity="$others",kind="send",outcome="ok"}'] == 3
    assert found['twinbus_messages{namespace="contoso",entity="$others",state="active"}'] == 3


def test_subscriptions_have_their_counts() -> None:
    with Broker() as broker:

        def make(server: Server) -> None:
            host = server.hosts["contoso"]
            host.create_topic(TopicSettings(path="news"))
            host.create_subscription(SubscriptionSettings(topic="news", name="all"))

        broker.call(make)
        found = page(broker)
    assert found['twinbus_messages{namespace="contoso",entity="news/Subscriptions/all",state="active"}'] == 0


def test_sums_do_not_shrink_when_an_entity_goes() -> None:
    with Broker(queues=["orders"]) as broker:
        with Peer(broker) as peer:
            peer.send(peer.sender("orders"), text())
        broker.delete_queue("orders")
        broker.call(lambda server: server.hosts["contoso"].meter.flush())
        found = page(broker)
    assert found['twinbus_operations_total{namespace="contoso",entity="$others",kind="send",outcome="ok"}'] == 1
    assert not [name for name in found if 'entity="orders"' in name]


def test_buckets_add_up() -> None:
    histogram = Histogram((1, 2, 5))
    for value in (0.5, 1, 1.5, 5, 6):
        histogram.observe(value)
    assert histogram.counts == [2, 1, 1, 1]
    lines = metrics._histogram("h", "text", 'say "\\"\n', histogram).splitlines()
    assert lines[2] == 'h_bucket{namespace="say \\"\\\\\\"\\n",le="1"} 2'
    assert lines[5] == 'h_bucket{namespace="say \\"\\\\\\"\\n",le="+Inf"} 5'
    assert lines[6].endswith(" 14")


def test_the_page_is_served_where_everything_is() -> None:
    with Broker(queues=["orders"]) as broker:
        endpoint = broker.endpoint()
        url = f"http://{endpoint.host}:{endpoint.port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as response:
            assert response.headers["Content-Type"] == metrics.CONTENT_TYPE
            assert b'twinbus_messages{namespace="contoso",entity="orders",state="active"} 0' in response.read()
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(url, method="POST", data=b""), timeout=10)
        assert refused.value.code == 405
        refused.value.close()
        connection = HTTPConnection(endpoint.host, endpoint.port, timeout=10)
        connection.request("DELETE", "/metrics?api-version=2021-05")
        assert connection.getresponse().status == 404, "a queue may have that name"
        connection.close()


def test_other_machines_need_a_key() -> None:
    with Broker(dev=False) as broker:
        key = dict(part.split("=", 1) for part in broker.connection_string().rstrip(";").split(";"))

        def seen(peer: str, name: str, secret: str, scheme: str = "Basic") -> bool:
            header = f"{scheme} {base64.b64encode(f'{name}:{secret}'.encode()).decode()}"
            return broker.call(lambda server: may_see_metrics(server.hosts["contoso"], peer, header))

        name, secret = key["SharedAccessKeyName"], key["SharedAccessKey"]
        assert seen("127.0.0.1", "nobody", "nothing")
        assert seen("10.1.2.3", name, secret)
        assert not seen("10.1.2.3", name, secret + "x")
        assert not seen("10.1.2.3", "nobody", secret)
        assert not seen("10.1.2.3", name, secret, "Bearer")
        assert not broker.call(lambda server: may_see_metrics(server.hosts["contoso"], "10.1.2.3", ""))
        assert not broker.call(lambda server: may_see_metrics(server.hosts["contoso"], "10.1.2.3", "Basic ="))
        assert not broker.call(lambda server: may_see_metrics(server.hosts["contoso"], "", "Basic /w=="))
