from __future__ import annotations

import pytest
from topic_house import TopicHouse, rule

from twinbus.entities.filters import CorrelationFilter, FalseFilter, SqlFilter, TrueFilter
from twinbus.entities.message import Relayed
from twinbus.entities.rule import Rule
from twinbus.errors import ArgumentError, EntityExistsError, EntityNotFoundError, QuotaExceededError
from twinbus.limits import CORRELATION_RULES_PER_TOPIC_MAX, SQL_RULES_PER_TOPIC_MAX
from twinbus.store.facts import Table


def changed(house: TopicHouse, name: str = "s") -> list[dict[str, str | bytes]]:
    return [message.changes or {} for message in house.taken(house.sub(name))]


def test_any_rule_selects_and_one_copy_is_made() -> None:
    house = TopicHouse()
    house.subscribe("s", "color = 'blue'")
    house.add_rule("s", "big", "size > 10")
    house.add_rule("s", "label", CorrelationFilter(label="x"))
    house.add_rule("s", "never", FalseFilter())
    house.publish("none", color="red", size=1)
    house.publish("one", color="blue", size=1)
    house.publish("all", color="blue", size=11, system={"Label": "x"})
    house.publish("label", system={"Label": "x"})
    assert house.finish(house.sub("s")) == ["one", "all", "label"]


def test_each_rule_with_an_action_gives_a_copy_of_its_own() -> None:
    house = TopicHouse()
    house.subscribe("s", "n > 0", "SET n = n + 1")
    house.add_rule("s", "act", TrueFilter(), "SET first = 'yes'; REMOVE junk")
    house.add_rule("s", "label", CorrelationFilter(label="x"), "SET sys.Label = 'y'")
    house.add_rule("s", "plain1", "n = 5")
    house.add_rule("s", "plain2", TrueFilter())
    house.publish("a", n=5, junk=1, system={"Label": "x"})
    assert changed(house) == [
        {},
        {"\0Label": b'"y"'},
        {"n": b"6"},
        {"first": b'"yes"', "junk": b""},
    ]
    assert house.bodies == 1


def test_an_action_sees_the_message_as_it_was_sent() -> None:
    house = TopicHouse()
    house.subscribe("s", "n = 1", "SET n = n + 1")
    house.add_rule("s", "again", "n = 1", "SET n = n + 10")
    house.publish("a", n=1)
    assert changed(house) == [{"n": b"2"}, {"n": b"11"}]


def test_an_action_can_give_a_session() -> None:
    house = TopicHouse()
    house.subscribe("s", "n > 0", "SET sys.SessionId = user.customer", requires_session=True)
    house.publish("a", n=1, customer="c1")
    session = house.sub("s").accept_session("c1", house.now)
    assert session is not None
    assert len(session.acquire(1, house.now, house.facts)) == 1


def test_an_action_can_take_the_session_away() -> None:
    house = TopicHouse()
    house.subscribe("s", TrueFilter(), "REMOVE sys.SessionId", requires_session=True)
    house.publish("a", session_id="red")
    assert house.sub("s").counts == (0, 0, 0, 1)


def test_an_action_can_set_the_time_to_live() -> None:
    house = TopicHouse(default_ttl_ms=60_000)
    house.subscribe("s", "n = 1", "SET sys.TimeToLive = '00:00:10'")
    house.add_rule("s", "longer", "n = 2", "SET sys.TimeToLive = '10:00:00'")
    house.publish("a", n=1)
    house.publish("b", n=2, ttl_ms=1_000)
    assert [message.expires_ms for message in house.taken(house.sub("s"))] == [house.now + 10_000, house.now + 60_000]


