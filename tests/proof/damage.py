"""Damaged files: bits and bytes of a store changed, pages swapped or zeroed, the file cut.

Promise: every message is delivered whole, or it is named as damaged, or the folder is not served. No message is
delivered changed, and none is silently missing. Each folder is opened in its own process, because LMDB ends the process
on some damaged pages with an assertion; these are counted as stopped.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.proof.disk import DATA
from tests.proof.suite import Budget, Suite
from twinbus.cli.check import body_of
from twinbus.entities.audit import audit
from twinbus.entities.message import NewMessage
from twinbus.entities.namespace import Namespace
from twinbus.entities.settings import QueueSettings
from twinbus.errors import DamagedBodyError, StoreError
from twinbus.store import check
from twinbus.store.facts import Facts, Table, body_key
from twinbus.store.lmdb_store import Store

PAGE = 4096
MESSAGES = 400
# In the order in which `Namespace.restore` takes them.
SCANNED = (Table.ENTITIES, Table.INDEX, Table.SESSIONS, Table.DUPLICATES, Table.META)
NOW_MS = 1_700_000_000_000


def content(number: int) -> bytes:
    size = (20, 300, 300, 2_000, 10_000)[number % 5]
    return f"message {number} ".encode() + random.Random(number).randbytes(size)


def built(folder: Path) -> None:
    """A store as a broker leaves it: messages of two queues, some completed."""
    tokens = iter(range(1, 1 << 30))
    namespace = Namespace("proof", tokens=lambda: next(tokens).to_bytes(16, "big"))
    with Store.open(folder, sync=False) as store:
        facts = Facts()

        def commit() -> None:
            nonlocal facts
            store.commit(facts)
            done, facts = facts, Facts()
            for call, argument in done.then:
                call(argument)

        queues = [namespace.create_queue(QueueSettings(path=path), NOW_MS, facts) for path in ("a", "b")]
        commit()
        number = 0
        while number < MESSAGES:
            queue = queues[number // 10 % 2]
            queue.send([new(number + each) for each in range(10)], NOW_MS, facts)
            commit()
            number += 10
            # Completed messages leave free pages behind.
            queue.send([new(0)] * 3, NOW_MS, facts)
            commit()
            last = queue.take(10 * MESSAGES, NOW_MS, facts)
            queue.remove_taken(last[-3:], facts)
            queue.return_taken(last[:-3], NOW_MS, facts)
            commit()


def new(number: int) -> NewMessage:
    body = content(number)
    return NewMessage(str(number), body, len(body))


def harmed(image: bytearray, chance: random.Random) -> str:
    """Damage an image of the file; returns what was done."""
    what = chance.choice(["bit", "bit", "bit", "byte", "run", "page", "swap", "cut"])
    pages = len(image) // PAGE
    at = chance.randrange(len(image))
    page = chance.randrange(pages) * PAGE
    if what == "bit":
        image[at] ^= 1 << chance.randrange(8)
    elif what == "byte":
        image[at] = chance.randrange(256)
    elif what == "run":
        run = chance.randbytes(chance.choice([16, 64, 512]))
        image[at : at + len(run)] = run[: len(image) - at]
    elif what == "page":
        image[page : page + PAGE] = bytes(PAGE) if chance.random() < 0.5 else chance.randbytes(PAGE)
    elif what == "swap":
        other = chance.randrange(pages) * PAGE
        image[page : page + PAGE], image[other : other + PAGE] = image[other : other + PAGE], image[page : page + PAGE]
    else:
        del image[at:]
    return what


def opened(folder: Path) -> dict[str, Any]:
    """What a broker finds in a folder: messages delivered whole, others named as damaged, or a refusal."""
    named = False
    whole: set[int] = set()
    try:
        with Store.open(folder, sync=False) as store:
            namespace = restored(store)
            named = bool(namespace.set_aside.count)
            for path in ("a", "b"):
                try:
                    queue = namespace.queue(path)
                except Exception:
                    continue
                # One call returns a bounded number of bytes, and a damaged size counts.
                for message in iter(lambda queue=queue: next(iter(queue.acquire(1, NOW_MS, Facts())), None), None):
                    try:
                        stored = store.body(message.body_number)
                    except DamagedBodyError:
                        named = True
                        continue
                    number = int(stored.split(b" ", 2)[1])
                    assert stored == content(number), f"message {number} is delivered changed"
                    whole.add(number)
        if len(whole) < MESSAGES and not named:
            report = check.verify(folder, body_of, audit=audit)
            named = not report.ok or bool(report.orphans)
    except StoreError as error:
        return {"refused": str(error)}
    return {"whole": len(whole), "named": named}


def looked_at(folder: Path) -> dict[str, Any]:
    """What `twinbus check` says."""
    try:
        report = check.verify(folder, body_of, audit=audit)
    except StoreError as error:
        return {"refused": str(error)}
    return {"whole": 0, "named": not report.ok or bool(report.orphans)}


def restored(store: Store) -> Namespace:
    with store.snapshot():
        return Namespace.restore(
            "proof",
            *(store.scan(table) for table in SCANNED),
            NOW_MS,
            lambda: os.urandom(16),
            None,
            store.last_body,
        )  # fmt: skip


def apart(work: Callable[[], dict[str, Any]], patience_s: int = 60) -> dict[str, Any]:
    """Run it in a child process, and report the child's death."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            # Nobody needs what an assertion prints, and pytest's handler would add the whole stack.
            faulthandler.disable()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            signal.alarm(patience_s)
            try:
                told = work()
            except BaseException as error:
                told = {"failed": f"{type(error).__name__}: {error}"}
            os.write(writing, json.dumps(told).encode()[:60_000])
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        data = file.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return {"stopped": signal.Signals(os.WTERMSIG(status)).name}
    told: dict[str, Any] = json.loads(data)
    return told


