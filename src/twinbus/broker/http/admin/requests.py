"""Parses a request's path, query and headers.

- Keywords in the path are case-insensitive. One client percent-encodes names and another does not, so the whole path is
  decoded once and then split at `Subscriptions` and `Rules`.
- The first `Subscriptions` ends the topic's name: an entity with such a segment in its name cannot be reached here.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from twinbus.broker.http.admin.feed import Page
from twinbus.errors import ArgumentError
from twinbus.limits import ADMIN_PAGE_ENTRIES_MAX

VERSIONS = (
    "2012-03",
    "2012-08",
    "2013-04",
    "2013-07",
    "2013-08",
    "2013-10",
    "2014-01",
    "2014-05",
    "2014-09",
    "2015-01",
    "2015-04",
    "2015-08",
    "2016-07",
    "2016-12",
    "2017-04",
    "2021-05",
    "2024-05",
)
# For clients that send none: the last version before descriptions grew.
VERSION_DEFAULT = "2017-04"
# Descriptions have these elements from these versions on.
MESSAGE_SIZE_VERSION = "2021-05"
FILTER_COUNTS_VERSION = "2024-05"

_BELOW_TOPIC = re.compile(
    r"(?P<topic>.+?)/subscriptions(?:/(?P<subscription>[^/]+)(?P<rules>/rules(?:/(?P<rule>[^/]+))?)?)?", re.IGNORECASE
)
_AUTHORITY = re.compile(r"[A-Za-z0-9._~\-\[\]:]{1,255}", re.ASCII)
# More digits than any list could need.
_NUMBER_CHARS_MAX = 9


class ResourceKind(enum.Enum):
    """What a path refers to."""

    NAMESPACE = "the namespace"
    QUEUES = "the queues"
    TOPICS = "the topics"
    ENTITY = "a queue or topic"
    SUBSCRIPTIONS = "the subscriptions of a topic"
    SUBSCRIPTION = "a subscription"
    RULES = "the rules of a subscription"
    RULE = "a rule"


@dataclass(frozen=True)
class RequestTarget:
    """What a request is about; names that its kind does not have are empty."""

    kind: ResourceKind
    # The whole decoded path, for rights and the log.
    path: str
    # The path of a queue or topic.
    entity: str = ""
    subscription: str = ""
    rule: str = ""


_LISTS = {
    "$resources/queues": ResourceKind.QUEUES,
    "$resources/topics": ResourceKind.TOPICS,
    "$namespaceinfo": ResourceKind.NAMESPACE,
}


def target_of(raw_path: str) -> RequestTarget:
    """Parse the path of a request (percent-encoded, without the query)."""
    path = unquote(raw_path).strip("/")
    kind = _LISTS.get(path.lower())
    if kind is not None:
        return RequestTarget(kind, path)
    match = _BELOW_TOPIC.fullmatch(path)
    if match is None:
        return RequestTarget(ResourceKind.ENTITY, path, path)
    topic, subscription, rules, rule = match["topic"], match["subscription"], match["rules"], match["rule"]
    if rule:
        return RequestTarget(ResourceKind.RULE, path, topic, subscription, rule)
    if rules:
        return RequestTarget(ResourceKind.RULES, path, topic, subscription)
    if subscription:
        return RequestTarget(ResourceKind.SUBSCRIPTION, path, topic, subscription)
    return RequestTarget(ResourceKind.SUBSCRIPTIONS, path, topic)


def version_of(query: Mapping[str, str]) -> str:
    version = query.get("api-version") or VERSION_DEFAULT
    if version not in VERSIONS:
        raise ArgumentError(
            f"The api-version {version[:40]!r} is not known. Known are {', '.join(VERSIONS[:-1])} and {VERSIONS[-1]}."
        )
    return version


def page_of(query: Mapping[str, str]) -> Page:
    """The requested part of a list: `$skip` (default 0) and `$top` (default and maximum 100)."""
    top = _number(query, "$top", ADMIN_PAGE_ENTRIES_MAX)
    return Page(_number(query, "$skip", 0), min(top, ADMIN_PAGE_ENTRIES_MAX))


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= _NUMBER_CHARS_MAX):
        raise ArgumentError(f"{name} is {text[:40]!r}; it must be a whole number from 0 on.")
    return int(text)


def authority_of(headers: Mapping[str, str], namespace: str) -> str:
    """The `host:port` that the client used: addresses in the answer must lead back here."""
    host = headers.get("host", "")
    return host if _AUTHORITY.fullmatch(host) else namespace
