"""The filters and actions of subscription rules, without topics and subscriptions.

Pure: a filter sees a message through a `FilterView`, says beforehand what it `needs` of it, and answers. A wrong text
is an ArgumentError when the rule is made; a right one that fails on a message is a FilterEvaluationError.
"""

from .action import REMOVED, Changes, Removed, SqlAction
from .correlation import CorrelationFilter
from .fixed import FalseFilter, TrueFilter
from .forms import Filter, filter_from_json
from .index import CorrelationIndex
from .names import SETTABLE, SYSTEM_PROPERTIES, fold
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
    "Needs",
    "Properties",
    "Removed",
    "SqlAction",
    "SqlFilter",
    "TrueFilter",
    "filter_from_json",
    "fold",
]
