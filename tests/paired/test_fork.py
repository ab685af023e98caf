"""Forked workers: ids stay unique, and a client that was connected before the fork refuses to be used after it.

Also in the middle of an outage, while other threads or tasks of the parent divert.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.paired.pairs import Pair
from twinbus.ledger import files
from twinbus.ledger.records import decode
from twinbus.limits import LEDGER_LINE_BYTES_MAX

HEAD = """
import asyncio, os, sys
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from twinbus.paired import PairFaultedError, aio
from twinbus import paired
colour, primary, secondary, bundle, ledger = sys.argv[1:]
package = paired if colour == "sync" else aio
client = package.PairedServiceBusClient.from_connection_strings(
    primary, secondary, primary_name="contoso", backlog_queue_count=1, failover_interval=0, retry_total=0,
    ledger=ledger, admin_options={"connection_verify": bundle},
)
sender = client.get_queue_sender("orders")

def forked(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return pid

def joined(*pids):
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * len(pids)
"""

WORKERS = """
async def asynchronous():
    for _ in range(5):
        await sender.send_messages(AmqpAnnotatedMessage(data_body=b"x"))
    await client.close()

def work():
    if colour == "aio":
        return asyncio.run(asynchronous())
    for _ in range(5):
        sender.send_messages(AmqpAnnotatedMessage(data_body=b"x"))
    client.close()

joined(*[forked(work) for _ in range(3)])
"""

SYNC_CHILD = """
def child_sync():
    for use in (
        lambda: sender.send_messages(ServiceBusMessage("child")),
        lambda: client.get_queue_receiver("orders"),
        lambda: client.get_queue_sender("orders"),
    ):
        try:
            use()
        except PairFaultedError as error:
            assert "forked" in str(error), error
        else:
            raise AssertionError("a client that was connected before the fork was used after it")
    client.close()

sender.send_messages(ServiceBusMessage("parent"))
joined(forked(child_sync))
sender.send_messages(ServiceBusMessage("parent again"))
client.close()
"""

AIO_CHILD = """
async def child():
    for use in (
        lambda: sender.send_messages(ServiceBusMessage("child")),
        lambda: client.get_queue_receiver("orders"),
        lambda: client.get_queue_sender("orders"),
    ):
        try:
            made = use()
            if asyncio.iscoroutine(made):
                await made
        except PairFaultedError as error:
            assert "forked" in str(error), error
        else:
            raise AssertionError("a client that was connected before the fork was used after it")
    await client.close()

async def parent():
    await sender.send_messages(ServiceBusMessage("parent"))
    # A forked child cannot go on with its parent's event loop.
    joined(forked(lambda: (asyncio._set_running_loop(None), asyncio.run(child()))))
    await sender.send_messages(ServiceBusMessage("parent again"))
    await client.close()

asyncio.run(parent())
"""

DIVERTING_SYNC = """
import threading

def child_sync():
    try:
        sender.send_messages(ServiceBusMessage("child"))
    except PairFaultedError as error:
        assert "forked" in str(error), error
    else:
        raise AssertionError("a child has sent by its parent's connection")
    client.close()

def work():
    for _ in range(10):
        sender.send_messages(AmqpAnnotatedMessage(data_body=b"parent"))

client.wait_until_paired()
sender.send_messages(ServiceBusMessage("first"))
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
forks = 0
while forks < 5 and any(thread.is_alive() for thread in threads):
    joined(forked(child_sync))
    forks += 1
assert forks > 1, "the fork was not in the middle"
for thread in threads:
    thread.join()
sender.send_messages(ServiceBusMessage("last"))
client.close()
"""

DIVERTING_AIO = """
async def child():
    try:
        await sender.send_messages(ServiceBusMessage("child"))
    except PairFaultedError as error:
        assert "forked" in str(error), error
    else:
        raise AssertionError("a child has sent by its parent's connection")
    await client.close()

async def work():
    for _ in range(10):
        await sender.send_messages(AmqpAnnotatedMessage(data_body=b"parent"))

async def parent():
    await client.wait_until_paired()
    await sender.send_messages(ServiceBusMessage("first"))
    tasks = [asyncio.create_task(work()) for _ in range(8)]
    forks = 0
    while forks < 5 and not all(task.done() for task in tasks):
        await asyncio.sleep(0.001)
        joined(forked(lambda: (asyncio._set_running_loop(None), asyncio.run(child()))))
        forks += 1
    assert forks > 1, "the fork was not in the middle"
    await asyncio.gather(*tasks)
    await sender.send_messages(ServiceBusMessage("last"))
    await client.close()

asyncio.run(parent())
"""

RECEIVING_SYNC = """
def child_sync():
    # As leaving their `with` blocks does.
    receiver.close()
    sender.close()
    client.close()

sender.send_messages([ServiceBusMessage("first"), ServiceBusMessage("second")])
receiver = client.get_queue_receiver("orders", max_wait_time=30)
(first,) = receiver.receive_messages(1)
joined(forked(child_sync))
receiver.complete_message(first)
(second,) = receiver.receive_messages(1)
receiver.complete_message(second)
client.close()
"""

RECEIVING_AIO = """
async def child():
    await receiver.close()
    await sender.close()
    await client.close()

async def parent():
    global receiver
    await sender.send_messages([ServiceBusMessage("first"), ServiceBusMessage("second")])
    receiver = client.get_queue_receiver("orders", max_wait_time=30)
    (first,) = await receiver.receive_messages(1)
    joined(forked(lambda: (asyncio._set_running_loop(None), asyncio.run(child()))))
    await receiver.complete_message(first)
    (second,) = await receiver.receive_messages(1)
    await receiver.complete_message(second)
    await client.close()

asyncio.run(parent())
"""


def run(script: str, colour: str, pair: Pair, ledger: Path) -> None:
    command = [sys.executable, "-c", HEAD + script, colour]
    command += [pair.primary.connection_string(), pair.secondary.connection_string(), str(pair.bundle), str(ledger)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def colour_of(pair: Pair) -> str:
    return "aio" if pair.package.__name__.endswith("aio") else "sync"


async def test_forked_workers_never_repeat_an_id(pair: Pair, tmp_path: Path) -> None:
    pair.primary.delete_queue("orders")
    pair.primary.create_queue("orders", requires_duplicate_detection=True)
    run(WORKERS, colour_of(pair), pair, tmp_path)
    found = await pair.in_primary(15)
    assert len({message.message_id for message in found}) == 15
    records = [decode(line) for path in tmp_path.glob("*.jsonl") for line in files.lines(path, LEDGER_LINE_BYTES_MAX)]
    assert len({record.id for record in records}) == len(records)
    assert sum(getattr(record, "count", 0) for record in records) == 15, "every worker's ledger is there"


async def test_a_client_connected_before_a_fork_says_so(pair: Pair, tmp_path: Path) -> None:
    colour = colour_of(pair)
    run(SYNC_CHILD if colour == "sync" else AIO_CHILD, colour, pair, tmp_path)
    assert [message.body for message in await pair.in_primary(2)] == [b"parent", b"parent again"]


async def test_a_fork_in_the_middle_of_a_divert(pair: Pair, tmp_path: Path) -> None:
    colour = colour_of(pair)
    with pair.primary.fault("refusing", "orders"):
        run(DIVERTING_SYNC if colour == "sync" else DIVERTING_AIO, colour, pair, tmp_path)
    (found,) = (await pair.in_backlog(82, names=1)).values()
    assert len({message.message_id for message in found}) == 82
    assert {message.body for message in found} == {b"first", b"parent", b"last"}


async def test_a_child_that_closes_a_receiver_leaves_the_parents_alone(pair: Pair, tmp_path: Path) -> None:
    colour = colour_of(pair)
    run(RECEIVING_SYNC if colour == "sync" else RECEIVING_AIO, colour, pair, tmp_path)
    assert await pair.in_primary(0) == []
