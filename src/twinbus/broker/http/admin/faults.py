"""`/$faults`: injected faults over HTTP, in JSON.

GET lists them; PUT sets one (`{"mode": "slow", "entity": "orders", "delay_ms": 500}`); DELETE clears all, with
`?entity=orders` that entity's, with `?entity=` the namespace's. Needs Manage on the namespace.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twinbus.auth.policies import Right
from twinbus.broker.faults import Fault
from twinbus.broker.http.admin.caller import Caller
from twinbus.broker.http.admin.errors import AdminError, AdminResponse, refusal
from twinbus.broker.http.json_in import read_json
from twinbus.errors import ArgumentError
from twinbus.spelling import did_you_mean

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost

FAULTS_PATH = "/$faults"

_FIELDS: dict[str, type] = {"mode": str, "entity": str, "delay_ms": int, "refusal": str}


def handle_faults(
    host: NamespaceHost, method: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
) -> AdminResponse:
    """Answer one request."""
    try:
        lowered = {name.lower(): value for name, value in headers.items()}
        Caller(lowered, host.policies, host.clock.now_ms() / 1000, host.dev, host.jwt).need("", Right.MANAGE)
        if method == "PUT":
            host.faults.set(fault_of(body))
        elif method == "DELETE":
            if "entity" in query:
                host.faults.clear(query["entity"] or None)
            else:
                host.faults.clear_all()
        elif method != "GET":
            raise AdminError(405, "Faults take GET, PUT and DELETE.", headers={"Allow": "GET, PUT, DELETE"})
        shown = {"allowed": host.faults.allowed, "faults": [fault.to_json() for fault in host.faults.all()]}
        return AdminResponse(200, {"Content-Type": "application/json"}, json.dumps(shown).encode())
    except Exception as error:
        return refusal(error, host.tracker, "$faults")


def fault_of(body: bytes) -> Fault:
    try:
        fields: Any = read_json(body)
    except ValueError:
        raise ArgumentError("A fault is a JSON object, as in {'mode': 'down'}.") from None
    if not isinstance(fields, dict):
        raise ArgumentError("A fault is a JSON object, as in {'mode': 'down'}.")
    for name, value in fields.items():
        kind = _FIELDS.get(name)
        if kind is None:
            raise ArgumentError(f"A fault has no field '{name[:64]}'.{did_you_mean(name[:64], _FIELDS)}")
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise ArgumentError(f"The field '{name}' of a fault must be a {kind.__name__}.")
    if fields.get("mode") is None:
        raise ArgumentError("A fault needs its 'mode'.")
    return Fault(**{name: value for name, value in fields.items() if value is not None})
