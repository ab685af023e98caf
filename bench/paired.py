"""The paired sender compared with the SDK's, on a healthy primary: at most 2 % more CPU and 3 % more time.

Three senders send the same messages to the same queue of a broker in another process, in turn, call by call, in every
order: the SDK's, another of the SDK's as a control, and the paired one. A call's CPU is that of the thread that makes
it. A block is the sum of its calls, and gives the ratio of the paired sender to the mean of the other two. The figure
is the median over all blocks, with its range in nine of ten bootstrap draws, and the ratio of the control to the first,
which would be 1 on a machine without noise. Results: a table, and JSON in bench/results/.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import permutations
from pathlib import Path
from statistics import median
from typing import Any

import azure.servicebus as sdk
import azure.servicebus.aio as sdk_aio
from azure.servicebus import ServiceBusMessage
from measure import machine
from twinbus_peer import TwinbusPeer

from twinbus import paired
from twinbus.paired import aio
from twinbus.testing import Broker

HERE = Path(__file__).resolve().parent
BARS = {"time": 1.03, "cpu": 1.02}
BODY = b"x" * 1024
# Name -> what one call sends.
LOADS: dict[str, Callable[[], Any]] = {
    "single": lambda: ServiceBusMessage(BODY),
    "list of 10": lambda: [ServiceBusMessage(BODY) for _ in range(10)],
}
Send = Callable[[Any], Awaitable[None]]
ORDERS = list(permutations(range(3)))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=150)
    parser.add_argument("--calls", type=int, default=24, help="sends of each sender in a block (default 24)")
    parser.add_argument("--folder", type=Path, default=HERE / ".cache", help="where the broker keeps its data")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "paired.json")
    parser.add_argument("--check", action="store_true", help="exit with 1 when the bar is missed")
    return parser.parse_args()


async def block(sends: list[Send], load: str, calls: int) -> list[list[float]]:
    """Seconds and CPU seconds of each sender for `calls` calls, taken in turns."""
    spent = [[0.0, 0.0] for _ in sends]
    for number in range(calls):
        # Each is first, second and last equally often, and follows each of the others.
        for side in ORDERS[number % len(ORDERS)]:
            message = LOADS[load]()
            cpu, wall = time.thread_time(), time.perf_counter()
            await sends[side](message)
            spent[side][0] += time.perf_counter() - wall
            spent[side][1] += time.thread_time() - cpu
    return spent


async def compare(sends: list[Send], load: str, options: argparse.Namespace) -> dict[str, float]:
    # Warm up: links, caches, branch predictors.
    await block(sends, load, options.calls)
    rows = [await block(sends, load, options.calls) for _ in range(options.blocks)]
    figures = {}
    for at, name in enumerate(("time", "cpu")):
        plain_s = [(row[0][at] + row[1][at]) / 2 for row in rows]
        figures[f"sdk_{name}_us"] = 1e6 * median(plain_s) / options.calls
        figures[f"paired_{name}_us"] = 1e6 * median(row[2][at] for row in rows) / options.calls
        ratios = [row[2][at] / plain for row, plain in zip(rows, plain_s, strict=True)]
        figures[f"{name}_ratio"], figures[f"{name}_low"], figures[f"{name}_high"] = middle(ratios)
        figures[f"{name}_control"] = median(row[1][at] / row[0][at] for row in rows)
    return figures


def middle(ratios: list[float]) -> tuple[float, float, float]:
    """The median, and its range in nine of ten draws."""
    draw = random.Random(1)
    draws = sorted(median(draw.choices(ratios, k=len(ratios))) for _ in range(400))
    return median(ratios), draws[20], draws[-21]


def awaited(send: Callable[[Any], None]) -> Send:
    """A sync sender's call on the same loop; it adds the same to both sides."""

    async def run(message: Any) -> None:
        send(message)

    return run


async def measure(primary: str, secondary: Broker, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    pairing: dict[str, Any] = {
        "primary_name": "bench",
        "admin_options": {"connection_verify": str(secondary.ca_file)},
    }
    strings = primary, secondary.connection_string()
    results: dict[str, dict[str, float]] = {}
    with (
        sdk.ServiceBusClient.from_connection_string(primary) as plain,
        plain.get_queue_sender("bench") as one,
        plain.get_queue_sender("bench") as control,
        paired.PairedServiceBusClient.from_connection_strings(*strings, **pairing) as pair,
        pair.get_queue_sender("bench") as ours,
    ):
        pair.wait_until_paired()
        sends = [awaited(each.send_messages) for each in (one, control, ours)]
        for load in LOADS:
            results[f"sync, {load}"] = await compare(sends, load, options)
    async with (
        sdk_aio.ServiceBusClient.from_connection_string(primary) as plain_aio,
        plain_aio.get_queue_sender("bench") as one_aio,
        plain_aio.get_queue_sender("bench") as control_aio,
        aio.PairedServiceBusClient.from_connection_strings(*strings, **pairing) as pair_aio,
        pair_aio.get_queue_sender("bench") as ours_aio,
    ):
        await pair_aio.wait_until_paired()
        sends = [one_aio.send_messages, control_aio.send_messages, ours_aio.send_messages]
        for load in LOADS:
            results[f"aio, {load}"] = await compare(sends, load, options)
    return results


def main() -> int:
    options = arguments()
    logging.disable(logging.WARNING)
    options.folder.mkdir(parents=True, exist_ok=True)
    with TwinbusPeer(options.folder) as peer, Broker(["backlog"], sync=False) as secondary:
        primary = (
            f"Endpoint=sb://127.0.0.1:{peer.port}/;SharedAccessKeyName={peer.user};"
            f"SharedAccessKey={peer.password};UseDevelopmentEmulator=true"
        )
        results = asyncio.run(measure(primary, secondary, options))
    head = "  90 %            control"
    print(f"{'':18}{'SDK us':>9}{'time':>8}{head}{'SDK CPU':>11}{'CPU':>8}{head}")
    for name, row in results.items():
        parts = [name.ljust(18)]
        for what, width in (("time", 9), ("cpu", 11)):
            parts.append(f"{row[f'sdk_{what}_us']:{width}.0f}{row[f'{what}_ratio']:8.3f}")
            parts.append(f"  {row[f'{what}_low']:.3f} - {row[f'{what}_high']:.3f}{row[f'{what}_control']:9.3f}")
        print("".join(parts))
    missed = [
        f"{name}: {what}" for name, row in results.items() for what, bar in BARS.items() if row[f"{what}_low"] > bar
    ]
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"machine": machine(), "bars": BARS, "results": results}, indent=2) + "\n")
    print("at most 1.03 in time and 1.02 in CPU: " + ("missed by " + ", ".join(missed) if missed else "met"))
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
