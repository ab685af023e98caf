"""Generated ledger files for tests: good, odd and bad lines, repeats and late ones, all drawn from one seed."""

from __future__ import annotations

import json
import random
from pathlib import Path

from twinbus.ledger.records import (
    Backlog,
    ConnectionsRecord,
    FailoverEvent,
    Latency,
    LedgerRecord,
    Operations,
    encode,
    units_of,
)
from twinbus.ledger.words import Event, Kind, LedgerSource, Stage, stage_of

START_MS = 1_790_812_800_000  # 1 October 2026
DAY_MS = 86_400_000
QUEUE = "contoso/x-servicebus-transfer/0"
BAD = (
    b"",
    b"{",
    b"[]",
    b'"orders"',
    b"\xff\xfe{}",
    b'{"v":2,"type":"operations"}',
    b'{"v":1,"type":"rumours"}',
    b'{"v":1,"type":"operations","id":"x-1"}',
    b"SharedAccessKey=bm90aGluZw==;",
    b"x" * 17_000,
)


class Writer:
    """One run of a source, which numbers its records."""

    def __init__(self, draw: random.Random, source: LedgerSource, run: str) -> None:
        self.draw = draw
        self.source = source
        self.run = run
        self.count = 0

    def head(self, at_ms: int, namespace: str, entity: str, lasts_ms: int = 1000) -> dict[str, object]:
        self.count += 1
        return {
            "id": f"{self.run}-{self.count:x}",
            "start_ms": at_ms,
            "end_ms": at_ms + lasts_ms,
            "source": self.source,
            "namespace": namespace,
            "entity": entity,
        }

    def record(self, at_ms: int) -> LedgerRecord:
        draw = self.draw
        namespace = draw.choice(
            ["contoso", "fabrikam", "wingtip"] if self.source is not LedgerSource.BROKER else ["contoso"]
        )
        entity = draw.choice(["orders", "Orders", "mail", QUEUE, ""])
        chance = draw.random()
        if chance < 0.7:
            kind = draw.choice([Kind.SEND, Kind.SEND, Kind.RECEIVE, Kind.COMPLETE, Kind.EMPTY_POLL, Kind.PING])
            stage = stage_of(entity, kind)
            if self.source is LedgerSource.SYPHON and kind is Kind.SEND:
                stage = Stage.TO_PRIMARY
            size = draw.choice([0, 900, 65_536, 65_537, 100_000])
            count = draw.choice([1, 3, 500_000, 9_000_000])
            return Operations(
                **self.head(at_ms, namespace, entity),
                kind=kind,
                stage=stage,
                outcome=draw.choice(["ok", "ok", "ok", "com.microsoft:server-busy", "http:401"]),
                count=count,
                bytes=count * size,
                units=count * units_of(size),
            )
        if chance < 0.85:
            event = draw.choice(list(Event))
            moment = event not in (Event.DIVERTED, Event.SYPHONED)
            return FailoverEvent(
                **self.head(at_ms, namespace, entity, 0 if moment else 1000),
                event=event,
                target=draw.choice([None, "fabrikam"]),
                cause=draw.choice([None, "TimeoutError"]),
                count=draw.choice([0, 7]),
            )
        if chance < 0.9:
            return Backlog(
                **self.head(at_ms, namespace, QUEUE, 0),
                depth=draw.randrange(9),
                depth_bytes=9,
                oldest_ms=draw.randrange(99),
            )
        if chance < 0.95:
            buckets = tuple(draw.randrange(3) for _ in range(draw.choice([0, 1, 33])))
            return Latency(
                **self.head(at_ms, namespace, entity),
                queue=draw.choice([None, QUEUE]),
                count=sum(buckets),
                sum_ms=sum(buckets) * 5,
                max_ms=draw.randrange(50),
                buckets=buckets,
            )
        return ConnectionsRecord(**self.head(at_ms, namespace, ""), peak=draw.choice([0, 3, 2_000]))


def odd(record: LedgerRecord, draw: random.Random) -> bytes:
    """The same record formatted differently."""
    found = json.loads(encode(record))
    if draw.random() < 0.5:
        found["more"] = {"unknown": [1]}
    return json.dumps(found, sort_keys=draw.random() < 0.5, indent=None).encode()


def make(folder: Path, seed: int, records: int = 150) -> tuple[list[Path], list[Path]]:
    """Files of a first and of a second run, to be moved to their places later."""
    draw = random.Random(seed)
    writers = [
        Writer(draw, source, f"{number}{seed:x}") for number, source in enumerate([*LedgerSource, LedgerSource.CLIENT])
    ]
    files: list[tuple[Path, bytes]] = []
    for writer in writers:
        at_ms = START_MS + draw.randrange(40) * DAY_MS
        lines: list[bytes] = []
        for _ in range(records // len(writers)):
            at_ms += draw.choice([0, 1000, 1000, 59_000, 3_600_000])
            record = writer.record(at_ms)
            lines.append(odd(record, draw) if draw.random() < 0.05 else encode(record)[:-1].encode())
            if draw.random() < 0.05:
                lines.append(draw.choice(BAD))
            if draw.random() < 0.05:
                lines.append(draw.choice(lines))
        while lines:
            piece, lines = lines[: draw.randrange(1, 30)], lines[30:]
            files.append(
                (folder / f"{writer.source}-{len(files):03d} é.jsonl", b"".join(each + b"\n" for each in piece))
            )
    for path, data in draw.sample(files, 2):
        files.append((path.with_name(f"copy of {path.name}"), data))
    draw.shuffle(files)
    for path, data in files:
        path.write_bytes(data)
    (folder / "broker-torn.open").write_bytes(b'{"v":1,')
    paths = [path for path, _ in files]
    half = len(paths) // 2
    return paths[:half], paths[half:]
