"""The administration API of a running broker, called without HTTP; the SDK's own models parse descriptions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from azure.servicebus.management._generated.models import (
    NamespacePropertiesEntry,
    QueueDescriptionEntry,
    QueueDescriptionFeed,
)
from azure.servicebus.management._models import QueueProperties, QueueRuntimeProperties

from twinbus.auth.sas import sign
from twinbus.broker.http.admin.errors import AdminResponse
from twinbus.broker.http.admin.feed import FEED_TYPE
from twinbus.broker.http.admin.xml_out import ATOM, INSTANCE, SERVICE
from twinbus.testing import Broker

HOST = "localhost:5300"
VERSION = "2021-05"
UPDATE = {"If-Match": "*"}


class Desk:
    """Sends requests and parses answers."""

    def __init__(self, broker: Broker, namespace: str = "contoso") -> None:
        self.broker = broker
        self.namespace = namespace
        # Sent with every request that has none of its own.
        self.headers: dict[str, str] = {"Host": HOST}

    def sign_in(self, name: str, key: str, path: str = "", *, until_s: int = 4_000_000_000) -> None:
        self.headers["Authorization"] = sign(f"https://{HOST}/{path}", name, key, until_s)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | str = b"",
        headers: Mapping[str, str] | None = None,
        **query: str,
    ) -> AdminResponse:
        assert self.broker.server is not None
        api = self.broker.server.hosts[self.namespace].admin
        data = body.encode() if isinstance(body, str) else body
        asked = api.handle(method, path, {"api-version": VERSION, **query}, {**self.headers, **(headers or {})}, data)
        assert self.broker._loop is not None
        return asyncio.run_coroutine_threadsafe(asked, self.broker._loop).result(10)

    def get(self, path: str, **query: str) -> AdminResponse:
        return self.request("GET", path, **query)

    def put(
        self, path: str, body: bytes | str, headers: Mapping[str, str] | None = None, **query: str
    ) -> AdminResponse:
        return self.request("PUT", path, body, headers, **query)

    def queue(self, path: str) -> QueueProperties:
        return queue_properties(path, self.get(f"/{path}"))


def body(kind: str, inner: str) -> str:
    """A request's entry, with different prefixes from ours."""
    return (
        f'<?xml version="1.0" encoding="utf-8"?><a:entry xmlns:a="{ATOM}" xmlns="{SERVICE}" xmlns:x="{INSTANCE}">'
        f'<a:content type="application/xml"><{kind}>{inner}</{kind}></a:content></a:entry>'
    )


def queue_body(inner: str = "") -> str:
    return body("QueueDescription", inner)


def parsed(response: AdminResponse) -> ElementTree.Element:
    return ElementTree.fromstring(response.body)


def queue_properties(path: str, response: AdminResponse) -> QueueProperties:
    assert response.status in (200, 201), response.body
    entry = QueueDescriptionEntry.deserialize(parsed(response))
    return QueueProperties._from_internal_entity(path, entry.content.queue_description)


def queue_runtime(path: str, response: AdminResponse) -> QueueRuntimeProperties:
    entry = QueueDescriptionEntry.deserialize(parsed(response))
    return QueueRuntimeProperties._from_internal_entity(path, entry.content.queue_description)


def queue_titles(response: AdminResponse) -> list[str]:
    assert response.status == 200, response.body
    return [entry.title for entry in QueueDescriptionFeed.deserialize(parsed(response)).entry or []]


def namespace_properties(response: AdminResponse) -> Any:
    return NamespacePropertiesEntry.deserialize(parsed(response)).content.namespace_properties


def refused(response: AdminResponse, status: int, *words: str) -> str:
    """The detail of an error, after checking everything that clients rely on."""
    assert response.status == status, (response.status, response.body)
    error = parsed(response)
    assert error.tag == "Error"
    assert error.findtext("Code") == str(status)
    detail = error.findtext("Detail") or ""
    assert detail.startswith(("SubCode=", "Manage,EntityRead", "Authorization failed"))
    for word in ("TrackingId:", "SystemTracker:", "Timestamp:", *words):
        assert word in detail, (word, detail)
    return detail


def missing(response: AdminResponse) -> None:
    """Check the service's answer to GET of an entity that does not exist: an empty feed."""
    assert (response.status, response.headers["Content-Type"]) == (200, FEED_TYPE), (response.status, response.body)
    feed = parsed(response)
    assert feed.findtext(f"{{{ATOM}}}title") == "Publicly Listed Services"
    assert feed.find(f"{{{ATOM}}}entry") is None
