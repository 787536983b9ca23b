"""Produce: every format in every version, what must be refused, and sequences of idempotent producers."""

from __future__ import annotations

from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol.messages.describe_producers import DescribeProducersRequest
from minibroker.protocol.messages.init_producer_id import InitProducerIdRequest
from minibroker.protocol.messages.produce import ProduceRequest
from tests.differential.play import Play
from tests.differential.scenario.build import (
    BAD_PARTITIONS,
    CODECS,
    LZ4,
    NO_ID,
    NOW_MS,
    UNKNOWN_ID,
    ZSTD,
    batch,
    produce,
    produce_topic,
    records,
)

ALL_TOPICS = ("plain", "to-gzip", "to-zstd", "to-none", "append-time", "compacted")
SILENCE_SECONDS = 0.5


def produce_every_format(play: Play) -> None:
    """Append what is good, in all ways that a version allows."""
    for version in play.versions(ProduceRequest):
        magics = (2,) if version >= 3 else (0, 1, 2)
        for magic in magics:
            for name, codec in CODECS.items():
                if codec == ZSTD and (magic < 2 or version < 7):
                    continue
                for count in (1, 4):
                    at = NOW_MS + version * 100_000 + codec * 10_000
                    data = batch(count, magic=magic, codec=codec, at=at)
                    play.ask(f"{count} of format {magic}, {name}", produce("formats", data, ids=play.ids), version)
        for topic in ALL_TOPICS:
            for codec in (0, LZ4):
                data = batch(3, codec=codec, magic=magics[-1], at=NOW_MS + version * 10_000)
                play.ask(f"codec {codec} to {topic}", produce(topic, data, ids=play.ids), version)
        for acks in (1, 0, -1):
            data = batch(2, first=version, at=NOW_MS + version * 1000)
            ask = play.ask if acks else play.ask_quietly
            ask(f"acks {acks}", produce("two", data, partition=1, acks=acks, ids=play.ids), version)
        several = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[
            produce_topic("two", (1, batch(1)), (0, batch(2)), ids=play.ids),
            produce_topic("plain", (0, batch(1)), (5, batch(1)), ids=play.ids),
            produce_topic("no-such-topic", (0, batch(1)), ids=play.ids),
        ])  # fmt: skip
        play.ask("several topics and partitions", several, version)
        play.ask("no topic", ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[]), version)
        for index in range(3):
            play.ask("for limits", produce("limits", batch(3, first=index), ids=play.ids), version)
            session = produce("sessions", batch(1, first=index), partition=index, ids=play.ids)
            play.ask("for sessions", session, version)
            play.ask("for trimming", produce("trimmed", batch(3, first=index), ids=play.ids), version)
        for at in (5000, -1000, 0, 7000, 7000):
            data = batch(2, at=NOW_MS + version * 10_000 + at)
            play.ask(f"{at} ms later", produce("times", data, ids=play.ids), version)


def produce_badly(play: Play) -> None:
    """Append what is bad: each mistake in every version."""
    for version in play.versions(ProduceRequest):
        for index, (step, data) in enumerate(_bad_batches(version)):
            assert index < BAD_PARTITIONS
            play.ask(f"bad: {step}", produce("bad-batches", data, partition=index, ids=play.ids), version)
        for step, request in [
            ("acks 2", produce("two", batch(), acks=2, ids=play.ids)),
            ("acks -2", produce("two", batch(), acks=-2, ids=play.ids)),
            ("unknown topic", produce("no-such-topic", batch(), ids=play.ids)),
            ("unknown partition", produce("two", batch(), partition=2, ids=play.ids)),
            ("partition -1", produce("two", batch(), partition=-1, ids=play.ids)),
            ("impossible topic", produce("a/b", batch(), ids=play.ids)),
            ("null keys to a compacted topic", produce("compacted", _keyless(3), ids=play.ids)),
            ("some null keys to a compacted topic", produce("compacted", _keyless(3, every=2), ids=play.ids)),
            ("compressed null keys to a compacted topic", produce("compacted", _keyless(3, codec=LZ4), ids=play.ids)),
            ("just too large", produce("small", _sized(1001), ids=play.ids)),
            ("just not too large", produce("small", _sized(1000), ids=play.ids)),
            ("a partition twice", ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[
                produce_topic("bad-batches", (31, batch(1)), (31, batch(2)), ids=play.ids)])),
        ]:  # fmt: skip
            play.ask(f"bad: {step}", request, version)
        if version >= 13:
            play.ask("bad: zero id", produce("two", batch(), ids=play.ids, topic_id=NO_ID), version)
            play.ask("bad: unknown id", produce("two", batch(), ids=play.ids, topic_id=UNKNOWN_ID), version)
        for step, topic, partition in [("topic", "no-such-topic", 0), ("partition", "two", 7)]:
            quiet = produce(topic, batch(), partition=partition, acks=0, ids=play.ids)
            play.ask_quietly(f"bad: acks 0 to an unknown {step}", quiet, version)
    newest = play.newest(ProduceRequest)
    play.ask_silence("bad: null records", produce("two", None, ids=play.ids), newest, SILENCE_SECONDS)


