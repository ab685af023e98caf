from __future__ import annotations

from twinbus.entities.alarms import NEVER_MS, Alarm, Alarms


def test_only_an_earlier_time_moves_an_alarm() -> None:
    alarms = Alarms()
    alarm = Alarm(alarms, 4)
    assert alarm.at_ms == NEVER_MS
    alarm.wake(None)
    assert alarms.next_ms() is None
    alarm.wake(50)
    alarm.wake(70)
    assert (alarm.at_ms, alarms.next_ms()) == (50, 50)
    alarm.wake(20)
    assert (alarm.at_ms, alarms.next_ms()) == (20, 20)


def test_the_earliest_entity_comes_first_and_only_when_due() -> None:
    alarms = Alarms()
    first, second = Alarm(alarms, 4), Alarm(alarms, 8)
    first.wake(50)
    second.wake(30)
    assert alarms.pop(29) is None
    assert alarms.pop(60) == 8
    second.rang()
    assert second.at_ms == NEVER_MS
    assert alarms.pop(60) == 4
    assert alarms.pop(60) is None


def test_a_cleared_alarm_can_be_set_again_and_a_closed_one_cannot() -> None:
    alarms = Alarms()
    alarm = Alarm(alarms, 4)
    alarm.wake(50)
    alarm.clear()
    assert alarms.next_ms() is None
    alarm.wake(60)
    assert alarms.next_ms() == 60
    alarm.close()
    alarm.wake(0)
    assert alarms.next_ms() is None
