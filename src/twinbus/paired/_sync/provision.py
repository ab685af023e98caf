"""Written by scripts/unasync.py from _async/provision.py: read and change that file, not this one."""

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
from twinbus.paired._sync.namespaces import PairedNamespace
from twinbus.paired.backlog import SETTINGS, Found
from twinbus.paired.options import check_name


def find_queues(namespace: PairedNamespace, names: list[str]) -> Found:
    """Find or create the backlog queues."""
    found = Found()
    with namespace.admin(**namespace.admin_options) as admin:
        for number, name in enumerate(names):
            try:
                try:
                    admin.get_queue(name)
                except ResourceNotFoundError:
                    try:
                        admin.create_queue(name, **SETTINGS)
                        found.made.append(name)
                    except ResourceExistsError:
                        admin.get_queue(name)
                found.names.append(name)
            except (ServiceRequestError, ServiceResponseError) as error:
                found.failures.update(dict.fromkeys(names[number:], error))
                break
            except AttributeError:
                found.failures[name] = ValueError(f"'{name}' is no queue")
            except AzureError as error:
                found.failures[name] = error
    return found


def name_of(namespace: PairedNamespace, options: Mapping[str, Any]) -> str:
    """A namespace's name: from its host name, or from the namespace itself, or else its address."""
    if namespace.name is not None:
        return namespace.name
    patient = {"retry_total": 3, "retry_backoff_factor": 0.2}
    patient["timeout"] = options.get("read_timeout", TRY_TIMEOUT_S_DEFAULT)
    try:
        with namespace.admin(**{**options, **patient}) as admin:
            properties = admin.get_namespace_properties()
        namespace.name = check_name(str(properties.name))
    except (AzureError, ValueError):
        return namespace.address.plain_name
    return namespace.name
