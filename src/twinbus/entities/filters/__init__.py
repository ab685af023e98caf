"""The filters and actions of subscription rules, independent of topics and subscriptions.

Pure: a filter declares in `needs` what it reads of a message, sees the message through a `FilterView`, and answers.
Invalid text raises ArgumentError when the rule is created; a valid rule that fails on a message raises
FilterEvaluationError.
"""

from .action import REMOVED, Changes, Removed, SqlAction
from .correlation import CorrelationFilter
from .fixed import FalseFilter, TrueFilter
from .forms import Filter, filter_from_json
from .index import CorrelationIndex
from .names import SETTABLE, SYSTEM_PROPERTIES, fold
from .selector import MessageSelector, SelectorView
from .sql import SqlFilter
from .view import FilterView, Needs, Properties

__all__ = [
    "REMOVED",
    "SETTABLE",
    "SYSTEM_PROPERTIES",
    "Changes",
    "CorrelationFilter",
    "CorrelationIndex",
    "FalseFilter",
    "Filter",
    "FilterView",
    "MessageSelector",
    "Needs",
    "Properties",
    "Removed",
    "SelectorView",
    "SqlAction",
    "SqlFilter",
    "TrueFilter",
    "filter_from_json",
    "fold",
]
