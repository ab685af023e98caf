"""The whole administration API behind one call.

- Rights are checked first: without a valid token nobody learns anything. As in the service, a caller that may receive
  from an entity is told whether it exists; one that may only send gets the same answer for both.
- As in the service, GET of a queue, topic or subscription that does not exist answers with an empty feed.
- A change is checked as a whole before anything changes, and answered once it is on disk.
- PUT without If-Match creates, and is a conflict if the resource exists; with If-Match it updates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from twinbus.broker.durability import until_durable
from twinbus.broker.http.admin.caller import Caller
from twinbus.broker.http.admin.entities import Queues, Subscriptions, Topics
from twinbus.broker.http.admin.errors import AdminError, AdminResponse, refusal
from twinbus.broker.http.admin.feed import ENTRY_TYPE, FEED_TYPE, Entry, Site, entry_text, feed_text, public_text
from twinbus.broker.http.admin.namespace_xml import namespace_entry
from twinbus.broker.http.admin.refusals import missing_right
from twinbus.broker.http.admin.requests import RequestTarget, ResourceKind, authority_of, page_of, target_of, version_of
from twinbus.broker.http.admin.resource import Call, Resource
from twinbus.broker.http.admin.rules import Rules
from twinbus.broker.http.admin.xml_in import description_in
from twinbus.entities.records import NUMBER
from twinbus.errors import ArgumentError, EntityNotFoundError
from twinbus.store.facts import Table

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost

_CREATED_KEY = b"admin.created"
_DECLARATION = '<?xml version="1.0" encoding="utf-8"?>'


class AdminApi:
    """The administration of one namespace."""

    def __init__(self, host: NamespaceHost) -> None:
        self._host = host
        queues, topics, subscriptions, rules = Queues(host), Topics(host), Subscriptions(host), Rules(host)
        # What the path of a single resource can be, by kind; if there are several, the description decides.
        self._things: dict[ResourceKind, tuple[Resource, ...]] = {
            ResourceKind.ENTITY: (queues, topics),
            ResourceKind.SUBSCRIPTION: (subscriptions,),
            ResourceKind.RULE: (rules,),
        }
        self._lists: dict[ResourceKind, Resource] = {
            ResourceKind.QUEUES: queues,
            ResourceKind.TOPICS: topics,
            ResourceKind.SUBSCRIPTIONS: subscriptions,
            ResourceKind.RULES: rules,
        }
        # When the namespace was first served.
        self._created_ms = self._first_start()

    async def handle(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> AdminResponse:
        """Answer one request. `path` is still percent-encoded; the query is decoded."""
        target: RequestTarget | None = None
        try:
            target = target_of(path)
            lowered = {name.lower(): value for name, value in headers.items()}
            now_ms = self._host.clock.now_ms()
            caller = Caller(lowered, self._host.policies, now_ms / 1000, self._host.dev, self._host.jwt)
            verb = method.upper()
            if verb == "GET" and target.kind is ResourceKind.ENTITY and not target.entity:
                return self._public(now_ms)
            authority = authority_of(lowered, self._host.name)
            if not caller.may_manage(target.path):
                told = verb == "GET" and target.kind is ResourceKind.ENTITY and caller.may_listen(target.path)
                if told and self._find(target) is None:
                    return self._public(now_ms)
                raise missing_right(verb, target, authority)
            site = Site(authority, self._host.name, version_of(query))
            call = Call(verb, target, lowered, body, site, caller, now_ms)
            response = self._answer(call, query)
            if call.method != "GET":
                await until_durable(self._host)
            return response
        except Exception as error:
            return refusal(error, self._host.tracker, path.strip("/") if target is None else target.path)

    # --- answers ----------------------------------------------------------------------------------------------------

    def _answer(self, call: Call, query: Mapping[str, str]) -> AdminResponse:
        kind = call.target.kind
        if kind is ResourceKind.NAMESPACE:
            self._only(call, "GET")
            return self._shown(
                namespace_entry(self._host.name, self._host.identity, self._host.sku, self._created_ms), call, 200
            )
        if kind in self._lists:
            self._only(call, "GET")
            return self._listed(self._lists[kind], call, query)
        self._only(call, "GET", "PUT", "DELETE")
        if not call.target.entity:
            raise ArgumentError("The path names no entity.")
        if call.method == "PUT":
            return self._put(call)
        if call.method == "GET" and kind is not ResourceKind.RULE and self._find(call.target) is None:
            return self._public(call.now_ms)
        resource, found = self._found(call.target)
        if call.method == "DELETE":
            self._check_match(resource, found, call)
            resource.delete(found)
            return AdminResponse(200)
        return self._shown(resource.entry(found, call), call, 200, self._etag(resource, found))

    def _put(self, call: Call) -> AdminResponse:
        name, description = description_in(call.body)
        things = self._things[call.target.kind]
        resource = next((thing for thing in things if thing.kind == name), None)
        if resource is None:
            wanted = " or a ".join(thing.kind for thing in things)
            raise ArgumentError(f"A {wanted} belongs here, and the entry has a {name[:60]}.")
        if "if-match" not in call.headers:
            found = resource.create(call, description)
            status = 201
        else:
            other, found = self._found(call.target)
            if other is not resource:
                raise ArgumentError(f"'{call.target.path}' has a {other.kind}, and the entry brings a {name}.")
            self._check_match(resource, found, call)
            found = resource.update(found, call, description)
            status = 200
        return self._shown(resource.entry(found, call), call, status, self._etag(resource, found))

    def _listed(self, resource: Resource, call: Call, query: Mapping[str, str]) -> AdminResponse:
        page = page_of(query)
        everything = resource.all(call.target)
        end = page.skip + page.top
        entries = [resource.entry(found, call) for found in everything[page.skip : end]]
        more = page.top > 0 and end < len(everything)
        text = feed_text(call.target.path, resource.title, entries, page, call.site, call.now_ms, more)
        return AdminResponse(200, {"Content-Type": FEED_TYPE}, (_DECLARATION + text).encode())

    def _public(self, now_ms: int) -> AdminResponse:
        text = public_text(self._host.name, now_ms)
        return AdminResponse(200, {"Content-Type": FEED_TYPE}, (_DECLARATION + text).encode())

    def _shown(self, entry: Entry, call: Call, status: int, etag: str = "") -> AdminResponse:
        headers = {"Content-Type": ENTRY_TYPE} | ({"ETag": etag} if etag else {})
        return AdminResponse(status, headers, (_DECLARATION + entry_text(entry, call.site, root=True)).encode())

    # --- parts ------------------------------------------------------------------------------------------------------

    def _find(self, target: RequestTarget) -> tuple[Resource, object] | None:
        for resource in self._things[target.kind]:
            found = resource.find(target)
            if found is not None:
                return resource, found
        return None

    def _found(self, target: RequestTarget) -> tuple[Resource, object]:
        found = self._find(target)
        if found is None:
            raise EntityNotFoundError(f"The messaging entity '{target.path[:600]}' could not be found.")
        return found

    def _only(self, call: Call, *methods: str) -> None:
        if call.method not in methods:
            allowed = ", ".join(methods)
            text = f"{call.method[:20]} is not possible on {call.target.kind.value}; possible are: {allowed}."
            raise AdminError(405, text, headers={"Allow": allowed})

    def _etag(self, resource: Resource, found: object) -> str:
        return f'"{hashlib.sha256(resource.state(found).encode()).hexdigest()[:32]}"'

    def _check_match(self, resource: Resource, found: object, call: Call) -> None:
        """Raise 412 if the caller's ETag does not match the current state."""
        wanted = call.headers.get("if-match", "*").strip()
        if wanted == "*":
            return
        tags = [tag.strip().removeprefix("W/") for tag in wanted.split(",")]
        if self._etag(resource, found) not in tags:
            raise AdminError(412, f"'{call.target.path}' has changed since it was read.")

    def _first_start(self) -> int:
        stored = self._host.store.get(Table.META, _CREATED_KEY)
        # A damaged date is replaced: nothing depends on it.
        if stored is not None and len(stored) == NUMBER.size:
            created_ms: int = NUMBER.unpack(stored)[0]
            return created_ms
        now_ms = self._host.clock.now_ms()
        self._host.commits.facts.rows[Table.META, _CREATED_KEY] = NUMBER.pack(now_ms)
        return now_ms
