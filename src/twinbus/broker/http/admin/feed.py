"""ATOM entries and feeds, which wrap every answer.

- `<id>` is an absolute address whose path names the entity: the JavaScript client takes names from it.
- A feed has a link to itself and, if more follows, a link to the next page, in exactly this order: the Python client
  takes the second link as the next page, whatever its rel.
- The next page's address has both `$skip` and `$top`.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from twinbus.broker.http.admin.xml_out import ATOM, element, escaped, moment

ENTRY_TYPE = "application/atom+xml;type=entry;charset=utf-8"
FEED_TYPE = "application/atom+xml;type=feed;charset=utf-8"


@dataclass(frozen=True)
class Site:
    """The namespace's address as the client used it, and the API version."""

    authority: str
    namespace: str
    version: str

    def url(self, path: str) -> str:
        return f"https://{self.authority}/{quote(path, safe='/$~')}?api-version={self.version}"

    def forward(self, scheme: str, path: str) -> str:
        """The absolute address of a forwarding target."""
        return f"{scheme}://{self.authority}/{path}"


@dataclass(frozen=True)
class Entry:
    """One resource in an answer. `path` has the capitalisation that clients look for; `content` is XML."""

    path: str
    title: str
    created_ms: int
    updated_ms: int
    content: str


@dataclass(frozen=True)
class Page:
    """The requested part of a list."""

    skip: int
    top: int


def entry_text(entry: Entry, site: Site, *, root: bool) -> str:
    """An entry on its own (`root`) declares the XML namespace."""
    url = escaped(site.url(entry.path))
    return "".join(
        (
            f'<entry xmlns="{ATOM}">' if root else "<entry>",
            f"<id>{url}</id>",
            f'<title type="text">{escaped(entry.title)}</title>',
            element("published", moment(entry.created_ms)),
            element("updated", moment(entry.updated_ms)),
            f"<author>{element('name', site.namespace)}</author>",
            f'<link rel="self" href="{url}"/>',
            f'<content type="application/xml">{entry.content}</content>',
            "</entry>",
        )
    )


def public_text(namespace: str, now_ms: int) -> str:
    """The feed at the service's root, and of what does not exist: the list of public services, which is empty."""
    return "".join(
        (
            f'<feed xmlns="{ATOM}">',
            '<title type="text">Publicly Listed Services</title>',
            '<subtitle type="text">This is the list of publicly-listed services currently available.</subtitle>',
            f"<id>uuid:{uuid.uuid5(uuid.NAMESPACE_URL, namespace)};id=1</id>",
            element("updated", moment(now_ms)),
            "<generator>Service Bus 1.1</generator></feed>",
        )
    )


def feed_text(path: str, title: str, entries: Sequence[Entry], page: Page, site: Site, now_ms: int, more: bool) -> str:
    """One page of a list; `more` adds a link to the next."""
    base = escaped(site.url(path))
    parts = [
        f'<feed xmlns="{ATOM}">',
        f'<title type="text">{escaped(title)}</title>',
        f"<id>{base}</id>",
        element("updated", moment(now_ms)),
        f'<link rel="self" href="{base}&amp;$skip={page.skip}&amp;$top={page.top}"/>',
    ]
    if more:
        parts.append(f'<link rel="next" href="{base}&amp;$skip={page.skip + page.top}&amp;$top={page.top}"/>')
    parts.extend(entry_text(entry, site, root=False) for entry in entries)
    parts.append("</feed>")
    return "".join(parts)
