"""The description of the namespace itself."""

from __future__ import annotations

from twinbus.broker.http.admin.feed import Entry
from twinbus.broker.http.admin.xml_out import description, element, moment

PREMIUM = "Premium"
STANDARD = "Standard"


def namespace_entry(name: str, identity: str, sku: str, created_ms: int) -> Entry:
    content = description(
        "NamespaceInfo",
        element("CreatedTime", moment(created_ms)),
        element("MessagingSKU", sku),
        # Clients that see "Premium" require the number of units.
        element("MessagingUnits", "1") if sku == PREMIUM else "",
        element("ModifiedTime", moment(created_ms)),
        element("Name", name),
        element("NamespaceType", "Messaging"),
        # Not the service's: which namespace this is, whatever its address.
        element("NamespaceIdentity", identity),
    )
    return Entry("$namespaceinfo", name, created_ms, created_ms, content)
