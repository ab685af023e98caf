"""A topic's description, both ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twinbus.auth.policies import Policy
from twinbus.broker.http.admin.authorization_xml import policies_out
from twinbus.broker.http.admin.feed import Entry, Site
from twinbus.broker.http.admin.requests import FILTER_COUNTS_VERSION, MESSAGE_SIZE_VERSION
from twinbus.broker.http.admin.xml_in import DURATION, FLAG, NUMBER, TEXT, Field, values_of
from twinbus.broker.http.admin.xml_out import accessed, count_details, description, element, flag, moment, optional
from twinbus.durations import format_ms
from twinbus.entities.topic import Topic

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

KIND = "TopicDescription"

FIELDS = (
    Field("DefaultMessageTimeToLive", "default_ttl_ms", DURATION),
    Field("MaxSizeInMegabytes", "max_megabytes", NUMBER),
    Field("RequiresDuplicateDetection", "requires_duplicate_detection", FLAG),
    Field("DuplicateDetectionHistoryTimeWindow", "duplicate_window_ms", DURATION),
    Field("EnableBatchedOperations", "enable_batched_operations", FLAG),
    Field("FilteringMessagesBeforePublishing", "filter_before_publishing", FLAG),
    Field("Status", "status", TEXT),
    Field("SupportOrdering", "support_ordering", FLAG),
    Field("AutoDeleteOnIdle", "auto_delete_on_idle_ms", DURATION),
    Field("EnablePartitioning", "enable_partitioning", FLAG),
    Field("EnableExpress", "enable_express", FLAG),
    Field("UserMetadata", "user_metadata", TEXT),
    Field("MaxMessageSizeInKilobytes", "max_message_kilobytes", NUMBER),
)


def topic_values(topic_description: Element) -> dict[str, Any]:
    """The settings in a description. Metadata, which an owner can take away, is None when absent."""
    return {"user_metadata": None} | values_of(topic_description, FIELDS)


def topic_entry(topic: Topic, policies: Sequence[Policy], site: Site) -> Entry:
    settings, rules = topic.settings, topic.selection
    content = description(
        KIND,
        element("DefaultMessageTimeToLive", format_ms(settings.default_ttl_ms)),
        element("MaxSizeInMegabytes", str(settings.max_megabytes)),
        element("RequiresDuplicateDetection", flag(settings.requires_duplicate_detection)),
        element("DuplicateDetectionHistoryTimeWindow", format_ms(settings.duplicate_window_ms)),
        element("EnableBatchedOperations", flag(settings.enable_batched_operations)),
        element("SizeInBytes", str(topic.size_bytes)),
        element("FilteringMessagesBeforePublishing", flag(settings.filter_before_publishing)),
        element("IsAnonymousAccessible", "false"),
        policies_out(policies),
        element("Status", settings.status),
        element("CreatedAt", moment(topic.created_ms)),
        element("UpdatedAt", moment(topic.updated_ms)),
        accessed(topic.accessed_ms, topic.created_ms, topic.updated_ms),
        element("SupportOrdering", flag(settings.support_ordering)),
        # A topic holds nothing itself but what is scheduled.
        count_details(0, 0, topic.counts.scheduled, 0, 0),
        element("SubscriptionCount", str(topic.subscription_count)),
        element("SqlFilterCount", str(rules.sql_count)) if site.version >= FILTER_COUNTS_VERSION else "",
        element("CorrelationFilterCount", str(rules.correlation_count))
        if site.version >= FILTER_COUNTS_VERSION
        else "",
        element("AutoDeleteOnIdle", format_ms(settings.auto_delete_on_idle_ms)),
        element("EnablePartitioning", flag(settings.enable_partitioning)),
        element("EntityAvailabilityStatus", "Available"),
        element("EnableSubscriptionPartitioning", "false"),
        element("EnableExpress", flag(settings.enable_express)),
        optional("UserMetadata", settings.user_metadata),
        element("MaxMessageSizeInKilobytes", str(settings.max_message_bytes // 1024))
        if site.version >= MESSAGE_SIZE_VERSION
        else "",
    )
    return Entry(topic.path, topic.path, topic.created_ms, topic.updated_ms, content)
