from __future__ import annotations

import json
import os
import threading
from base64 import b64decode
from pathlib import Path

import pytest

from twinbus.auth.policies import ALL_RIGHTS, DEVELOPMENT_KEY, ROOT_KEY_NAME, Policy, Right
from twinbus.broker.configuration.config import BrokerConfig, KeylessPolicy, NamespaceConfig
from twinbus.broker.security.keys import KEYS_FILE, with_keys, write_private
from twinbus.errors import ConfigError


def config(data: Path | None, *names: str, dev: bool = False) -> BrokerConfig:
    return BrokerConfig([NamespaceConfig(name) for name in names or ("contoso",)], data=data, dev=dev)


def test_keys_are_made_once_and_kept(tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    first = with_keys(config(data)).namespaces[0].root
    assert first.name == ROOT_KEY_NAME
    assert first.rights == ALL_RIGHTS
    assert len(b64decode(first.primary_key)) == 32
    assert first.primary_key != first.secondary_key
    assert with_keys(config(data)).namespaces[0].root == first
    assert with_keys(config(data, "CONTOSO")).namespaces[0].root == first


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with_keys(config(data))
    assert data.stat().st_mode & 0o777 == 0o700
    assert (data / KEYS_FILE).stat().st_mode & 0o777 == 0o600
    (data / KEYS_FILE).chmod(0o644)
    with_keys(config(data))
    assert (data / KEYS_FILE).stat().st_mode & 0o777 == 0o600
    assert os.listdir(data) == [KEYS_FILE]


def test_every_namespace_has_its_own_and_a_new_one_leaves_the_old_alone(tmp_path: Path) -> None:
    contoso = with_keys(config(tmp_path, "contoso")).namespaces[0].root
    both = with_keys(config(tmp_path, "contoso", "fabrikam"))
    assert both.namespaces[0].root == contoso
    assert both.namespaces[1].root.primary_key != contoso.primary_key
    # Serving only one namespace does not forget the other's keys.
    with_keys(config(tmp_path, "contoso"))
    assert with_keys(config(tmp_path, "fabrikam")).namespaces[0].root == both.namespaces[1].root


def test_policies_without_keys_get_them(tmp_path: Path) -> None:
    def filled() -> NamespaceConfig:
        namespace = NamespaceConfig(
            "contoso",
            policies=[Policy("own", ALL_RIGHTS, "given")],
            keyless=[KeylessPolicy("reader", frozenset({Right.LISTEN}), "orders")],
        )
        return with_keys(BrokerConfig([namespace], data=tmp_path)).namespaces[0]

    first = filled()
    assert [policy.name for policy in first.policies] == [ROOT_KEY_NAME, "reader", "own"]
    assert first.policies[1].scope == "orders"
    assert first.policies[1].rights == {Right.LISTEN}
    assert first.keyless == []
    assert filled().policies == first.policies
    assert "given" not in (tmp_path / KEYS_FILE).read_text()


def test_calling_it_again_changes_nothing(tmp_path: Path) -> None:
    once = with_keys(config(tmp_path))
    assert with_keys(once).namespaces == once.namespaces


def test_development_uses_the_well_known_key_and_no_file(tmp_path: Path) -> None:
    root = with_keys(config(tmp_path / "data", dev=True)).namespaces[0].root
    assert (root.name, root.primary_key) == (ROOT_KEY_NAME, DEVELOPMENT_KEY)
    assert not (tmp_path / "data").exists()


def test_without_a_folder_keys_are_new_each_time() -> None:
    assert with_keys(config(None)).namespaces[0].root != with_keys(config(None)).namespaces[0].root


@pytest.mark.parametrize(
    "text", ["", "[]", '{"namespaces": []}', '{"namespaces": {"contoso": {"x": ["", ""]}}}', "\xff"]
)
def test_a_broken_file_stops_the_start(tmp_path: Path, text: str) -> None:
    (tmp_path / KEYS_FILE).write_text(text, "latin-1")
    with pytest.raises(ConfigError, match="is not a file of keys"):
        with_keys(config(tmp_path))


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(json.dumps({"namespaces": {}}))
    (tmp_path / KEYS_FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="cannot be read"):
        with_keys(config(tmp_path))


def test_two_starts_at_once_agree(tmp_path: Path) -> None:
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(with_keys(config(tmp_path)).namespaces[0].root.primary_key))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_private(path, "old")

    def fail(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no"):
        write_private(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]
