"""Subscriptions that a receiver's link makes, as JMS consumers of a topic do.

A client names such a subscription by its link and by its own id, not by an entity. It is durable, or it ends with its
last link; it is shared by several receivers, or it has one. The service calls them client-affine and names the entity
`<name>$<client id>$D`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from typing import Any, Final

from twinbus.errors import ArgumentError
from twinbus.limits import CLIENT_ID_CHARS_MAX, JMS_NAME_CHARS_MAX

# Between the parts of a link's name, where Qpid JMS numbers the links of a shared subscription.
_DELIMITER: Final = "|"
_GLOBAL: Final = "|global"
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9._~-]")
_PART_CHARS: Final = 50
_ENTITY_NAME: Final = re.compile(r"[A-Za-z0-9._~-]+\$[A-Za-z0-9._~-]*\$N?D")


@dataclasses.dataclass(frozen=True)
class ClientAffinity:
    """Whose subscription it is."""

    # None: every client may use it.
    client_id: str | None
    # As the client named it.
    name: str
    # Whether it outlives its links.
    durable: bool
    # Whether several receivers may use it at the same time.
    shared: bool

    @property
    def key(self) -> tuple[str | None, str, bool]:
        """What two subscriptions of a namespace cannot have in common."""
        return self.client_id, self.name, self.durable

    @property
    def entity_name(self) -> str:
        """The name of the subscription's entity."""
        owner = "" if self.client_id is None else _part(self.client_id)
        return f"{_part(self.name)}${owner}${'D' if self.durable else 'ND'}"

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: Any) -> ClientAffinity:
        client_id = fields["client_id"]
        return cls(
            None if client_id is None else str(client_id),
            str(fields["name"]),
            bool(fields["durable"]),
            bool(fields["shared"]),
        )


def affinity_of(link_name: str, client_id: str, durable: bool, shared: bool, everyone: bool) -> ClientAffinity:
    """What a link asks for. The links of a shared subscription have its name in front: `name|2`, `name|global`."""
    name = link_name.partition(_DELIMITER)[0] if shared else link_name
    if not name:
        raise ArgumentError("The link that makes a subscription has no name.")
    if durable and len(name) > JMS_NAME_CHARS_MAX:
        raise ArgumentError(f"The subscription's name has {len(name)} characters, the limit is {JMS_NAME_CHARS_MAX}.")
    if len(client_id) > CLIENT_ID_CHARS_MAX:
        raise ArgumentError(f"The client id has {len(client_id)} characters, the limit is {CLIENT_ID_CHARS_MAX}.")
    return ClientAffinity(None if everyone else client_id, name, durable, shared)


def durable_keys(link_name: str, client_id: str) -> tuple[str | None, str, bool]:
    """The key of the durable subscription that a link without a source means."""
    if link_name.endswith(_GLOBAL):
        return None, link_name.removesuffix(_GLOBAL), True
    return client_id, link_name, True


def is_entity_name(name: str) -> bool:
    """Whether a subscription of that name can only be made by a link."""
    return _ENTITY_NAME.fullmatch(name) is not None


def _part(text: str) -> str:
    """A name as a part of an entity's name. If characters are replaced or missing, a sum of the whole follows."""
    part = _UNUSUAL.sub("_", text)[:_PART_CHARS]
    if part != text:
        part += "~" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return part