def test_an_action_can_put_the_copy_off() -> None:
    house = TopicHouse()
    house.subscribe("s", "n = 1", "SET sys.ScheduledEnqueueTimeUtc = user.later")
    house.publish("a", n=1, later=house.now + 5_000, ttl_ms=1_000)
    assert house.sub("s").counts == (0, 1, 0, 0)
    house.crash()
    house.step(seconds=6)
    (copy,) = house.taken(house.sub("s"))
    assert isinstance(copy, Relayed)
    assert (copy.origin_seq, copy.expires_ms) == (1, house.now + 1_000)


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_failing_filter_dead_letters_where_asked() -> None:
    house = TopicHouse()
    asked = house.subscribe("asked", "10 / n > 1")
    house.subscribe("not", "10 / n > 1", dead_letter_on_filter_error=False)
    house.subscribe("fine", "n = 0")
    house.publish("a", n=0)
    assert house.sub("asked").counts == (0, 0, 0, 1)
    assert house.sub("not").counts == (0, 0, 0, 0)
    assert house.sub("fine").counts == (1, 0, 0, 0)
    assert asked.dead_letters is not None
    (letter,) = house.taken(asked.dead_letters)
    changes = letter.changes or {}
    assert changes["DeadLetterReason"] == "FilterEvaluationException"
    assert "Rule '$Default'" in str(changes["DeadLetterErrorDescription"])
    assert "divided by zero" in str(changes["DeadLetterErrorDescription"])


def test_a_failing_action_counts_as_a_failure() -> None:
    house = TopicHouse()
    house.subscribe("s", TrueFilter(), "SET x = 10 / n")
    house.publish("a", n=0)
    assert house.sub("s").counts == (0, 0, 0, 1)


def test_a_message_that_another_rule_selects_is_no_dead_letter() -> None:
    house = TopicHouse()
    house.subscribe("s", "10 / n > 1")
    house.add_rule("s", "fine", "n = 0")
    house.publish("a", n=0)
    assert house.sub("s").counts == (1, 0, 0, 0)


def test_a_message_that_does_not_read_fails_every_rule_that_looks() -> None:
    house = TopicHouse()
    house.subscribe("sql", "n = 1")
    house.subscribe("correlated", CorrelationFilter(properties={"n": 1}))
    house.subscribe("all")
    house.publish("a", unreadable=True)
    assert house.sub("sql").counts.dead_letter == 1
    assert house.sub("correlated").counts.dead_letter == 1
    assert house.sub("all").counts.active == 1


def test_a_session_id_that_does_not_read_is_none() -> None:
    house = TopicHouse()
    house.subscribe("plain")
    house.subscribe("s", requires_session=True)
    house.publish("a", session_id="red", system={"unreadable": True})
    assert house.sub("plain").counts == (1, 0, 0, 0)
    assert house.sub("s").counts == (0, 0, 0, 1)
    assert house.finish(house.sub("plain")) == ["a"]
    assert house.bodies == 1


# --- keeping rules ----------------------------------------------------------------------------------------------------


def test_rules_survive_a_crash() -> None:
    house = TopicHouse()
    house.subscribe("s", SqlFilter("color = @color", {"@color": "blue"}), "SET seen = TRUE")
    house.add_rule("s", "more", CorrelationFilter(label="x", properties={"n": 5}))
    before = house.subscription("s").rules
    house.crash()
    after = house.subscription("s").rules
    assert [(each.name, each.filter, each.action, each.created_ms) for each in before] == [
        (each.name, each.filter, each.action, each.created_ms) for each in after
    ]
    house.publish("a", n=5, system={"Label": "x"})
    assert house.finish(house.sub("s")) == ["a"]


def test_a_rule_is_updated_in_its_place() -> None:
    house = TopicHouse()
    house.subscribe("s", "n = 1")
    created_ms = house.subscription("s").rule("$default").created_ms
    house.step(seconds=5)
    house.subscription("s").update_rule(rule("$DEFAULT", "n = 2", None, house.now), house.now, house.facts)
    house.commit()
    house.crash()
    house.publish("one", n=1)
    house.publish("two", n=2)
    assert house.finish(house.sub("s")) == ["two"]
    (updated,) = house.subscription("s").rules
    assert (updated.name, updated.created_ms) == ("$DEFAULT", created_ms)


