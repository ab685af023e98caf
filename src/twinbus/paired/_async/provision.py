"""Finds out who the primary is, looks up its backlog queues in the secondary, and creates the missing ones.

- Each queue is looked up first; one that appears in between is as good as an existing one.
- A queue that holds another primary's backlog is not used: the same number under this primary's other name is.
- A secondary that is unreachable or does not answer is not asked again for every queue.
"""

from __future__ import annotations

from azure.core.exceptions import (
    AzureError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from twinbus.errors import ServiceError
from twinbus.limits import TRY_TIMEOUT_S_DEFAULT
from twinbus.paired._async.namespaces import AsyncPairedNamespace
from twinbus.paired.arguments import bus_options
from twinbus.paired.asking import asked
from twinbus.paired.backlog import SETTINGS, Found
from twinbus.paired.homes import Home, NameSource, NamespaceAnswer, home_of, prefix_of
from twinbus.paired.memory import NamespaceMemory, state_folder
from twinbus.paired.options import check_name
from twinbus.paired.synchronization import async_awaited


async def async_find_queues(namespace: AsyncPairedNamespace, home: Home, count: int) -> Found:
    """Find or create the backlog queues of a primary."""
    found = Found()
    names = home.names(count)
    async with namespace.admin(**namespace.admin_options) as admin:
        for number, (name, other_name) in enumerate(zip(names, home.other_names(count), strict=True)):
            try:
                if not await _had(admin, home, name, found):
                    found.taken.append(name)
                    name = other_name
                    if not await _had(admin, home, name, found):
                        raise ValueError(f"'{name}' holds the backlog of another primary")
                found.names.append(name)
            except (ServiceRequestError, ServiceResponseError) as error:
                found.failures.update(dict.fromkeys(names[number:], error))
                break
            except AttributeError:
                # The SDK looks for the description of a queue in that of a topic.
                found.failures[name] = ValueError(f"'{name}' is no queue")
            except (AzureError, ValueError) as error:
                found.failures[name] = error
    return found


async def async_backlog_metadata(admin: ServiceBusAdministrationClient) -> dict[str, str | None]:
    """All backlog queues of a namespace, with their user metadata."""
    return {queue.name: queue.user_metadata async for queue in admin.list_queues() if prefix_of(queue.name)}


async def _had(admin: ServiceBusAdministrationClient, home: Home, name: str, found: Found) -> bool:
    """Find or create one queue; False if it is not for this primary."""
    try:
        queue = await admin.get_queue(name)
    except ResourceNotFoundError:
        try:
            await admin.create_queue(name, user_metadata=home.mark, **SETTINGS)
            found.made.append(name)
            return True
        except ResourceExistsError:
            queue = await admin.get_queue(name)
    return home.may_fill(name, queue.user_metadata)


async def async_find_home(
    namespace: AsyncPairedNamespace,
    given: str | None = None,
    *,
    timeout_s: float = TRY_TIMEOUT_S_DEFAULT,
) -> Home:
    """Who a namespace is: what it says itself, or said earlier, or else what its address suggests."""
    address = namespace.address
    if address.azure:
        return home_of(address, given=given, told=NamespaceAnswer())
    memory = NamespaceMemory(address, namespace.secret, state_folder())
    options = bus_options(namespace.options)
    told: NamespaceAnswer | None
    try:
        told = await async_awaited(lambda: asked(lambda: namespace.bus(**options), timeout_s))
    except ServiceError:
        return home_of(address, given=given, remembered=memory.recall())
    if told.identity is not None:
        memory.remember(told)
        return home_of(address, given=given, told=told)
    home = home_of(address, given=given, told=told, remembered=memory.recall())
    if home.source in (NameSource.GUESS, NameSource.REMEMBERED):
        # Not a Twinbus broker, or an older one: the administration API may have its name.
        name = await _managed_name(namespace, timeout_s)
        if name is not None:
            memory.remember(NamespaceAnswer(name))
            return home_of(address, given=given, told=NamespaceAnswer(name))
    return home


async def async_name_of(namespace: AsyncPairedNamespace, *, timeout_s: float = TRY_TIMEOUT_S_DEFAULT) -> str:
    """A namespace's name, for the ledger: from its host name, or from the namespace itself, or else its address."""
    if namespace.name is None:
        home = await async_find_home(namespace, timeout_s=timeout_s)
        if not home.sure or not home.answered:
            return home.name
        namespace.name = home.name
    return namespace.name


async def _managed_name(namespace: AsyncPairedNamespace, timeout_s: float) -> str | None:
    patient = {"retry_total": 3, "retry_backoff_factor": 0.2, "timeout": timeout_s}
    try:
        async with namespace.admin(**{**namespace.admin_options, **patient}) as admin:
            properties = await admin.get_namespace_properties()
        return check_name(str(properties.name))
    except (AzureError, ValueError):
        return None