def judged(told: dict[str, Any]) -> str:
    """The kind of an outcome; AssertionError for one that breaks the promise."""
    assert "failed" not in told, told["failed"]
    if "stopped" in told:
        assert told["stopped"] != "SIGALRM", "it goes on for ever"
        return f"stopped by {told['stopped']}"
    if "refused" in told:
        assert len(told["refused"]) > 20, told["refused"]
        return "refused"
    if told["whole"] == MESSAGES:
        return "harmless"
    assert told["named"], f"{MESSAGES - told['whole']} messages are missing, and nothing says so"
    return "named"


def run(budget: Budget) -> str:
    """Damage the files of a store: every message is delivered whole, named as damaged, or the folder is not served."""
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="twinbus-damage-") as name:
        sound, folder = Path(name) / "sound", Path(name) / "damaged"
        built(sound)
        before = (sound / DATA).read_bytes()
        assert judged(apart(lambda: opened(sound))) == "harmless"
        for chance in budget:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(sound, folder)
            image = bytearray(before)
            how = harmed(image, chance)
            (folder / DATA).write_bytes(image)
            try:
                outcome = judged(apart(lambda: opened(folder)))
                outcomes[outcome] += 1
                if outcome.startswith("stopped"):
                    # `twinbus check` says why.
                    assert judged(apart(lambda: looked_at(folder))) == "refused", "check does not name it"
            except AssertionError as error:
                raise AssertionError(f"after damage of the kind {how!r}: {error}") from None
    told = ", ".join(f"{count:,} {kind}" for kind, count in sorted(outcomes.items()))
    return f"{budget.tried:,} damaged files: {told}"


@contextmanager
def planted() -> Iterator[None]:
    """Bodies are delivered unchecked."""
    sound = Store.body

    def unchecked(self: Store, number: int) -> bytes:
        return (self.get(Table.BODIES, body_key(number)) or b"")[4:]

    Store.body = unchecked
    try:
        yield
    finally:
        Store.body = sound


SUITE = Suite("files", 100, 20_000, run, planted)
