"""The identity of a namespace: random, durable before anybody is told, and the same after a restart and a backup."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.broker.identity import namespace_identity
from twinbus.store.facts import Facts, Table
from twinbus.store.lmdb_store import Store
from twinbus.testing import Broker


def of(folder: Path) -> str:
    store = Store.open(folder, sync=False)
    try:
        return namespace_identity(store)
    finally:
        store.close()


def test_it_is_made_once_and_kept(tmp_path: Path) -> None:
    first = of(tmp_path / "a")
    assert len(first) == 32
    assert of(tmp_path / "a") == first
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    assert of(tmp_path / "copy") == first, "a backup is the same namespace"
    assert of(tmp_path / "b") != first, "a new folder is another one"


@pytest.mark.parametrize("value", [b"", b"short", b"x" * 33, b"\xff" * 32])
def test_a_damaged_one_is_replaced_and_said(tmp_path: Path, value: bytes, caplog: pytest.LogCaptureFixture) -> None:
    store = Store.open(tmp_path / "a", sync=False)
    facts = Facts()
    facts.rows[Table.META, b"identity"] = value
    store.commit(facts)
    made = namespace_identity(store)
    assert len(made) == 32
    assert "is damaged" in caplog.text
    assert namespace_identity(store) == made
    store.close()


def test_everybody_is_told_the_same(tmp_path: Path) -> None:
    with Broker(["contoso"], sync=False, data=tmp_path) as broker:
        host = broker.call(lambda server: server.hosts["contoso"])
        assert host.open_properties["identity"] == host.identity
        assert host.open_properties["namespace"] == "contoso"
        from twinbus.broker.http.admin.namespace_xml import namespace_entry

        assert (
            f"<NamespaceIdentity>{host.identity}</NamespaceIdentity>"
            in namespace_entry("contoso", host.identity, "Standard", 0).content
        )
        with ServiceBusAdministrationClient.from_connection_string(
            broker.connection_string().replace("UseDevelopmentEmulator=true", ""), connection_verify=str(broker.ca_file)
        ) as admin:
            assert admin.get_namespace_properties().name == "contoso", "the SDK ignores what it does not know"
        identity = host.identity
        broker.restart()
        assert broker.call(lambda server: server.hosts["contoso"].identity) == identity
