"""`/metrics`: the state of a namespace in the Prometheus text format.

- Rendering only reads existing state, so metrics cost nothing unless requested.
- Labels are bounded: kinds and outcomes are ours, and beyond a number of entities the rest share one series.
- Only this machine, and clients with Listen on the whole namespace, may see the page.
- It contains no secrets: names, numbers, conditions.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from twinbus import __version__
from twinbus.auth.claims import decide_key
from twinbus.auth.policies import Right
from twinbus.broker.configuration.config import is_loopback
from twinbus.broker.memory import MemoryKind
from twinbus.broker.metering.histogram import Histogram
from twinbus.broker.metering.rates import OTHERS
from twinbus.build import build
from twinbus.errors import UnauthorizedError
from twinbus.limits import METRICS_ENTITIES_MAX

if TYPE_CHECKING:
    from twinbus.broker.host import NamespaceHost
    from twinbus.entities.queue import Queue

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BASIC = "basic "

# Formatted labels and a value.
Sample = tuple[str, float]


def may_see_metrics(host: NamespaceHost, peer: str, authorization: str) -> bool:
    """Whether a peer with that address and Authorization header may see the page."""
    if host.dev or is_loopback(peer):
        return True
    if authorization[: len(_BASIC)].lower() != _BASIC:
        return False
    try:
        name, _, key = base64.b64decode(authorization[len(_BASIC) :].strip()).decode().partition(":")
        return decide_key(name, key, host.policies).allows("", Right.LISTEN)
    except (binascii.Error, UnicodeDecodeError, UnauthorizedError):
        return False


def render_metrics(host: NamespaceHost) -> str:
    """The page of one namespace and of its process."""
    return "".join(metric_families(host))


def metric_families(host: NamespaceHost) -> Iterator[str]:
    """The same in pieces of a few milliseconds, so that others get their turn in between."""
    here = _labels(namespace=host.name)
    yield _family(
        "twinbus_info", "gauge", "Version and build of the broker.", [(_labels(version=__version__, build=build()), 1)]
    )
    yield _family(
        "twinbus_start_time_seconds",
        "gauge",
        "When the broker started, in Unix time.",
        [(here, host.started_ms // 1000)],
    )
    # Formatting labels is most of the work, so it is done once for all families.
    counters = [
        (_labels(namespace=host.name, entity=entity, kind=counter.kind.value, outcome=counter.outcome), counter)
        for entity, counter in host.meter.labelled()
    ]
    yield _family(
        "twinbus_operations_total",
        "counter",
        "Operations: one for each message handled, or for a call that handled none.",
        [(labels, counter.count) for labels, counter in counters],
    )
    yield _family(
        "twinbus_operation_bytes_total",
        "counter",
        "Bytes of the messages in operations.",
        [(labels, counter.bytes) for labels, counter in counters],
    )
    yield _family(
        "twinbus_operation_units_total",
        "counter",
        "Operations in steps of 64 KB, as the service bills them.",
        [(labels, counter.units) for labels, counter in counters],
    )
    yield _family(
        "twinbus_refusals_total",
        "counter",
        "Clients refused for their key, token or rights, by reason.",
        [
            (_labels(namespace=host.name, reason=reason), count)
            for reason, count in sorted(host.refusals.counts.items())
        ],
    )
    messages, sizes = _entities(host)
    yield _family("twinbus_messages", "gauge", "Messages by state; a locked message keeps its state.", messages)
    yield _family("twinbus_entity_bytes", "gauge", "Bytes of messages, including dead letters.", sizes)
    yield _family("twinbus_connections", "gauge", "AMQP connections.", [(here, host.connection_count)])
    held = [(_labels(namespace=host.name, kind=kind.value), host.memory[kind].held_bytes) for kind in MemoryKind]
    yield _family("twinbus_held_bytes", "gauge", "Bytes that clients make the broker hold in memory, by kind.", held)
    bounds = [(_labels(namespace=host.name, kind=kind.value), host.memory[kind].bytes_max) for kind in MemoryKind]
    yield _family(
        "twinbus_held_bytes_max", "gauge", "Maximum of twinbus_held_bytes: beyond it requests are refused.", bounds
    )
    yield _family("twinbus_strangers", "gauge", "AMQP connections without a token.", [(here, len(host.strangers))])
    senders, receivers = host.link_counts()
    links: list[Sample] = [
        (_labels(namespace=host.name, role="sender"), senders),
        (_labels(namespace=host.name, role="receiver"), receivers),
    ]
    yield _family("twinbus_links", "gauge", "Links to entities, by role of the client.", links)
    yield _histogram(
        "twinbus_commit_seconds", "Duration of commits, including the disk's sync.", host.name, host.commits.seconds
    )
    yield _histogram("twinbus_commit_rows", "Rows that one commit wrote.", host.name, host.commits.rows)
    yield _family("twinbus_store_bytes", "gauge", "Size of the store's file.", [(here, host.store.file_bytes)])
    yield _family(
        "twinbus_store_full", "gauge", "1 while sends are refused for lack of space.", [(here, int(host.store.full))]
    )
    yield _family(
        "twinbus_store_failed", "gauge", "1 when the store cannot be written.", [(here, int(host.commits.failed))]
    )
    scribe = host.meter.scribe
    if scribe is not None:
        yield _family(
            "twinbus_ledger_errors_total", "counter", "Failed disk operations of the ledger.", [("", scribe.errors)]
        )
        yield _family(
            "twinbus_ledger_lost_records_total", "counter", "Ledger records lost.", [("", scribe.lost_records)]
        )
    yield from _process()


def _entities(host: NamespaceHost) -> tuple[list[Sample], list[Sample]]:
    """Message counts and sizes of queues and subscriptions: by entity up to the limit, the rest summed."""
    messages: list[Sample] = []
    sizes: list[Sample] = []
    queues = host.entities.queues()
    for topic in host.entities.topics():
        queues += [subscription.queue for subscription in topic.subscriptions]
    for queue in queues[:METRICS_ENTITIES_MAX]:
        labels = _labels(namespace=host.name, entity=queue.path)
        # Append the state to the labels.
        messages += [(f'{labels[:-1]},state="{state}"}}', count) for state, count in _states(queue).items()]
        sizes.append((labels, queue.size_bytes))
    rest = queues[METRICS_ENTITIES_MAX:]
    if rest:
        sums: dict[str, int] = {}
        for queue in rest:
            for state, count in _states(queue).items():
                sums[state] = sums.get(state, 0) + count
        for state, count in sums.items():
            messages.append((_labels(namespace=host.name, entity=OTHERS, state=state), count))
        sizes.append((_labels(namespace=host.name, entity=OTHERS), sum(queue.size_bytes for queue in rest)))
    return messages, sizes


def _states(queue: Queue) -> dict[str, int]:
    return {**queue.counts._asdict(), "damaged": queue.damaged_count}


def _process() -> Iterator[str]:
    times = os.times()
    cpu_s = times.user + times.system
    yield _family("process_cpu_seconds_total", "counter", "CPU time of the broker.", [("", cpu_s)])
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
    except OSError:
        return  # not Linux
    resident = pages * os.sysconf("SC_PAGE_SIZE")
    yield _family("process_resident_memory_bytes", "gauge", "Resident memory of the broker.", [("", resident)])


# --- the format ------------------------------------------------------------------------------------------------------


def _family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP {name} {text}\n# TYPE {name} {kind}\n"]
    lines += [f"{name}{labels} {_number(value)}\n" for labels, value in samples]
    return "".join(lines)


def _histogram(name: str, text: str, namespace: str, histogram: Histogram) -> str:
    lines = [f"# HELP {name} {text}\n# TYPE {name} histogram\n"]
    total = 0
    for bound, count in zip((*histogram.bounds, None), histogram.counts, strict=True):
        total += count
        at = _labels(namespace=namespace, le="+Inf" if bound is None else _number(bound))
        lines.append(f"{name}_bucket{at} {total}\n")
    here = _labels(namespace=namespace)
    lines.append(f"{name}_sum{here} {_number(histogram.sum)}\n{name}_count{here} {total}\n")
    return "".join(lines)


def _labels(**labels: str) -> str:
    return "{" + ",".join([f'{name}="{_escaped(value)}"' for name, value in labels.items()]) + "}"


def _escaped(value: str) -> str:
    if value.isalnum():
        return value
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.9g}"
