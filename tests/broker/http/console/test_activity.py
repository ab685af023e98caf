"""Connections and rates in the console, and who may see them."""

from __future__ import annotations

from tests.broker.http.console.window import Window
from tests.broker.nodes.test_activity import count
from tests.broker.peer import Peer, text
from twinbus.amqp.events import Closed
from twinbus.auth.policies import Policy, rights_of
from twinbus.broker.configuration.config import NamespaceConfig
from twinbus.entities.settings import QueueSettings
from twinbus.testing import Broker

POLICIES = [
    Policy("RootManageSharedAccessKey", rights_of(["Manage", "Send", "Listen"]), "root-key"),
    Policy("listener", rights_of(["Listen"]), "listener-key"),
]


def test_the_console_shows_rates_and_closes_connections() -> None:
    namespace = NamespaceConfig("contoso", policies=POLICIES, queues=[QueueSettings(path="a")])
    login = ("PLAIN", b"\0RootManageSharedAccessKey\0root-key")
    with Broker([namespace], dev=False, sync=False) as broker, Peer(broker, sasl=login) as peer:
        peer.send(peer.sender("a"), text("one"))
        count(broker)
        root = Window(broker)
        root.login("RootManageSharedAccessKey", "root-key")
        assert root.get("rates").json["rates"]["a"]["sent"] > 0
        history = root.get("rates", entity="a").json["history"]
        assert len(history["sent"]) == len(history["span_ms"])
        assert max(history["sent"]) > 0
        number = root.get("connections").json["connections"][0]["number"]

        listener = Window(broker)
        listener.login("listener", "listener-key")
        assert listener.get("rates").status == 200
        assert listener.get("connections").status == 403
        assert listener.post("close-connection", number=number).status == 403

        assert root.post("close-connection", number="1").status == 400
        assert root.post("close-connection", number=number).json == {"closed": number}
        assert peer.wait(Closed).error is not None
        assert root.get("connections").json["connections"] == []
