"""Probes of topics' settings: what each does, as a client, a directory and a clock show it.

A probe is told which value is in force and looks whether the broker behaves so: which files there are and how long,
which of them are synced, what is answered, and when on the clock something happens. None looks into the broker's
objects. Each begins with a segment of its own, so that it can be asked again and again, and between other probes.

What must hold: a probe of one setting can tell the values that stand beside it from each other and from the default.
So that others do not get in its way, a setting has a topic in which all that is of another topic is pinned.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, NamedTuple

import lz4.frame
import zstandard

from minibroker.broker.broker import Node
from minibroker.clock.steered import SteeredClock
from minibroker.config.tables import topic_settings
from minibroker.errors import Error
from minibroker.log.batches import Batch, batches
from minibroker.log.build import build_batch
from minibroker.log.compression import CODEC_NAMES, NONE
from minibroker.log.records import Record
from minibroker.protocol.messages.create_topics import CreateTopicsRequest
from minibroker.protocol.messages.delete_records import DeleteRecordsRequest
from minibroker.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest
from minibroker.simulation.disk import SimulatedStorage, Step
from tests.server.running import Client, connected, fetch, produce, running

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE = 0, 1
EARLIEST, LATEST = -2, -1
BEGIN_MS = 1_795_000_000_000
DAY_MS = 86_400_000
TICK_MS = 1000  # between two looks of retention, of the cleaner, and at flush.ms
PROBED_MS_MAX = 8_000_000  # a time that is longer than this is not waited for
BROKERS_OWN = {
    "log.retention.check.interval.ms": TICK_MS,
    "log.initial.task.delay.ms": TICK_MS,
    "log.cleaner.backoff.ms": TICK_MS,
}


async def alter(client: Client, kind: int, name: str, configs: Mapping[str, str | None]) -> str | None:
    """Set settings, None takes one back; return why that was refused."""
    Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    rows = [
        Resource.AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
        for key, value in configs.items()
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[Resource(resource_type=kind, resource_name=name, configs=rows)], validate_only=False
    )
    (answer,) = (await client.ask(request, 1)).responses
    return answer.error_message if answer.error_code else None


class Lab:
    """A broker on a disk that counts its syncs, with a clock that stands until it is moved, and one client of it."""

    def __init__(self, node: Node, client: Client, clock: SteeredClock, storage: SimulatedStorage):
        self.node = node
        self.client = client
        self.clock = clock
        self.storage = storage
        self.syncs: Counter[str] = Counter()  # by path
        self.in_force: dict[str, str] = {}  # other settings of the topic that is probed, where a probe must know them
        self._key_count = 0
        storage.before_step = self._note

    def _note(self, step: Step) -> None:
        if step.doing == "sync":
            self.syncs[step.path] += 1

    async def create(self, topic: str, configs: Mapping[str, str]) -> None:
        Topic = CreateTopicsRequest.CreatableTopic
        rows = [Topic.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()]
        asked = Topic(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=rows)
        answer = await self.client.ask(CreateTopicsRequest(topics=[asked], timeout_ms=1000), 5)
        assert not answer.topics[0].error_code, answer.topics[0].error_message

    async def produce(
        self,
        topic: str,
        value: bytes | None = b"",
        *,
        key: bytes | None = None,
        timestamp: int | None = None,
        acks: int = 1,
        codec: int = NONE,
        is_keyless: bool = False,
    ) -> Error:
        """Write one record in a batch, by default with a key of its own and as of now; return the answer."""
        if key is None and not is_keyless:
            self._key_count += 1
            key = b"own %d" % self._key_count
        when = self.clock.now_ms() if timestamp is None else timestamp
        data = build_batch(2, [Record(key, value, (), when)], codec=codec)
        return await self.send(topic, data, acks)

    async def send(self, topic: str, data: bytes, acks: int = 1) -> Error:
        answer = await self.client.ask(produce(topic, data, acks=acks), 9)
        return Error(answer.responses[0].partition_responses[0].error_code)

    async def written(self, topic: str, value: bytes | None = b"", **named: Any) -> None:
        assert await self.produce(topic, value, **named) is Error.NONE

    async def batches(self, topic: str, offset: int) -> list[Batch]:
        """Return what a consumer gets from an offset on."""
        (answer,) = (await self.client.ask(fetch(topic, offset), 11)).responses[0].partitions
        assert answer.error_code == Error.NONE
        return list(batches(bytes(answer.records or b"")))

    async def last(self, topic: str) -> Batch:
        return (await self.batches(topic, (await self.bounds(topic))[1] - 1))[-1]

    async def bounds(self, topic: str) -> tuple[int, int]:
        """Return the first offset of the log, and the one behind its last record."""
        found = []
        for timestamp in (EARLIEST, LATEST):
            Topic = ListOffsetsRequest.ListOffsetsTopic
            rows = [Topic.ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
            asked = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[Topic(name=topic, partitions=rows)])
            found.append(int((await self.client.ask(asked, 2)).topics[0].partitions[0].offset))
        return found[0], found[1]

    async def keys(self, topic: str) -> list[bytes | None]:
        """Return the keys of all records that are left."""
        found: list[bytes | None] = []
        offset, end = await self.bounds(topic)
        while offset < end and (read := await self.batches(topic, offset)):
            found += [record.key for batch in read for record in batch.records()]
            offset = read[-1].next_offset
        return found

    async def begin_segment(self, topic: str) -> None:
        """Write a record and begin a new segment behind it: what is active then is empty, and all before is synced."""
        await self.written(topic)
        await self.node.cleaning.roll_now(topic)
        await self.clock.settle()

    async def pass_time(self, delay_ms: int) -> None:
        await self.clock.advance(delay_ms)

    # What lies in the directory of partition 0

    def files(self, topic: str, ending: str = ".log") -> dict[str, int]:
        """Return names with their lengths."""
        directory = f"{topic}-0"
        names = [name for name in self.storage.list(directory) if name.endswith(ending)]
        return {name: self.storage.size_bytes(f"{directory}/{name}") for name in names}

    def bases(self, topic: str) -> list[int]:
        return [int(name.split(".")[0]) for name in self.files(topic)]

    def active_syncs(self, topic: str) -> int:
        """Return how often the newest segment has been synced."""
        return self.syncs[f"{topic}-0/{max(self.files(topic))}"]

    def cleaned_to(self, topic: str) -> int:
        """Return where the last pass of the cleaner over a log ended, by the file that says so."""
        file = self.storage.open("cleaner-offset-checkpoint")
        lines = bytes(file.view(0, file.size_bytes)).decode().splitlines()
        file.close()
        return next(int(line.split()[2]) for line in lines if line.startswith(f"{topic} 0 "))


@asynccontextmanager
async def laboratory(**settings: object) -> AsyncIterator[Lab]:
    clock = SteeredClock(BEGIN_MS)
    clock.freeze()
    storage = SimulatedStorage(clock.now_ms)
    async with running({**BROKERS_OWN, **settings}, clock=clock, storage=storage) as node, connected(node) as client:
        yield Lab(node, client, clock, storage)


# Segments and their indexes

LARGE = 200_000  # bytes of a value; few of them are an entry each in an index


async def segment_bytes(lab: Lab, topic: str, value: str) -> None:
    """The largest segment is as long as it may be, but for less than the batch that did not fit any more."""
    await lab.begin_segment(topic)
    base = max(lab.bases(topic))
    limit, size_bytes = int(value), 0
    while max(lab.bases(topic)) == base:
        size_bytes = lab.files(topic)[max(lab.files(topic))]
        if size_bytes > 2_000_000:
            assert limit > size_bytes
            return
        await lab.written(topic, bytes(min(LARGE, limit // 5)))
    ended, *_ = (size for name, size in lab.files(topic).items() if int(name[:20]) == base)
    assert ended <= limit < ended + lab.files(topic)[max(lab.files(topic))]


async def segment_ms(lab: Lab, topic: str, value: str) -> None:
    """A record that is later than the first of its segment by more than that begins another."""
    jitter_ms = min(int(lab.in_force.get("segment.jitter.ms", "0")), int(value))
    for age_ms, is_rolled in ((int(value) - jitter_ms, False), (int(value) + 1, True)):
        assert await rolls_at(lab, topic, age_ms) == is_rolled


async def rolls_at(lab: Lab, topic: str, age_ms: int) -> bool:
    await lab.begin_segment(topic)
    base = max(lab.bases(topic))
    await lab.written(topic, timestamp=lab.clock.now_ms() - age_ms)
    await lab.written(topic)
    return max(lab.bases(topic)) > base


async def segment_jitter_ms(lab: Lab, topic: str, value: str) -> None:
    """Segments end earlier by some time below that, each by another."""
    longest_ms = int(lab.in_force.get("segment.ms", 7 * DAY_MS))
    jitter_ms = min(int(value), longest_ms)
    assert not any([await rolls_at(lab, topic, longest_ms - jitter_ms) for _ in range(12)])
    assert await rolls_at(lab, topic, longest_ms + 1)
    if jitter_ms:
        # Of sixteen segments one half ends before the middle: all or none in one case of 30,000, and of one seed.
        assert 0 < sum([await rolls_at(lab, topic, longest_ms - jitter_ms // 2) for _ in range(16)]) < 16


async def segment_index_bytes(lab: Lab, topic: str, value: str) -> None:
    """Indexes of the active segment have that length, in whole entries; a full one ends the segment."""
    await lab.begin_segment(topic)
    base, limit = max(lab.bases(topic)), int(value)
    interval_bytes = int(lab.in_force.get("index.interval.bytes", "4096"))
    for kind, entry_bytes in ((".index", 8), (".timeindex", 12)):
        assert lab.files(topic, kind)[f"{base:020}{kind}"] == limit // entry_bytes * entry_bytes
    count = 0
    while max(lab.bases(topic)) == base:
        if count > 110:
            assert limit > 110 * 8
            return
        await lab.written(topic, bytes(interval_bytes))
        count += 1
    assert lab.files(topic, ".index")[f"{base:020}.index"] == limit // 8 * 8


async def index_interval_bytes(lab: Lab, topic: str, value: str) -> None:
    """There is an entry for the first batch behind each so many bytes."""
    await lab.begin_segment(topic)
    base, since_bytes, expected = max(lab.bases(topic)), 0, 0
    for count in range(1, 41):
        before = lab.files(topic)[f"{base:020}.log"]
        await lab.written(topic, bytes(900))
        if since_bytes > int(value):
            expected, since_bytes = expected + 1, 0
        since_bytes += lab.files(topic)[f"{base:020}.log"] - before
        assert len(lab.bases(topic)), count
        assert max(lab.bases(topic)) == base, count
    await lab.begin_segment(topic)
    found = lab.files(topic, ".index")[f"{base:020}.index"] // 8
    assert found in (expected, expected + (since_bytes > int(value)))


# Syncs


async def flush_messages(lab: Lab, topic: str, value: str) -> None:
    """So many records, and they are on the disk."""
    await lab.begin_segment(topic)
    for count in range(1, 13):
        before = lab.active_syncs(topic)
        await lab.written(topic)
        assert (lab.active_syncs(topic) > before) == (count % int(value) == 0)


async def flush_ms(lab: Lab, topic: str, value: str) -> None:
    """What was written is on the disk that long after the last sync, and not earlier."""
    delay_ms = int(value)
    await lab.begin_segment(topic)
    await lab.written(topic)
    if delay_ms > PROBED_MS_MAX:
        await lab.pass_time(100_000)
        assert not lab.active_syncs(topic)
        return
    await until(lab, lambda: lab.active_syncs(topic) == 1, delay_ms + TICK_MS)
    await lab.written(topic)
    await lab.pass_time(delay_ms - TICK_MS)
    assert lab.active_syncs(topic) == 1
    await lab.pass_time(2 * TICK_MS)
    assert lab.active_syncs(topic) == 2


async def until(lab: Lab, is_so: Callable[[], bool], limit_ms: int) -> None:
    """Let time pass, tick by tick, until something is so."""
    passed_ms = 0
    while not is_so():
        assert passed_ms <= limit_ms
        await lab.pass_time(TICK_MS)
        passed_ms += TICK_MS


# Retention


async def retention_ms(lab: Lab, topic: str, value: str) -> None:
    await lab.begin_segment(topic)
    base, delay_ms = max(lab.bases(topic)), int(value)
    await lab.begin_segment(topic)
    if delay_ms < 0 or delay_ms > PROBED_MS_MAX:
        await lab.pass_time(1_000_000)
        assert base in lab.bases(topic)
        return
    await lab.pass_time(delay_ms)
    assert base in lab.bases(topic)
    await lab.pass_time(1 + TICK_MS)
    assert base not in lab.bases(topic)


async def retention_bytes(lab: Lab, topic: str, value: str) -> None:
    for _ in range(8):
        await lab.written(topic, bytes(LARGE // 2))
        await lab.begin_segment(topic)
    before = sum(lab.files(topic).values())
    await lab.pass_time(TICK_MS)
    sizes = list(lab.files(topic).values())
    if int(value) < 0:
        assert sum(sizes) == before
    else:
        assert sum(sizes[1:]) < int(value) <= sum(sizes)


async def file_delete_delay_ms(lab: Lab, topic: str, value: str) -> None:
    """The files of a segment that has gone lie there that long under another name."""
    delay_ms = int(value)
    await lab.begin_segment(topic)
    name = f"{max(lab.bases(topic)):020}.log.deleted"
    await lab.begin_segment(topic)
    Topic = DeleteRecordsRequest.DeleteRecordsTopic
    rows = [Topic.DeleteRecordsPartition(partition_index=0, offset=-1)]
    await lab.client.ask(DeleteRecordsRequest(topics=[Topic(name=topic, partitions=rows)], timeout_ms=1000), 1)
    await until(lab, lambda: name in lab.files(topic, ""), TICK_MS)
    if delay_ms > TICK_MS:
        await lab.pass_time(delay_ms - TICK_MS)
        assert name in lab.files(topic, "")
        await lab.pass_time(TICK_MS)
    else:
        await lab.pass_time(delay_ms)
    assert name not in lab.files(topic, "")


async def cleanup_policy(lab: Lab, topic: str, value: str) -> None:
    """Compacted: records need keys, and older ones of a key go. Deleted from: what is too old goes."""
    compacts, deletes = "compact" in value, "delete" in value
    refused = await lab.produce(topic, is_keyless=True)
    assert refused is (Error.INVALID_RECORD if compacts else Error.NONE)
    await lab.begin_segment(topic)
    key = b"again from %d" % max(lab.bases(topic))
    for _ in range(5):
        await lab.written(topic, bytes(LARGE), key=key)
    await lab.begin_segment(topic)
    await lab.pass_time(2 * TICK_MS)
    assert (await lab.keys(topic)).count(key) == (1 if compacts else 5)
    await lab.pass_time(POLICY_RETENTION_MS)
    assert (await lab.keys(topic)).count(key) == (0 if deletes else 1)


# The cleaner


async def clean_part(lab: Lab, topic: str) -> None:
    """Let all there is be clean, some 200 kB."""
    for each in range(10):
        await lab.written(topic, bytes(LARGE // 10), key=b"%d" % each)
    await lab.begin_segment(topic)
    await lab.pass_time(lag_ms(lab) + 2 * TICK_MS)
    await lab.node.cleaning.compact_now(topic)
    assert lab.cleaned_to(topic) == max(lab.bases(topic))


def lag_ms(lab: Lab) -> int:
    return int(lab.in_force.get("min.compaction.lag.ms", "0"))


def is_clean(lab: Lab, topic: str) -> bool:
    return lab.cleaned_to(topic) == max(lab.bases(topic))


async def min_cleanable_dirty_ratio(lab: Lab, topic: str, value: str) -> None:
    """A pass begins when the share of bytes behind the last one is above that."""
    await clean_part(lab, topic)
    first_dirty = lab.cleaned_to(topic)
    for _ in range(20):
        await lab.written(topic, bytes(60_000), key=b"0")
        await lab.begin_segment(topic)
        sizes = {int(name[:20]): size for name, size in lab.files(topic).items()}
        dirty = sum(size for base, size in sizes.items() if base >= first_dirty)
        await lab.pass_time(lag_ms(lab) + 2 * TICK_MS)
        assert is_clean(lab, topic) == (dirty / sum(sizes.values()) > float(value))
        if is_clean(lab, topic):
            return
    raise AssertionError("no pass at all")


async def min_compaction_lag_ms(lab: Lab, topic: str, value: str) -> None:
    """What is younger than that is not touched."""
    await clean_part(lab, topic)
    for _ in range(5):
        await lab.written(topic, bytes(LARGE), key=b"0")
    await lab.begin_segment(topic)
    if int(value):
        await lab.pass_time(int(value) - 1)
        assert not is_clean(lab, topic)
    await lab.pass_time(2 * TICK_MS)
    assert is_clean(lab, topic)


async def max_compaction_lag_ms(lab: Lab, topic: str, value: str) -> None:
    """What is older than that is cleaned, however little it is."""
    await clean_part(lab, topic)
    delay_ms = int(value)
    await lab.begin_segment(topic)
    if delay_ms > PROBED_MS_MAX:
        await lab.pass_time(1_000_000)
        assert not is_clean(lab, topic)
        return
    await lab.pass_time(delay_ms)
    assert not is_clean(lab, topic)
    await lab.pass_time(2 * TICK_MS)
    assert is_clean(lab, topic)


async def delete_retention_ms(lab: Lab, topic: str, value: str) -> None:
    """The mark of a deleted key is there for that long after the first pass over it."""
    await clean_part(lab, topic)
    gone = b"gone from %d" % max(lab.bases(topic))
    await lab.written(topic, None, key=gone)
    await lab.begin_segment(topic)
    await lab.pass_time(lag_ms(lab) + TICK_MS)
    await lab.node.cleaning.compact_now(topic)
    assert gone in await lab.keys(topic)
    if int(value) > PROBED_MS_MAX:
        await lab.begin_segment(topic)
        await lab.pass_time(1_000_000)
        await lab.node.cleaning.compact_now(topic)
        assert gone in await lab.keys(topic)
        return
    await lab.begin_segment(topic)
    await lab.pass_time(int(value) - 2 * TICK_MS)
    await lab.node.cleaning.compact_now(topic)
    assert gone in await lab.keys(topic)
    await lab.begin_segment(topic)
    await lab.pass_time(lag_ms(lab) + 3 * TICK_MS)
    await lab.node.cleaning.compact_now(topic)
    assert gone not in await lab.keys(topic)


# What is accepted, and how it is stored


async def max_message_bytes(lab: Lab, topic: str, value: str) -> None:
    assert await lab.send(topic, batch_of(int(value), lab.clock.now_ms())) is Error.NONE
    assert await lab.send(topic, batch_of(int(value) + 1, lab.clock.now_ms())) is Error.MESSAGE_TOO_LARGE


def batch_of(size_bytes: int, timestamp: int) -> bytes:
    """Return a batch of exactly that length."""
    for key in (b"k", b"kk"):  # lengths are written in one byte more from some value's length on
        for more in range(60, 90):
            found = build_batch(2, [Record(key, bytes(size_bytes - more), (), timestamp)])
            if len(found) == size_bytes:
                return found
    raise AssertionError(size_bytes)


async def max_decompressed_message_bytes(lab: Lab, topic: str, value: str) -> None:
    limit = min(int(value), 1_000_000)
    assert await lab.produce(topic, bytes(limit - 100), codec=CODEC_NAMES.index("gzip")) is Error.NONE
    refused = await lab.produce(topic, bytes(limit + 100), codec=CODEC_NAMES.index("gzip"))
    assert bool(refused) == (int(value) < 1_000_000)


async def message_timestamp_after_max_ms(lab: Lab, topic: str, value: str) -> None:
    await bounded(lab, topic, int(value), 1)


async def message_timestamp_before_max_ms(lab: Lab, topic: str, value: str) -> None:
    await bounded(lab, topic, int(value), -1)


async def bounded(lab: Lab, topic: str, most_ms: int, sign: int) -> None:
    """Records may be so far from now in one direction, if they keep their time."""
    now_ms = lab.clock.now_ms()
    if most_ms > now_ms:
        assert await lab.produce(topic, timestamp=0) is Error.NONE
        return
    is_bounded = lab.in_force.get("message.timestamp.type", "CreateTime") == "CreateTime"
    assert await lab.produce(topic, timestamp=now_ms + sign * most_ms) is Error.NONE
    refused = await lab.produce(topic, timestamp=now_ms + sign * (most_ms + 1))
    assert refused is (Error.INVALID_TIMESTAMP if is_bounded else Error.NONE)


async def message_timestamp_type(lab: Lab, topic: str, value: str) -> None:
    now_ms = lab.clock.now_ms()
    await lab.written(topic, timestamp=now_ms - 500)
    batch = await lab.last(topic)
    assert [record.timestamp for record in batch.records()] == [now_ms - 500 * (value == "CreateTime")]
    assert batch.timestamp_type == (value != "CreateTime")


async def compression_type(lab: Lab, topic: str, value: str) -> None:
    for sent in ("none", "snappy"):
        await lab.written(topic, bytes(2000), codec=CODEC_NAMES.index(sent))
        expected = {"producer": sent, "uncompressed": "none"}.get(value, value)
        assert CODEC_NAMES[(await lab.last(topic)).codec] == expected


WORDS = [Random(1).randbytes(Random(each).randrange(2, 9)) for each in range(300)]
TEXT = b" ".join(Random(2).choices(WORDS, k=9000))
# Levels of Kafka's codec, and what they are called by the C library: its default is not the high compressor.
LZ4_LEVELS = {1: 3, 9: 0, 12: 12}
PACKED: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": lambda data, level: gzip.compress(data, 6 if level == -1 else level),
    "lz4": lambda data, level: lz4.frame.compress(data, compression_level=LZ4_LEVELS[level], block_linked=False),
    "zstd": lambda data, level: zstandard.ZstdCompressor(level=level).compress(data),
}


def level_of(codec: str) -> Probe:
    """Return a probe of the level of a codec: how long a text becomes with it."""

    async def probe(lab: Lab, topic: str, value: str) -> None:
        await lab.written(topic, TEXT)
        batch = await lab.last(topic)
        assert CODEC_NAMES[batch.codec] == codec
        lengths = {text: len(PACKED[codec](TEXT, int(text))) for text in (value, *LEVELS[codec])}
        assert len({lengths[text] for text in LEVELS[codec]}) == len(LEVELS[codec]), lengths
        nearest = min(lengths, key=lambda text: abs(lengths[text] + 70 - batch.size_bytes))
        assert lengths[nearest] == lengths[value], (lengths, batch.size_bytes)

    return probe


LEVELS = {"gzip": ("1", "9"), "lz4": ("1", "12"), "zstd": ("1", "15")}
POLICY_RETENTION_MS = 60_000
Probe = Callable[[Lab, str, str], Awaitable[None]]


class Probed(NamedTuple):
    topic: str  # in which it is probed
    probe: Probe
    values: tuple[str, str]  # that the probe can tell from each other, and from the default


PROBES: dict[str, Probed] = {
    "cleanup.policy": Probed("policy", cleanup_policy, ("compact", "compact,delete")),
    "compression.gzip.level": Probed("gzip", level_of("gzip"), LEVELS["gzip"]),
    "compression.lz4.level": Probed("lz4", level_of("lz4"), LEVELS["lz4"]),
    "compression.zstd.level": Probed("zstd", level_of("zstd"), LEVELS["zstd"]),
    "compression.type": Probed("stored", compression_type, ("gzip", "zstd")),
    "delete.retention.ms": Probed("compacted", delete_retention_ms, ("50000", "80000")),
    "file.delete.delay.ms": Probed("retained", file_delete_delay_ms, ("10000", "40000")),
    "flush.messages": Probed("flushed", flush_messages, ("3", "5")),
    "flush.ms": Probed("flushed", flush_ms, ("20000", "40000")),
    "index.interval.bytes": Probed("indexed", index_interval_bytes, ("2000", "8000")),
    "internal.segment.bytes": Probed("small", segment_bytes, ("5000", "60000")),
    "max.compaction.lag.ms": Probed("compacted", max_compaction_lag_ms, ("200000", "300000")),
    "max.decompressed.message.bytes": Probed("unpacked", max_decompressed_message_bytes, ("20000", "30000")),
    "max.message.bytes": Probed("accepted", max_message_bytes, ("200000", "300000")),
    "message.timestamp.after.max.ms": Probed("timed", message_timestamp_after_max_ms, ("70000", "90000")),
    "message.timestamp.before.max.ms": Probed("timed", message_timestamp_before_max_ms, ("70000", "90000")),
    "message.timestamp.type": Probed("timed", message_timestamp_type, ("LogAppendTime", "CreateTime")),
    "min.cleanable.dirty.ratio": Probed("compacted", min_cleanable_dirty_ratio, ("0.25", "0.75")),
    "min.compaction.lag.ms": Probed("compacted", min_compaction_lag_ms, ("3000", "6000")),
    "retention.bytes": Probed("retained", retention_bytes, ("400000", "600000")),
    "retention.ms": Probed("retained", retention_ms, ("200000", "300000")),
    "segment.bytes": Probed("rolled", segment_bytes, ("1100000", "1500000")),
    "segment.index.bytes": Probed("indexed", segment_index_bytes, ("400", "800")),
    "segment.jitter.ms": Probed("rolled", segment_jitter_ms, ("400000", "200000")),
    "segment.ms": Probed("rolled", segment_ms, ("500000", "700000")),
}
PINNED: dict[str, dict[str, str]] = {
    "compacted": {"cleanup.policy": "compact"},
    "policy": {"retention.ms": str(POLICY_RETENTION_MS)},
    "gzip": {"compression.type": "gzip"},
    "lz4": {"compression.type": "lz4"},
    "zstd": {"compression.type": "zstd"},
}


def pins(topic: str) -> dict[str, str]:
    """Return what a topic sets itself, so that what is set for all topics is seen in those that are for it."""
    others = {
        name: default
        for name, probed in PROBES.items()
        if probed.topic != topic and (default := topic_settings()[name].default) is not None
    }
    return others | PINNED.get(topic, {})


async def look(lab: Lab, name: str, value: str, in_force: Mapping[str, str] | None = None) -> None:
    """Probe a setting of which a value is in force, and which others of its topic are."""
    lab.in_force = {**(in_force or {}), name: value}
    await PROBES[name].probe(lab, PROBES[name].topic, value)
