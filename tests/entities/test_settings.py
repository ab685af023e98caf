from __future__ import annotations

import dataclasses
import json

import pytest

from twinbus.entities.settings import QueueSettings
from twinbus.errors import ArgumentError
from twinbus.limits import ENTITY_PATH_CHARS_MAX, UNLIMITED_MS, USER_METADATA_CHARS_MAX


def test_defaults_are_the_services() -> None:
    settings = QueueSettings(path="orders")
    assert settings.lock_duration_ms == 60_000
    assert settings.max_delivery_count == 10
    assert settings.quota_bytes == 1024 * 1024 * 1024
    assert settings.default_ttl_ms == UNLIMITED_MS
    assert settings.status == "Active"


@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [
        ("lock_duration_ms", 5_000, 300_000),
        ("max_megabytes", 1, 81_920),
        ("default_ttl_ms", 1_000, UNLIMITED_MS),
        ("duplicate_window_ms", 5_000, 604_800_000),
        ("max_delivery_count", 1, 2_147_483_647),
        ("auto_delete_on_idle_ms", 300_000, UNLIMITED_MS),
        ("max_message_bytes", 1_024, 104_857_600),
    ],
)
def test_one_past_a_range_names_the_value_and_the_range(name: str, lowest: int, highest: int) -> None:
    for value in (lowest, highest):
        assert getattr(QueueSettings(path="q", **{name: value}), name) == value  # type: ignore[arg-type]
    for value in (lowest - 1, highest + 1):
        with pytest.raises(ArgumentError) as caught:
            QueueSettings(path="q", **{name: value})  # type: ignore[arg-type]
        assert all(str(part) in caught.value.text for part in (name, value, lowest, highest))


@pytest.mark.parametrize(
    "path", ["q", "a/b/c", "contoso/x-servicebus-transfer/0", "A.b-c_d~e", "q" * ENTITY_PATH_CHARS_MAX]
)
def test_good_paths(path: str) -> None:
    assert QueueSettings(path=path).path == path


@pytest.mark.parametrize(
    "path", ["", "/q", "q/", "a//b", "q q", "$q", "q?", "é", "q\n", "q" * (ENTITY_PATH_CHARS_MAX + 1)]
)
def test_bad_paths(path: str) -> None:
    with pytest.raises(ArgumentError):
        QueueSettings(path=path)


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "Sleepy"},
        {"user_metadata": "x" * (USER_METADATA_CHARS_MAX + 1)},
    ],
)
def test_bad_values(fields: dict[str, object]) -> None:
    with pytest.raises(ArgumentError):
        QueueSettings(path="q", **fields)  # type: ignore[arg-type]


def test_the_service_takes_forwarding_that_leads_nowhere() -> None:
    """The official SDK's own tests set both and read them back."""
    assert QueueSettings(path="q", requires_session=True, forward_to="other").forward_to == "other"
    assert QueueSettings(path="q", forward_to="Q", forward_dead_letters_to="q").forward_to == "Q"


def test_settings_survive_json() -> None:
    settings = QueueSettings(path="q", forward_to="other", user_metadata="é", max_delivery_count=3)
    assert QueueSettings.from_json(json.loads(json.dumps(settings.to_json()))) == settings


def test_what_is_fixed_at_creation() -> None:
    settings = QueueSettings(path="q")
    settings.check_update(QueueSettings(path="Q", lock_duration_ms=5_000))
    for change in ({"requires_session": True}, {"requires_duplicate_detection": True}, {"enable_partitioning": True}):
        with pytest.raises(ArgumentError, match=next(iter(change))):
            settings.check_update(dataclasses.replace(settings, **change))
