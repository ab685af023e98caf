"""Looks up the backlog queues in the secondary, and creates the missing ones.

- Each queue is looked up first; one that appears in between is as good as an existing one.
- A secondary that is unreachable or does not answer is not asked again for every queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from azure.core.exceptions import (
    AzureError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
    ServiceResponseError,
)

from twinbus.limits import TRY_TIMEOUT_S_DEFAULT
from twinbus.paired._async.namespaces import AsyncPairedNamespace
from twinbus.paired.backlog import SETTINGS, Found
from twinbus.paired.options import check_name


async def async_find_queues(namespace: AsyncPairedNamespace, names: list[str]) -> Found:
    """Find or create the backlog queues."""
    found = Found()
    async with namespace.admin(**namespace.admin_options) as admin:
        for number, name in enumerate(names):
            try:
                try:
                    await admin.get_queue(name)
                except ResourceNotFoundError:
                    try:
                        await admin.create_queue(name, **SETTINGS)
                        found.made.append(name)
                    except ResourceExistsError:
                        await admin.get_queue(name)
                found.names.append(name)
            except (ServiceRequestError, ServiceResponseError) as error:
                found.failures.update(dict.fromkeys(names[number:], error))
                break
            except AttributeError:
                # The SDK looks for the description of a queue in that of a topic.
                found.failures[name] = ValueError(f"'{name}' is no queue")
            except AzureError as error:
                found.failures[name] = error
    return found


async def async_name_of(namespace: AsyncPairedNamespace, options: Mapping[str, Any]) -> str:
    """A namespace's name: from its host name, or from the namespace itself, or else its address."""
    if namespace.name is not None:
        return namespace.name
    # Another name means another namespace in the ledger and other backlog queues, so one failed request must not do it.
    patient = {"retry_total": 3, "retry_backoff_factor": 0.2}
    patient["timeout"] = options.get("read_timeout", TRY_TIMEOUT_S_DEFAULT)
    try:
        async with namespace.admin(**{**options, **patient}) as admin:
            properties = await admin.get_namespace_properties()
        namespace.name = check_name(str(properties.name))
    except (AzureError, ValueError):
        return namespace.address.plain_name
    return namespace.name
