"""Every setting in the table is an option of its commands, and is shown as it was set."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.durations import format_ms
from twinbus.entities.setting import DURATION, EVERY, FLAG, NUMBER, SUBSCRIPTION, Setting
from twinbus.entities.settings import SETTINGS_OF
from twinbus.testing import Broker

NAMES = {"queue": ("deep",), "topic": ("news",), "subscription": ("events", "all")}


def other(setting: Setting) -> Any:
    """A value that is not the default."""
    if setting.kind == FLAG:
        return not setting.default
    if setting.kind in (DURATION, NUMBER):
        near = min(setting.lowest * 2, setting.highest)
        return near if near != setting.default else setting.highest
    return setting.choices[1] if setting.choices else "orders" if setting.metavar == "ENTITY" else "mine"


def words(setting: Setting) -> list[str]:
    name, value = setting.key.replace("_", "-"), other(setting)
    if setting.kind == FLAG:
        return [f"--{name}"] if value else [f"--{setting.off or 'no-' + name}"]
    return [f"--{name}", format_ms(value) if setting.kind == DURATION else str(value)]


@pytest.mark.parametrize("kind", EVERY)
def test_every_setting_is_an_option(kind: str, bus: Broker, json_of: Any) -> None:
    bus.create_topic("events")
    settings = SETTINGS_OF[kind]
    made = json_of(kind, "create", *NAMES[kind], *[word for setting in settings for word in words(setting)])
    wanted = {setting.name: other(setting) for setting in settings}
    assert {name: made[name] for name in wanted} == wanted
    assert not {setting.name for setting in settings if wanted[setting.name] == setting.default}
    entities = bus.call(lambda server: server.hosts["contoso"].entities)
    found = entities.subscription(*NAMES[kind]) if kind == SUBSCRIPTION else getattr(entities, kind)(*NAMES[kind])
    assert {name: getattr(found.settings, name) for name in wanted} == wanted


@pytest.mark.parametrize("kind", EVERY)
def test_what_can_change_is_an_option_of_update(kind: str, bus: Broker, json_of: Any) -> None:
    bus.create_topic("events")
    json_of(kind, "create", *NAMES[kind])
    settings = [setting for setting in SETTINGS_OF[kind] if not setting.fixed]
    changed = json_of(kind, "update", *NAMES[kind], *[word for setting in settings for word in words(setting)])
    assert {setting.name: changed[setting.name] for setting in settings} == {
        setting.name: other(setting) for setting in settings
    }
