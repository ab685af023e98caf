"""A browser without a screen: uses the console over real HTTP, and keeps its cookie and token."""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPResponse
from typing import Any, NamedTuple
from urllib.parse import urlencode

from twinbus.testing import Broker

API = "/console/$api/"
PATIENCE_S = 60


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return str(self.json["error"])


class Window:
    """One browser at one namespace's port."""

    def __init__(self, broker: Broker, namespace: str | None = None, *, host: str = "localhost") -> None:
        self.endpoint = broker.endpoint(namespace)
        # The address bar.
        self.site = f"{host}:{self.endpoint.port}"
        self.cookie = ""
        self.token = ""

    def greet(self) -> Any:
        found = self.get("login").json
        self.token = found.get("token", "")
        return found

    def login(self, policy: str, key: str, namespace: str = "") -> Answer:
        answer = self.post("login", namespace=namespace, policy=policy, key=key)
        if answer.status == 200:
            self.token = answer.json["token"]
        return answer

    def get(self, view: str, **query: Any) -> Answer:
        return self.request("GET", f"{API}{view}?{urlencode(query)}")

    def post(self, command: str, **fields: Any) -> Answer:
        return self.request("POST", API + command, json.dumps(fields), {"Content-Type": "application/json"})

    def request(self, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None) -> Answer:
        connection = self.connection()
        try:
            connection.request(method, path, body, self.headers(headers or {}))
            response = connection.getresponse()
            answer = Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()
        self._keep(answer)
        return answer

    def stream(self, view: str, **query: Any) -> tuple[HTTPConnection, HTTPResponse]:
        connection = self.connection()
        connection.request("GET", f"{API}live?{urlencode({'view': view, **query})}", headers=self.headers({}))
        return connection, connection.getresponse()

    def connection(self) -> HTTPConnection:
        return HTTPConnection(self.endpoint.host, self.endpoint.port, timeout=PATIENCE_S)

    def headers(self, own: dict[str, str]) -> dict[str, str]:
        found = {"Host": self.site, "X-Console-Token": self.token}
        if self.cookie:
            found["Cookie"] = self.cookie
        return {name: value for name, value in {**found, **own}.items() if value}

    def _keep(self, answer: Answer) -> None:
        given = answer.headers.get("Set-Cookie")
        if given:
            self.cookie = "" if "max-age=0" in given.lower() else given.partition(";")[0]


def event(response: HTTPResponse) -> tuple[str, Any]:
    """The next event of a stream: its kind and data."""
    kind = "message"
    while True:
        line = response.readline().decode().rstrip("\n")
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            response.readline()
            return kind, json.loads(line.removeprefix("data: "))
