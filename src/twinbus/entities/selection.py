"""Which subscriptions of a topic take a message: all rules of all subscriptions, evaluated together.

1. A rule that selects everything and changes nothing costs nothing: its subscription is on a list.
2. All correlation filters share one index; only SQL filters are evaluated one by one.
3. A subscription takes one copy if any rule without an action selects the message, plus one for each rule with an
   action that does. A rule that fails on a message does not select it; the subscription may dead-letter it instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from twinbus.errors import FilterEvaluationError, QuotaExceededError
from twinbus.limits import CORRELATION_RULES_PER_TOPIC_MAX, RULES_BYTES_MAX, SQL_RULES_PER_TOPIC_MAX

from .account import Account
from .filters import CorrelationFilter, CorrelationIndex, FalseFilter, TrueFilter
from .rule import Rule

if TYPE_CHECKING:
    from .subscription import Subscription
    from .views import StoredView

_NOTHING: Final[dict[str, Any]] = {}


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


class Selection:
    """The rules of one topic."""

    __slots__ = ("_account", "_always", "_bindings", "_correlations", "_evaluated", "_index")

    def __init__(self, account: Account | None = None) -> None:
        # The memory that the rules take; it counts for the namespace in `account`.
        self._account = Account(RULES_BYTES_MAX, account)
        self._bindings: dict[Rule, Binding] = {}
        # Subscriptions that take every message unchanged, and how many of their rules say so.
        self._always: dict[Subscription, int] = {}
        self._index: CorrelationIndex[Binding] = CorrelationIndex()
        self._correlations: dict[Binding, None] = {}
        # Evaluated for each message: SQL filters, and rules that select everything but have an action.
        self._evaluated: dict[Binding, None] = {}

    @property
    def correlation_count(self) -> int:
        return len(self._correlations)

    @property
    def sql_count(self) -> int:
        """Rules with a SQL filter. To clients, TrueFilter and FalseFilter are SQL filters too."""
        return len(self._bindings) - len(self._correlations)

    @property
    def looks(self) -> bool:
        """Whether any rule reads messages."""
        return bool(self._correlations or self._evaluated)

    def check_room(self, rule: Rule, replaced: Rule | None = None) -> None:
        """Raise if the topic has no room for the rule, in place of `replaced` if there is one."""
        more_bytes = rule.held_bytes - (0 if replaced is None else replaced.held_bytes)
        if more_bytes > 0 and not self._account.room(more_bytes):
            raise QuotaExceededError("The rules take as many bytes as they may: remove rules, or make them smaller.")
        if replaced is not None and type(rule.filter) is type(replaced.filter):
            return
        if isinstance(rule.filter, CorrelationFilter):
            if len(self._correlations) >= CORRELATION_RULES_PER_TOPIC_MAX:
                raise QuotaExceededError(f"A topic has at most {CORRELATION_RULES_PER_TOPIC_MAX} correlation filters.")
        elif self.sql_count >= SQL_RULES_PER_TOPIC_MAX and not isinstance(rule.filter, TrueFilter | FalseFilter):
            raise QuotaExceededError(f"A topic has at most {SQL_RULES_PER_TOPIC_MAX} SQL filters.")

    def add(self, subscription: Subscription, rule: Rule) -> None:
        binding = Binding(subscription, rule)
        self._bindings[rule] = binding
        self._account.hold(rule.held_bytes)
        if isinstance(rule.filter, CorrelationFilter):
            self._index.add(binding, rule.filter)
            self._correlations[binding] = None
        elif isinstance(rule.filter, TrueFilter) and rule.action is None:
            self._always[subscription] = self._always.get(subscription, 0) + 1
        elif not isinstance(rule.filter, FalseFilter):
            self._evaluated[binding] = None

    def remove(self, rule: Rule) -> None:
        binding = self._bindings.pop(rule)
        self._account.give(rule.held_bytes)
        subscription = binding.subscription
        if isinstance(rule.filter, CorrelationFilter):
            self._index.remove(binding)
            del self._correlations[binding]
        elif isinstance(rule.filter, TrueFilter) and rule.action is None:
            self._always[subscription] -= 1
            if not self._always[subscription]:
                del self._always[subscription]
        else:
            self._evaluated.pop(binding, None)

    def select(self, view: StoredView) -> list[Choice]:
        """The copies to make of a message."""
        choices = [Choice(subscription, None, _NOTHING, None) for subscription in self._always]
        if not self.looks:
            return choices
        plain: dict[Subscription, None] = dict.fromkeys(self._always)
        acting: list[Binding] = []
        failed: dict[Subscription, str] = {}
        for binding in self._correlated(view, failed):
            if binding.rule.action is not None:
                acting.append(binding)
            elif binding.subscription not in plain:
                plain[binding.subscription] = None
                choices.append(Choice(binding.subscription, None, _NOTHING, None))
        for binding in self._evaluated:
            rule = binding.rule
            subscription = binding.subscription
            if rule.action is None and subscription in plain:
                continue
            try:
                if not rule.filter.matches(view):
                    continue
            except FilterEvaluationError as error:
                failed.setdefault(subscription, f"Rule '{rule.name}': {error.text}")
                continue
            if rule.action is not None:
                acting.append(binding)
            else:
                plain[subscription] = None
                choices.append(Choice(subscription, None, _NOTHING, None))
        for binding in acting:
            self._act(binding, view, choices, failed)
        if failed:
            taking = {choice.subscription for choice in choices}
            for subscription, text in failed.items():
                if subscription not in taking and subscription.settings.dead_letter_on_filter_error:
                    choices.append(Choice(subscription, None, _NOTHING, text))
        return choices

    def _correlated(self, view: StoredView, failed: dict[Subscription, str]) -> list[Binding]:
        if not self._correlations:
            return []
        try:
            return self._index.match(view)
        except FilterEvaluationError as error:
            # The message cannot be decoded, so it matches no filter.
            for binding in self._correlations:
                failed.setdefault(binding.subscription, f"Rule '{binding.rule.name}': {error.text}")
            return []

    def _act(self, binding: Binding, view: StoredView, choices: list[Choice], failed: dict[Subscription, str]) -> None:
        action = binding.rule.action
        assert action is not None
        try:
            changes = action.apply(view)
            encoded = view.encode(changes)
        except FilterEvaluationError as error:
            failed.setdefault(binding.subscription, f"Action of rule '{binding.rule.name}': {error.text}")
            return
        choices.append(Choice(binding.subscription, encoded or None, changes.system, None))
