"""Makes and removes entities by request/response on the node `$management` of the namespace.

Uses the SDK's own AMQP stack, because the tests' environment has nothing of ours.
"""

from __future__ import annotations

import re
from typing import Any

from azure.servicebus._pyamqp.authentication import SASTokenAuth
from azure.servicebus._pyamqp.client import AMQPClient
from azure.servicebus._pyamqp.message import Message, Properties

NODE = "$management"
TIMEOUT_S = 30.0


def milliseconds(duration: str) -> int:
    """`PT1M30S` -> 90000. Only what the tests use: minutes and seconds."""
    match = re.fullmatch(r"PT(?:(\d+)M)?(?:(\d+)S)?", duration)
    if match is None:
        raise ValueError(f"Not a duration of minutes and seconds: {duration}")
    minutes, seconds = (int(part or 0) for part in match.groups())
    return (minutes * 60 + seconds) * 1000


class Control:
    """One short connection for each request: a test creates two entities at most."""

    def __init__(self, endpoint: str, key_name: str, key: str) -> None:
        # `host:port` of the namespace.
        self.endpoint = endpoint
        # The policy and key with the right Manage.
        self.key_name = key_name
        self.key = key

    def create_queue(self, path: str, **settings: Any) -> None:
        self.request("twinbus:create-queue", {"path": path, **settings})

    def delete_queue(self, path: str) -> None:
        self.request("twinbus:delete-queue", {"name": path})

    def request(self, operation: str, body: dict[str, Any]) -> None:
        audience = f"sb://{self.endpoint}/{NODE}"
        auth = SASTokenAuth(audience, audience, self.key_name, self.key)
        client = AMQPClient(self.endpoint, auth=auth, use_tls=False)
        client.open()
        try:
            while not client.client_ready():
                pass
            message = Message(value=body, properties=Properties(reply_to=NODE), application_properties={})
            status, description, _ = client.mgmt_request(
                message,
                operation=operation,
                operation_type=b"entity-mgmt",
                node=NODE,
                timeout=TIMEOUT_S,
                status_code_field=b"statusCode",
                description_fields=b"statusDescription",
            )
        finally:
            client.close()
        if not 200 <= int(status) < 300:
            text = description.decode() if isinstance(description, bytes) else description
            raise RuntimeError(f"{operation} of {body}: {status} {text}")
