"""Which subscriptions of a topic take a message: all rules of all subscriptions, evaluated together.

1. A rule that selects everything and changes nothing costs nothing: its subscription is on a list.
2. All correlation filters share one index, and equal ones one entry in it; only SQL filters are evaluated one by one.
3. What takes long is done in steps; an estimate tells before (`cost_us`).
4. A subscription takes one copy if any rule without an action selects the message, plus one for each rule with an
   action that does. A rule that fails on a message does not select it; the subscription may dead-letter it instead.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any, Final

from twinbus.errors import FilterEvaluationError, QuotaExceededError
from twinbus.limits import CORRELATION_RULES_PER_TOPIC_MAX, RULES_BYTES_MAX, SQL_RULES_PER_TOPIC_MAX

from .account import Account
from .filters import CorrelationFilter, CorrelationIndex, FalseFilter, SqlFilter, TrueFilter
from .filters.index import Condition, EqualFilters, condition_of
from .rule import Rule

if TYPE_CHECKING:
    from .message import QueuedMessage
    from .subscription import Subscription
    from .views import StoredView

_NOTHING: Final[dict[str, Any]] = {}

# Estimates, in microseconds: to compile a character of a SQL text, to evaluate eight of them, to decode ten bytes of
# properties, and to search 15,000 bytes of them for one character of a pattern.
_COMPILE_US: Final = 6
_EVALUATED_CHARS: Final = 8
_DECODED_BYTES: Final = 10
_SEARCHED_BYTES: Final = 15_000
# Of a step, which is one rule at least.
_STEP_US: Final = 500
_STEPS_PER_TICK: Final = 8


class Binding:
    """A rule and its subscription."""

    __slots__ = ("rule", "subscription")

    def __init__(self, subscription: Subscription, rule: Rule) -> None:
        self.subscription = subscription
        self.rule = rule


class Choice:
    """One copy that a subscription takes."""

    __slots__ = ("changes", "error", "subscription", "system")

    def __init__(
        self,
        subscription: Subscription,
        changes: dict[str, str | bytes] | None,
        system: dict[str, Any],
        error: str | None,
    ) -> None:
        self.subscription = subscription
        # What the rule's action changes, in the form index records store; None for nothing.
        self.changes = changes
        # The system properties among the changes, by canonical name.
        self.system = system
        # If it is a dead letter, the error text of the failed rule; otherwise None.
        self.error = error


class EqualRules:
    """The rules with equal correlation filters."""

    __slots__ = ("acting", "plain")

    def __init__(self) -> None:
        # Subscriptions whose rule has no action, and how many of their rules these are.
        self.plain: dict[Subscription, int] = {}
        self.acting: dict[Binding, None] = {}


class _Judged:
    """What the rules have said about a message so far."""

    __slots__ = ("acting", "choices", "failed", "plain")

    def __init__(self, always: Iterable[Subscription]) -> None:
        # The copies to make.
        self.choices = [Choice(subscription, None, _NOTHING, None) for subscription in always]
        # Subscriptions that take it unchanged.
        self.plain: dict[Subscription, None] = dict.fromkeys(always)
        # Rules that select it and have an action.
        self.acting: list[Binding] = []
        # The first error of each subscription.
        self.failed: dict[Subscription, str] = {}

    def take(self, subscription: Subscription) -> None:
        if subscription not in self.plain:
            self.plain[subscription] = None
            self.choices.append(Choice(subscription, None, _NOTHING, None))

    def take_equal(self, found: list[EqualFilters[EqualRules]]) -> None:
        for entry in found:
            for rules in entry.keys:
                for subscription in rules.plain:
                    self.take(subscription)
                self.acting += rules.acting

    def fail(self, subscription: Subscription, text: str) -> None:
        self.failed.setdefault(subscription, text)

    def finished(self) -> list[Choice]:
        """All copies, with the dead letters of subscriptions that take none because a rule failed."""
        if self.failed:
            taking = {choice.subscription for choice in self.choices}
            for subscription, text in self.failed.items():
                if subscription not in taking and subscription.settings.dead_letter_on_filter_error:
                    self.choices.append(Choice(subscription, None, _NOTHING, text))
        return self.choices


class Choosing:
    """Selects for a message that has no sender who waits: a few steps at each tick, until it knows the copies."""

    __slots__ = ("_work", "choices", "message", "seq", "view")

    def __init__(self, selection: Selection, message: QueuedMessage, view: StoredView, seq: int) -> None:
        self.message = message
        self.view = view
        # Its number in the topic, which rules can see.
        self.seq = seq
        self._work = selection.select_in_steps(view)
        self.choices: list[Choice] = []

    def advance(self) -> bool:
        """Take the next steps; True at the end."""
        for _ in range(_STEPS_PER_TICK):
            try:
                next(self._work)
            except StopIteration as done:
                self.choices = done.value
                return True
        return False


class Selection:
    """The rules of one topic."""

    __slots__ = (
        "_account",
        "_always",
        "_bindings",
        "_chars",
        "_correlated",
        "_correlation_count",
        "_equal",
        "_evaluated",
        "_index",
        "_like_chars",
        "_waiting",
        "_waiting_chars",
        "acting_count",
    )

    def __init__(self, account: Account | None = None) -> None:
        # The memory that the rules take; it counts for the namespace in `account`.
        self._account = Account(RULES_BYTES_MAX, account)
        self._bindings: dict[Rule, Binding] = {}
        # Subscriptions that take every message unchanged, and how many of their rules say so.
        self._always: dict[Subscription, int] = {}
        self._index: CorrelationIndex[EqualRules] = CorrelationIndex()
        self._equal: dict[Condition, EqualRules] = {}
        # Rules with correlation filters by subscription.
        self._correlated: dict[Subscription, dict[Binding, None]] = {}
        self._correlation_count = 0
        # Evaluated for each message: SQL filters, and rules that select everything but have an action.
        self._evaluated: dict[Binding, None] = {}
        # The length of all texts that may be evaluated, and of those with LIKE.
        self._chars = 0
        self._like_chars = 0
        # Stored rules that no message has met yet, which are not compiled; and the length of their texts.
        self._waiting: dict[Binding, int] = {}
        self._waiting_chars = 0
        # Rules with an action: each may make a copy of its own.
        self.acting_count = 0

    @property
    def correlation_count(self) -> int:
        return self._correlation_count

    @property
    def sql_count(self) -> int:
        """Rules with a SQL filter. To clients, TrueFilter and FalseFilter are SQL filters too."""
        return len(self._bindings) - self._correlation_count

    @property
    def looks(self) -> bool:
        """Whether any rule reads messages."""
        return bool(self._correlation_count or self._evaluated)

    def cost_us(self, count: int, looked_bytes: int) -> int:
        """About how long it takes at most to select for so many messages, whose properties have so many bytes."""
        if not self.looks:
            return 0
        each = len(self._evaluated) + self._chars // _EVALUATED_CHARS + self._index.reach
        cost = count * each + looked_bytes // _DECODED_BYTES + self._like_chars * looked_bytes // _SEARCHED_BYTES
        return cost + self._waiting_chars * _COMPILE_US

    def check_room(self, rule: Rule, replaced: Rule | None = None) -> None:
        """Raise if the topic has no room for the rule, in place of `replaced` if there is one."""
        more_bytes = rule.held_bytes - (0 if replaced is None else replaced.held_bytes)
        if more_bytes > 0 and not self._account.room(more_bytes):
            raise QuotaExceededError("The rules take as many bytes as they may: remove rules, or make them smaller.")
        if replaced is not None and type(rule.filter) is type(replaced.filter):
            return
        if isinstance(rule.filter, CorrelationFilter):
            if self._correlation_count >= CORRELATION_RULES_PER_TOPIC_MAX:
                raise QuotaExceededError(f"A topic has at most {CORRELATION_RULES_PER_TOPIC_MAX} correlation filters.")
        elif self.sql_count >= SQL_RULES_PER_TOPIC_MAX and not isinstance(rule.filter, TrueFilter | FalseFilter):
            raise QuotaExceededError(f"A topic has at most {SQL_RULES_PER_TOPIC_MAX} SQL filters.")

    def add(self, subscription: Subscription, rule: Rule) -> None:
        binding = Binding(subscription, rule)
        self._bindings[rule] = binding
        self._account.hold(rule.held_bytes)
        self._weigh(rule, 1)
        chars = _waiting_chars(rule)
        if chars:
            self._waiting[binding] = chars
            self._waiting_chars += chars
        if isinstance(rule.filter, CorrelationFilter):
            self._add_correlation(binding, rule.filter)
        elif isinstance(rule.filter, TrueFilter) and rule.action is None:
            self._always[subscription] = self._always.get(subscription, 0) + 1
        elif not isinstance(rule.filter, FalseFilter):
            self._evaluated[binding] = None

    def remove(self, rule: Rule) -> None:
        binding = self._bindings.pop(rule)
        self._account.give(rule.held_bytes)
        self._weigh(rule, -1)
        self._waiting_chars -= self._waiting.pop(binding, 0)
        subscription = binding.subscription
        if isinstance(rule.filter, CorrelationFilter):
            self._remove_correlation(binding, rule.filter)
        elif isinstance(rule.filter, TrueFilter) and rule.action is None:
            self._always[subscription] -= 1
            if not self._always[subscription]:
                del self._always[subscription]
        else:
            self._evaluated.pop(binding, None)

    def _weigh(self, rule: Rule, sign: int) -> None:
        if isinstance(rule.filter, SqlFilter):
            chars = len(rule.filter.expression)
            self._chars += sign * chars
            if "like" in rule.filter.expression.lower():
                self._like_chars += sign * chars
        if rule.action is not None:
            self._chars += sign * len(rule.action.expression)
            self.acting_count += sign

    def _add_correlation(self, binding: Binding, filter: CorrelationFilter) -> None:
        condition = condition_of(filter)
        rules = self._equal.get(condition)
        if rules is None:
            rules = self._equal[condition] = EqualRules()
            self._index.add(rules, filter)
        subscription = binding.subscription
        if binding.rule.action is None:
            rules.plain[subscription] = rules.plain.get(subscription, 0) + 1
        else:
            rules.acting[binding] = None
        self._correlated.setdefault(subscription, {})[binding] = None
        self._correlation_count += 1

    def _remove_correlation(self, binding: Binding, filter: CorrelationFilter) -> None:
        condition = condition_of(filter)
        rules = self._equal[condition]
        subscription = binding.subscription
        if binding.rule.action is None:
            rules.plain[subscription] -= 1
            if not rules.plain[subscription]:
                del rules.plain[subscription]
        else:
            del rules.acting[binding]
        if not rules.plain and not rules.acting:
            del self._equal[condition]
            self._index.remove(rules)
        del self._correlated[subscription][binding]
        if not self._correlated[subscription]:
            del self._correlated[subscription]
        self._correlation_count -= 1

    # --- selecting --------------------------------------------------------------------------------------------------

    def select(self, view: StoredView) -> list[Choice]:
        """The copies to make of a message, at once; see `cost_us`."""
        if not self.looks:
            return [Choice(subscription, None, _NOTHING, None) for subscription in self._always]
        judged = _Judged(self._always)
        while self._waiting:
            self._compile_one()
        if self._correlation_count:
            try:
                judged.take_equal([entry for entry in self._index.candidates(view) if entry.matches(view)])
            except FilterEvaluationError as error:
                self._fail_correlations(judged, error)
        for binding in self._evaluated:
            _evaluate(judged, binding, view)
        for binding in judged.acting:
            _act(judged, binding, view)
        return judged.finished()

    def select_in_steps(self, view: StoredView) -> Generator[None, None, list[Choice]]:
        """The same in steps, by the rules at its beginning."""
        while self._waiting:
            self._compile_one()
            yield None
        judged = _Judged(self._always)
        evaluated = list(self._evaluated)
        looked_bytes = view.looked_bytes()
        if self._correlation_count:
            try:
                found: list[EqualFilters[EqualRules]] = []
                for number, entry in enumerate(self._index.candidates(view), 1):
                    if entry.matches(view):
                        found.append(entry)
                    if number % _STEP_US == 0:
                        yield None
                judged.take_equal(found)
            except FilterEvaluationError as error:
                self._fail_correlations(judged, error)
        spent_us = 0
        for binding in evaluated:
            if _evaluate(judged, binding, view):
                spent_us += _rule_us(binding.rule, looked_bytes)
                if spent_us >= _STEP_US:
                    spent_us = 0
                    yield None
        for binding in judged.acting:
            _act(judged, binding, view)
            spent_us += _action_us(binding.rule, looked_bytes)
            if spent_us >= _STEP_US:
                spent_us = 0
                yield None
        return judged.finished()

    def _compile_one(self) -> None:
        """Compile a stored rule, whether or not a message needs it: only then is it no longer counted as waiting."""
        binding, chars = self._waiting.popitem()
        self._waiting_chars -= chars
        if isinstance(binding.rule.filter, SqlFilter):
            binding.rule.filter.prepare()
        if binding.rule.action is not None:
            binding.rule.action.prepare()

    def _fail_correlations(self, judged: _Judged, error: FilterEvaluationError) -> None:
        """The message cannot be decoded, so it matches no filter."""
        for subscription, bindings in self._correlated.items():
            judged.fail(subscription, f"Rule '{next(iter(bindings)).rule.name}': {error.text}")


def _evaluate(judged: _Judged, binding: Binding, view: StoredView) -> bool:
    """Evaluate a rule; False if there was no need to."""
    rule = binding.rule
    subscription = binding.subscription
    if rule.action is None and subscription in judged.plain:
        return False
    try:
        if rule.filter.matches(view):
            if rule.action is not None:
                judged.acting.append(binding)
            else:
                judged.take(subscription)
    except FilterEvaluationError as error:
        judged.fail(subscription, f"Rule '{rule.name}': {error.text}")
    return True


def _act(judged: _Judged, binding: Binding, view: StoredView) -> None:
    action = binding.rule.action
    assert action is not None
    try:
        changes = action.apply(view)
        encoded = view.encode(changes)
    except FilterEvaluationError as error:
        judged.fail(binding.subscription, f"Action of rule '{binding.rule.name}': {error.text}")
        return
    judged.choices.append(Choice(binding.subscription, encoded or None, changes.system, None))


def _waiting_chars(rule: Rule) -> int:
    """The length of the texts that are not compiled."""
    chars = 0
    if isinstance(rule.filter, SqlFilter) and not rule.filter.compiled:
        chars += len(rule.filter.expression)
    if rule.action is not None and not rule.action.compiled:
        chars += len(rule.action.expression)
    return chars


def _rule_us(rule: Rule, looked_bytes: int) -> int:
    """About how long a rule takes to evaluate."""
    if not isinstance(rule.filter, SqlFilter):
        return 1
    chars = len(rule.filter.expression)
    return 1 + chars // _EVALUATED_CHARS + chars * looked_bytes // _SEARCHED_BYTES


def _action_us(rule: Rule, looked_bytes: int) -> int:
    assert rule.action is not None
    # It starts from a copy of the message's properties.
    return 4 + len(rule.action.expression) // _EVALUATED_CHARS + looked_bytes // (_DECODED_BYTES * _DECODED_BYTES)