def _bad_batches(version: int) -> list[tuple[str, bytes]]:
    good = batch(3)
    day_ms = 86_400_000
    wrong_crc = bytearray(good)
    wrong_crc[-1] ^= 1
    wrong_magic = bytearray(good)
    wrong_magic[16] = 3
    cases = [
        ("two batches", batch(2) + batch(1)),
        ("no batch", b""),
        ("a cut batch", good[:-5]),
        ("a cut header", good[:30]),
        ("a cut prefix", good[:9]),
        ("a batch and a cut one", good + good[:20]),
        ("checksum", bytes(wrong_crc)),
        ("magic 3", bytes(wrong_magic)),
        ("base offset 5", (5).to_bytes(8, "big") + good[8:]),
        ("wrong last offset", batch(3, last_offset=7)),
        ("control batch", batch(1, control=True)),
        ("transactional without an id", batch(1, transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)),
        ("producer without a sequence", batch(1, producer_id=5, producer_epoch=0)),
        ("append time flag", build_batch(2, records(2), timestamp_type=1, max_timestamp=NOW_MS)),
        ("40 days ahead", batch(1, at=NOW_MS + 40 * day_ms)),
        ("some days ahead", build_batch(2, [*records(2), Record(value=b"v", timestamp=NOW_MS + 3 * day_ms, offset=2)])),
        ("of 2001", batch(1, at=1_000_000_000_000)),
        ("without a time", batch(2, at=-1, first=0)),
        ("a negative time", batch(1, at=-5)),
        ("max timestamp too small", build_batch(2, records(3), max_timestamp=NOW_MS)),
        ("no records", build_batch(2, [], base_offset=0, last_offset=0)),
        ("no records, three offsets", build_batch(2, [], base_offset=0, last_offset=2)),
        ("delete horizon", build_batch(2, records(1), delete_horizon=NOW_MS)),
        ("garbage", bytes(range(1, 100))),
        ("zeros", bytes(100)),
    ]
    if version >= 3:
        cases += [
            ("format 0", batch(2, magic=0)),
            ("format 1", batch(2, magic=1)),
            ("format 1, gzip", batch(2, magic=1, codec=1)),
            ("zstd", batch(2, codec=ZSTD)),
        ]
    return cases


def _keyless(count: int, every: int = 1, codec: int = 0) -> bytes:
    rows = [record._replace(key=None) if index % every == 0 else record for index, record in enumerate(records(count))]
    return build_batch(2, rows, codec=codec)


def _sized(size: int) -> bytes:
    """Return a batch of this many bytes."""
    spare = size - len(build_batch(2, [Record(value=b"." * 900, timestamp=NOW_MS, offset=0)]))
    return build_batch(2, [Record(value=b"." * (900 + spare), timestamp=NOW_MS, offset=0)])


def produce_with_sequences(play: Play) -> None:
    """Number batches rightly and wrongly, and look at what the broker remembers."""
    producer = await_producer_ids(play)
    for version in play.versions(InitProducerIdRequest):
        play.ask("a producer id", producer, version)
        if version >= 3:
            for step, given, epoch in [("an id", 5, 0), ("an unknown id", 4_000_000, 3), ("an epoch only", -1, 2)]:
                again = InitProducerIdRequest(
                    transactional_id=None, transaction_timeout_ms=60000, producer_id=given, producer_epoch=epoch
                )
                play.ask(f"a producer id, giving {step}", again, version)
        timeless = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
        play.ask("a producer id without a timeout", timeless, version)
    for version in play.versions(ProduceRequest, 3):
        answer = play.ask("a producer id for sequences", producer)
        if answer is None:
            continue
        for step, epoch, sequence, count in [
            ("starts at 5", 0, 5, 1),
            ("starts at 5, again", 0, 5, 1),
            ("starts at 0", 0, 0, 2),
            ("the same again", 0, 0, 2),
            ("the same with fewer", 0, 0, 1),
            ("goes on", 0, 6, 2),
            ("goes on from 2", 0, 2, 1),
            ("again, overlapping", 0, 1, 2),
            ("a gap", 0, 20, 1),
            ("a new epoch with a gap", 1, 5, 1),
            ("a new epoch", 1, 0, 1),
            ("the old epoch", 0, 8, 1),
            ("the old epoch, again", 0, 0, 2),
            *((f"number {index}", 1, index, 1) for index in range(1, 8)),
            ("one of the last five again", 1, 4, 1),
            ("one before the last five again", 1, 1, 1),
        ]:
            data = batch(count, producer_id=answer.producer_id, producer_epoch=epoch, base_sequence=sequence)
            play.ask(f"sequence: {step}", produce("sequences", data, ids=play.ids), version)
    _describe_producers(play)


def await_producer_ids(play: Play) -> InitProducerIdRequest:
    """Wait until there is a block of producer ids; return a request for one of them."""
    producer = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60000)
    play.wait_for("a block of producer ids", producer, lambda answer: answer.error_code == 0)
    return producer


def _describe_producers(play: Play) -> None:
    Topic = DescribeProducersRequest.TopicRequest
    for version in play.versions(DescribeProducersRequest):
        for step, topics in [
            ("of a topic", [Topic(name="sequences", partition_indexes=[0])]),
            ("of a topic without any", [Topic(name="two", partition_indexes=[1, 0])]),
            ("of an unknown topic", [Topic(name="no-such-topic", partition_indexes=[0])]),
            ("of an unknown partition", [Topic(name="two", partition_indexes=[0, 9])]),
            ("of no partition", [Topic(name="two", partition_indexes=[])]),
            ("of nothing", []),
        ]:
            play.ask(f"producers {step}", DescribeProducersRequest(topics=topics), version)
