"""The script of work for the clients that Python drives: `python script.py ADAPTER BOOTSTRAP PREFIX BASE_MS STEPS
[FOREIGN_TOPIC] [VARIANT]`.

Each step writes with the client, reads back with the same client and compares byte for byte. It prints one JSON line
a step; the first difference ends it with exit status 1 and a message on stderr. README.md has the list of steps; the
scripts in Java, Go and Node follow the same list with the same records.

Not here: what a client is called and how: the adapters, `<name>_client.py`, each a class Client with the methods that
the steps below use. A step that an adapter has no method for fails.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LARGE_BYTES = 900 * 1024  # below the default max.message.bytes and every client's default fetch size
ALL_BYTES = bytes(range(256))
SETTLE_SECONDS_MAX = 15
HOLES = (0, 19, 22, 61, 79, 98)  # in a topic that was compacted


class Record(NamedTuple):
    """A record as it was written or read. A field is None where it is null or where the client cannot see it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    offset: int | None = None


class Difference(Exception):
    """What was read is not what was written."""


def short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:200]}... ({len(text)} characters)"


def expect(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise Difference(f"{what}: got {short(got)}, wanted {short(wanted)}")


def sample_value(what: str, index: int) -> bytes:
    return f"{what} {index} ".encode() + bytes((index * 7 + j * 13) & 255 for j in range(index % 64))


def samples(what: str, count: int, first: int = 0) -> list[Record]:
    return [Record(f"key-{index}".encode(), sample_value(what, index)) for index in range(first, first + count)]


def large_value(seed: int) -> bytes:
    return bytes((j * 31 + (j >> 8) * 17 + seed) & 255 for j in range(LARGE_BYTES))


def foreign_records(base_ms: int) -> list[Record]:
    """Return what the topic of another client holds: 20 records in each codec that every client can read."""
    return [
        record._replace(headers=(("index", str(index).encode()),), timestamp=base_ms + index)
        for index, record in enumerate(samples("foreign", 80))
    ]


def cleaned(offsets: Iterable[int]) -> list[Record]:
    """Return the records of a topic that was compacted which are at these offsets."""
    return [Record(f"key-{offset}".encode(), sample_value("cleaned", offset), offset=offset) for offset in offsets]


def left() -> list[Record]:
    """Return what compaction has left of a topic of 120 records, the last of which are gone."""
    return cleaned(offset for offset in range(120) if offset % 3 == 0 and (20 <= offset < 60 or 80 <= offset < 100))


def committed() -> list[Record]:
    """Return what is there of twelve transactions: ten offsets each, the last one a marker, every other one aborted."""
    return cleaned(offset for offset in range(120) if offset // 10 % 2 == 0 and offset % 10 != 9)


class Script:
    """The steps, one method each; `steps` says what the client can do and so what to compare."""

    def __init__(self, client: Any, prefix: str, base_ms: int, steps: list[str], foreign_topic: str) -> None:
        self.client, self.prefix, self.base_ms = client, prefix, base_ms
        self.foreign_topic, self.steps = foreign_topic, steps
        self.sees_headers = "headers" in steps
        self.sees_timestamps = "timestamps" in steps

    def topic(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def find_step(self, step: str) -> Callable[[], int]:
        if step.startswith("codec "):
            return lambda: self.codec(step.removeprefix("codec "))
        return getattr(self, step.replace(" ", "_"))

    def write(self, topic: str, records: list[Record], partition: int = 0, first: int = 0, **how: Any) -> None:
        """Produce and compare the offsets in the acknowledgements with where the records should be."""
        offsets = self.client.produce(topic, partition, records, **how)
        if offsets is not None:
            expect(f"{topic}-{partition}: acknowledged offsets", offsets, [*range(first, first + len(records))])

    def read(self, topic: str, records: list[Record], partition: int = 0, first: int = 0) -> None:
        """Consume as many as were written from offset `first` on, and compare."""
        got = self.client.consume(topic, partition, first, len(records))
        expect(f"{topic}-{partition}: offsets read", [r.offset for r in got], [*range(first, first + len(records))])
        for wanted, record in zip(records, got, strict=True):
            place = f"{topic}-{partition}: offset {record.offset}"
            expect(f"{place}: key", record.key, wanted.key)
            expect(f"{place}: value", record.value, wanted.value)
            if self.sees_headers:
                expect(f"{place}: headers", record.headers, wanted.headers)
            if self.sees_timestamps and wanted.timestamp is not None:
                expect(f"{place}: timestamp", record.timestamp, wanted.timestamp)

    def write_and_read(self, topic: str, records: list[Record], partition: int = 0, **how: Any) -> int:
        self.write(topic, records, partition, **how)
        self.read(topic, records, partition)
        return len(records)

    def create(self) -> int:
        self.client.create(self.topic("made"), 3, {"retention.ms": "86400000"})
        return 0

    def describe(self) -> int:
        # A broker may tell of a new topic a moment after it has created it.
        name, wanted = ("made", [0, 1, 2]) if "create" in self.steps else ("none", [0])
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while sorted(got := self.client.describe(self.topic(name))) != wanted and time.monotonic() < deadline:
            time.sleep(0.05)
        expect(f"partitions of {name}", sorted(got), wanted)
        return 0

    def configs(self) -> int:
        expect("retention.ms", self.client.configs(self.topic("made")).get("retention.ms"), "86400000")
        return 0

    def partitions(self) -> int:
        return sum(self.write_and_read(self.topic("made"), samples(f"partition {p}", 5), p) for p in range(3))

    def codec(self, codec: str) -> int:
        assert codec in CODECS
        return self.write_and_read(self.topic(codec), samples(codec, 100), codec=codec)

    def acks(self) -> int:
        topic, records = self.topic("acks"), samples("acks", 30)
        # Nobody acknowledges the first ten: read them before the next are sent over another connection.
        self.client.produce(topic, 0, records[:10], acks=0)
        self.read(topic, records[:10])
        self.write(topic, records[10:20], acks=1, first=10)
        self.write(topic, records[20:], acks=-1, first=20)
        self.read(topic, records)
        return len(records)

    def nulls(self) -> int:
        return self.write_and_read(self.topic("nulls"), [Record(None, b"v"), Record(b"k", None), Record(b"", b"")])

    def headers(self) -> int:
        records = [Record(b"k0", b"none"), Record(b"k1", b"text", (("h1", b"first"), ("h1", b"second")))]
        if not getattr(self.client, "text_headers_only", False):
            records += self.odd_headers()
        return self.write_and_read(self.topic("headers"), records)

    def odd_headers(self) -> list[Record]:
        return [
            Record(b"k2", b"order", (("z", b"1"), ("a", b"2"), ("z", ALL_BYTES))),
            Record(b"k3", b"empty", (("empty", b""), ("n\u00e4me", b"x"))),
        ]

    def null_headers(self) -> int:
        return self.write_and_read(self.topic("null-headers"), [Record(b"k", b"v", (("null", None), ("empty", b"")))])

    def large(self) -> int:
        small, large = samples("large", 2), [Record(b"large", large_value(seed)) for seed in range(2)]
        return self.write_and_read(self.topic("large"), [small[0], large[0], small[1], large[1]])

    def offsets(self) -> int:
        expect("earliest and end offset", tuple(self.client.offsets(self.topic("none"), 0)), (0, 100))
        return 0

    def timed(self) -> list[Record]:
        return [r._replace(timestamp=self.base_ms + 1000 * i) for i, r in enumerate(samples("timestamps", 10))]

    def timestamps(self) -> int:
        return self.write_and_read(self.topic("time"), self.timed())

    def by_time(self) -> int:
        topic = self.topic("time")
        for later_ms, offset in ((0, 0), (2500, 3), (3000, 3), (9000, 9), (9001, None)):
            got = self.client.offset_at(topic, 0, self.base_ms + later_ms)
            expect(f"{topic}: offset at {later_ms} ms", got, offset)
        self.read(topic, self.timed()[3:], first=3)
        return 7

    def idempotent(self) -> int:
        topic, records = self.topic("idempotent"), samples("idempotent", 100)
        self.write_and_read(topic, records, idempotent=True)
        expect(f"{topic}: earliest and end offset", tuple(self.client.offsets(topic, 0)), (0, 100))
        return len(records)

    def foreign(self) -> int:
        records = foreign_records(self.base_ms)
        self.read(self.foreign_topic, records)
        return len(records)

    def match(self, topic: str, got: list[Record], wanted: list[Record]) -> int:
        """Compare what was read of a topic with holes, where offsets do not follow each other."""
        expect(f"{topic}: offsets read", [r.offset for r in got], [r.offset for r in wanted])
        for one, other in zip(got, wanted, strict=True):
            expect(f"{topic}: offset {one.offset}", (one.key, one.value), (other.key, other.value))
        return len(wanted)

    def gaps(self, suffix: str = "") -> int:
        topic, wanted = self.foreign_topic + suffix, left()
        return self.match(topic, self.client.consume(topic, 0, 0, len(wanted)), wanted)

    def gaps_zstd(self) -> int:
        return self.gaps("-zstd")

    def holes(self) -> int:
        for hole in HOLES:
            wanted = next(record for record in left() if record.offset >= hole)
            got = self.client.consume(self.foreign_topic, 0, hole, 1)
            self.match(f"{self.foreign_topic} from {hole}", got[:1], [wanted])
        return len(HOLES)

    def committed(self) -> int:
        topic, wanted = self.foreign_topic + "-txn", committed()
        return self.match(topic, self.client.read_committed(topic, 0)[0], wanted)

    def end(self) -> int:
        """What is behind the last record, an empty batch or an aborted transaction, is behind the consumer too."""
        wanted = left()
        got, position = self.client.read_committed(self.foreign_topic, 0)
        expect("position at an empty batch", position, 120)
        self.match(self.foreign_topic, got, wanted)
        _, position = self.client.read_committed(self.foreign_topic + "-txn", 0)
        expect("position behind an aborted transaction", position, 120)
        return len(wanted)

    def delete(self) -> int:
        topic, deadline = self.topic("made"), time.monotonic() + SETTLE_SECONDS_MAX
        self.client.delete(topic)
        while topic in self.client.topics():
            if time.monotonic() > deadline:
                raise Difference(f"{topic}: still listed {SETTLE_SECONDS_MAX} s after its deletion")
            time.sleep(0.05)
        return 0

    def write_foreign(self) -> int:
        """Not of the script: fill the topic that the step `foreign` reads, one batch or more in each codec."""
        for index, codec in enumerate(CODECS[:4]):
            part = foreign_records(self.base_ms)[index * 20 : index * 20 + 20]
            self.write(self.foreign_topic, part, first=index * 20, codec=codec)
        return 80


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def main(
    adapter: str, bootstrap: str, prefix: str, base_ms: str, steps: str, foreign: str = "", variant: str = ""
) -> int:
    client = importlib.import_module(f"{adapter}_client").Client(bootstrap, variant)
    say(client=adapter, version=client.version)
    wanted = steps.split(",")
    script = Script(client, prefix, int(base_ms), wanted, foreign)
    try:
        for step in wanted:
            start = time.perf_counter()
            try:
                records = script.find_step(step)()
            except Difference as difference:
                print(f"step {step}: {difference}", file=sys.stderr)
                return 1
            say(step=step, records=records, ms=round((time.perf_counter() - start) * 1000))
    finally:
        client.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