@pytest.mark.parametrize("filter", [TrueFilter(), FalseFilter(), "n = 1", CorrelationFilter(label="x")])
def test_a_removed_rule_selects_nothing(filter: object) -> None:
    house = TopicHouse()
    house.subscribe("s", filter)
    subscription = house.subscription("s")
    subscription.remove_rule("$Default", house.now, house.facts)
    house.commit()
    house.publish("a", n=1, system={"Label": "x"})
    assert subscription.queue.counts.active == 0
    house.crash()
    assert house.subscription("s").rules == []
    house.publish("b", n=1, system={"Label": "x"})
    assert house.sub("s").counts.active == 0


def test_a_name_can_go_and_come_back_within_one_commit() -> None:
    house = TopicHouse()
    house.subscribe("s")
    subscription = house.subscription("s")
    subscription.remove_rule("$Default", house.now, house.facts)
    subscription.add_rule(rule("$Default", "n = 1"), house.now, house.facts)
    house.commit()
    house.crash()
    house.publish("a", n=2)
    house.publish("b", n=1)
    assert house.finish(house.sub("s")) == ["b"]


def test_two_rules_that_take_everything_are_two() -> None:
    house = TopicHouse()
    house.subscribe("s")
    house.add_rule("s", "second", TrueFilter())
    house.subscription("s").remove_rule("second", house.now, house.facts)
    house.publish("a")
    assert house.finish(house.sub("s")) == ["a"]


def test_mistakes() -> None:
    house = TopicHouse()
    house.subscribe("s")
    subscription = house.subscription("s")
    before = dict(house.tables.rows[Table.ENTITIES])
    with pytest.raises(EntityExistsError, match=r"Rules/\$default"):
        subscription.add_rule(rule("$default", "n = 1"), house.now, house.facts)
    for call in (subscription.rule, lambda name: subscription.remove_rule(name, house.now, house.facts)):
        with pytest.raises(EntityNotFoundError, match="Rules/nobody"):
            call("nobody")
    with pytest.raises(EntityNotFoundError):
        subscription.update_rule(rule("nobody", "n = 1"), house.now, house.facts)
    with pytest.raises(ArgumentError, match="rule name"):
        Rule("a/b", TrueFilter(), None, 0)
    with pytest.raises(ArgumentError):
        rule("bad", "n = = 1")
    house.commit()
    assert house.tables.rows[Table.ENTITIES] == before


def test_a_topic_has_a_bounded_number_of_rules() -> None:
    house = TopicHouse()
    house.subscribe("s", FalseFilter())
    selection, sql, correlation = house.topic.selection, SqlFilter("n = 1"), CorrelationFilter(label="a")
    for number in range(SQL_RULES_PER_TOPIC_MAX - 1):
        selection.add(house.subscription("s"), rule(f"sql{number}", sql))
    for number in range(CORRELATION_RULES_PER_TOPIC_MAX):
        selection.add(house.subscription("s"), rule(f"correlation{number}", correlation))
    with pytest.raises(QuotaExceededError, match="at most 2000 SQL filters"):
        house.add_rule("s", "three", sql)
    with pytest.raises(QuotaExceededError, match="at most 100000 correlation filters"):
        house.add_rule("s", "four", correlation)
    with pytest.raises(QuotaExceededError):
        house.subscribe("other", sql)
    assert house.topic.find("other") is None
    house.subscribe("everything")  # what selects everything or nothing is not evaluated, so it is not counted out
    assert (selection.sql_count, selection.correlation_count) == (2_001, 100_000)


def test_ten_thousand_correlation_filters_are_one_look_up() -> None:
    house = TopicHouse()
    house.subscribe("s", CorrelationFilter(properties={"customer": "c0"}))
    subscription = house.subscription("s")
    for number in range(1, 10_000):
        each = rule(f"r{number}", CorrelationFilter(properties={"customer": f"c{number}"}))
        subscription.add_rule(each, house.now, house.facts)
    house.commit()
    house.publish("a", customer="c9999")
    house.publish("b", customer="c10000")
    assert house.finish(subscription.queue) == ["a"]
    house.crash()
    house.publish("c", customer="c5000")
    assert house.finish(house.sub("s")) == ["c"]
