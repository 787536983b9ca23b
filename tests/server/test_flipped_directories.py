"""One byte of a broker's directory is not what was written: nothing that was acknowledged goes without a word.

For each byte, of a directory that was left in order or by kill -9, two starts: each either serves what was there, or
says what is missing, or refuses and leaves everything as it was. What records a damaged log answers with is another
question: tests/log/test_flipped_bytes.py.
MINIBROKER_TEST_FLIPS=all tries every byte, a number so many; `make flips`.
"""

from __future__ import annotations

import os
from functools import cache
from random import Random
from typing import NamedTuple

import pytest

from minibroker.broker.broker import Node
from minibroker.clock import LoopClock
from minibroker.config import BrokerConfig
from minibroker.errors import KafkaError, ProtocolError
from minibroker.log.checkpoints import CLEAN_SHUTDOWN, read_file
from minibroker.log.memory_storage import Directory, MemoryStorage
from minibroker.metadata.bootstrap import WrongDirectory
from tests.server.running import Said, append

FLIPS = os.environ.get("MINIBROKER_TEST_FLIPS", "120")
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "log.index.size.max.bytes": "60",
    "log.index.interval.bytes": "100",
    "metadata.log.segment.bytes": "8388608",
}
Files = dict[str, bytes]


class Durable(MemoryStorage):
    """Memory that takes itself for a disk, and so writes everything that a broker writes to one."""

    is_durable = True


class Known(NamedTuple):
    """What was acknowledged."""

    topics: dict[str, tuple[bytes, int, dict[str, str]]]  # id, partitions, settings
    values: dict[tuple[str, int], list[bytes]]


def node_on(storage: MemoryStorage) -> Node:
    return Node(BrokerConfig(SETTINGS), storage, clock=LoopClock(), chance=Random(5), reporter=Said())


def known_of(node: Node) -> Known:
    topics = {
        name: (topic.id, len(topic.partitions), dict(node.image.topic_configs(name)))
        for name, topic in node.image.topics.items()
    }
    values = {}
    for topic, partition in node.replicas:
        values[topic, partition] = values_in(node, topic, partition)
    return Known(topics, values)


def values_in(node: Node, topic: str, partition: int) -> list[bytes]:
    found = []
    for segment in node.replicas[topic, partition].log.segments:
        for _, batch in segment.placed_batches(strict=True):
            found += [bytes(record.value or b"") for record in batch.records(check_crc=True)]
    return found


def files_of(storage: MemoryStorage) -> Files:
    found: Files = {}
    for name in storage.list(""):
        inner = [f"{name}/{path}" for path in storage.list(name)] if is_directory(storage, name) else [name]
        found |= {path: read_file(storage, path) for path in inner}
    return found


def is_directory(storage: MemoryStorage, name: str) -> bool:
    return isinstance(storage.root.entries[name], Directory)


def stored(files: Files) -> MemoryStorage:
    storage = Durable(lambda: 1_700_000_000_000)
    for path, data in files.items():
        if "/" in path:
            storage.make_directory(path.split("/")[0])
        storage.open(path, create=True).append([data])
    return storage


async def written(*, is_clean: bool) -> tuple[Files, Known]:
    storage = Durable(lambda: 1_700_000_000_000)
    node = node_on(storage)
    await node.start()
    node.create_topic("orders", 2, {"retention.ms": "-1"})
    node.create_topic("payments", 1, {"retention.bytes": "-1", "max.message.bytes": "7777"})
    for number in range(6):
        append(node, "orders", b"order %d" % number)
        append(node, "payments", b"payment %d" % number)
        if number % 2:
            node.replicas["orders", 0].log.roll()
    node.replicas["orders", 0].log.advance_log_start(2)
    node.directory.write_checkpoints({key: replica.high_watermark for key, replica in node.replicas.items()})
    known = known_of(node)
    assert len(known.values["orders", 0]) == len(known.values["payments", 0]) == 6
    await (node.stop() if is_clean else node.kill())
    # Of preallocated indexes nothing but zeros goes.
    return {
        path: data.rstrip(b"\0") if len(data) > 1 << 20 else data for path, data in files_of(storage).items()
    }, known


@cache
def flips(count: int) -> list[tuple[float, int]]:
    """Return where to flip, as a share of all bytes, and which bit."""
    chance = Random(1)
    return [(chance.random(), chance.randrange(8)) for _ in range(count)]


def place(files: Files, at: int) -> tuple[str, int]:
    for path, data in sorted(files.items()):
        if at < len(data):
            return path, at
        at -= len(data)
    raise AssertionError


async def check_start(storage: MemoryStorage, known: Known, what: str, path: str, said: list[str]) -> None:
    """said: what people have been told of this directory."""
    before = files_of(storage)
    node = node_on(storage)
    node.reporter.lines = said  # type: ignore[attr-defined]
    try:
        await node.start()
    except (WrongDirectory, KafkaError, ProtocolError) as refusal:
        assert str(refusal), what
        assert files_of(storage) == before, f"{what}: {refusal}"
        return
    try:
        assert_is_there(node, known, what, path, said)
    finally:
        await node.stop()


def assert_is_there(node: Node, known: Known, what: str, path: str, said: list[str]) -> None:
    found = {name: (topic.id, len(topic.partitions)) for name, topic in node.image.topics.items()}
    assert found == {name: row[:2] for name, row in known.topics.items()}, what
    for name, (_, _, settings) in known.topics.items():
        assert dict(node.image.topic_configs(name)) == settings, what
    for (topic, partition), values in known.values.items():
        directory = f"{topic}-{partition}"
        if (topic, partition) in node.partitions.unopened:
            assert [line for line in said if directory in line], what
            continue
        try:
            records = values_in(node, topic, partition)
        except (KafkaError, ProtocolError):
            assert path.startswith(directory), what
            continue  # who reads there is told
        assert records == values or [line for line in said if directory in line], f"{what}: {said}"


@pytest.mark.slow
@pytest.mark.parametrize("is_clean", [True, False])
async def test_no_flipped_byte_takes_what_was_acknowledged_without_a_word(is_clean: bool) -> None:
    files, known = await written(is_clean=is_clean)
    assert (CLEAN_SHUTDOWN in files) == is_clean
    total = sum(map(len, files.values()))
    if FLIPS == "all":
        places = [(at, at % 8) for at in range(total)]
    else:
        places = [(int(share * total), bit) for share, bit in flips(int(FLIPS))]
    for at, bit in places:
        path, position = place(files, at)
        data = bytearray(files[path])
        data[position] ^= 1 << bit
        what = f"{path}, byte {position} of {len(data)}: {data[position] ^ 1 << bit:#04x} is {data[position]:#04x}"
        storage = stored({**files, path: bytes(data)})
        said: list[str] = []
        for start in ("first", "second"):
            await check_start(storage, known, f"{what}, {start} start", path, said)
