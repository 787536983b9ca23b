"""The loads: what one broker does with each, in figures.

produce, fetch   through librdkafka (confluent-kafka), a number of records that is the same for every broker
round_trips, pipelined, commits, large_fetches   prepared requests over one plain socket: next to nothing for the client

What must hold: every record that a load sends is stored when it ends, or it fails. Connections are made before a clock
starts. CPU time is that of the broker's process.
"""

from __future__ import annotations

import random
import statistics
import time
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.broker.brokers import Broker
from bench.broker.raw import (
    Raw,
    Topics,
    commit_frame,
    committed,
    fetch_frame,
    produce_frame,
    wait_for_coordinator,
)
from bench.broker.rounds import Figures
from minibroker.log.build import build_batch
from minibroker.log.records import Record

WORDS = (
    "order",
    "customer",
    "amount",
    "status",
    "created",
    "shipped",
    "warehouse",
    "basket",
    "currency",
    "EUR",
    "open",
)
TIMEOUT_SECONDS = 60.0
CONSUMED_AT_ONCE = 10_000
SMALL_BYTES = 100
LARGE_BYTES = 1 << 20
WARM_UP_REQUESTS = 200
DELIVERIES_WARM_UP = 20
PAUSE_SECONDS = 0.01  # between records that are delivered one by one

# librdkafka would otherwise send metrics to the one broker that takes them.
CLIENT = {"enable.metrics.push": False}


class Load(NamedTuple):
    """What records are like and how they are sent."""

    record_bytes: int
    partitions: int
    codec: str
    acks: str

    @property
    def topic(self) -> str:
        return f"load-{self.record_bytes}-{self.partitions}-{self.codec}-{self.acks}"

    @property
    def size(self) -> str:
        return "1 KiB" if self.record_bytes == 1024 else f"{self.record_bytes} B"

    def __str__(self) -> str:
        return f"{self.size}, {self.partitions} partition{'s' * (self.partitions > 1)}, {self.codec}, acks {self.acks}"


def values(record_bytes: int, count: int = 1000) -> list[bytes]:
    """Return the same texts in every run: like JSON, and as compressible as that is."""
    draw = random.Random(record_bytes)
    made = []
    for _ in range(count):
        text = f'{{"id":{draw.randrange(1 << 40)}'
        while len(text) < record_bytes:
            text += f',"{draw.choice(WORDS)}":"{draw.choice(WORDS)}-{draw.randrange(1 << 24)}"'
        made.append(text[: record_bytes - 1].encode() + b"}")
    return made


def produce(broker: Broker, load: Load, count: int) -> Figures:
    """Send records as fast as librdkafka can, until all are acknowledged."""
    failures: list[KafkaError] = []

    def note(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    settings = {"acks": load.acks, "compression.type": load.codec, "linger.ms": 5, "delivery.report.only.error": True}
    producer = Producer({"bootstrap.servers": broker.address, **CLIENT, **settings})
    messages = [{"value": value} for value in values(load.record_bytes)]
    before = stored(broker, load)
    for partition in range(load.partitions):
        producer.produce(load.topic, messages[0]["value"], partition=partition, on_delivery=note)
    producer.flush(TIMEOUT_SECONDS)

    cpu, start = broker.cpu_seconds(), time.perf_counter()
    left = count
    while left:
        chunk = messages[:left]
        taken = producer.produce_batch(load.topic, chunk, on_delivery=note)
        left -= taken
        if taken < len(chunk):  # its queue is full
            for each in chunk:
                each.pop("_error", None)
            producer.poll(0.002)
    unsent = producer.flush(TIMEOUT_SECONDS)
    seconds, cpu = time.perf_counter() - start, broker.cpu_seconds() - cpu

    added = stored(broker, load) - before
    if failures or unsent or added != count + load.partitions:
        raise RuntimeError(f"{added} stored of {count + load.partitions}, {unsent} not sent, {failures[:1]}")
    return {"records_s": count / seconds, "cpu_s_per_million": cpu / count * 1e6}


def fetch(broker: Broker, load: Load, count: int) -> Figures:
    """Read records from the beginning as fast as librdkafka can; fewer where the broker has kept fewer."""
    with Raw(broker.address) as raw:
        ends = Topics(raw).ends(load.topic, load.partitions)
    count = min(count, sum(end - start for start, end in ends))
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            **CLIENT,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.min.messages": 1_000_000,
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.list_topics(load.topic, TIMEOUT_SECONDS)
    cpu, start = broker.cpu_seconds(), time.perf_counter()
    consumer.assign([TopicPartition(load.topic, number, first) for number, (first, _) in enumerate(ends)])
    left = count
    while left:
        got = consumer.consume(min(left, CONSUMED_AT_ONCE), timeout=TIMEOUT_SECONDS)
        errors = [each.error() for each in got if each.error()]
        if errors or not got:
            raise RuntimeError(f"{left} of {count} records did not come: {errors[:1]}")
        left -= len(got)
    seconds, cpu = time.perf_counter() - start, broker.cpu_seconds() - cpu
    consumer.close()
    return {"records_s": count / seconds, "cpu_s_per_million": cpu / count * 1e6}


def round_trips(broker: Broker, topic: str, count: int) -> Figures:
    """Produce one small record a request, each after the answer to the one before."""
    frame = produce_frame(topic, batch(SMALL_BYTES, 1))
    with Raw(broker.address) as raw:
        first = Topics(raw).ends(topic, 1)[0][1]
        raw.round_trips(frame, WARM_UP_REQUESTS)
        cpu = broker.cpu_seconds()
        took = raw.round_trips(frame, count)
        cpu = broker.cpu_seconds() - cpu
        check_stored(raw, topic, first, WARM_UP_REQUESTS + count)
    centiles = statistics.quantiles(took, n=100)
    return {"p50_us": centiles[49] * 1e6, "p99_us": centiles[98] * 1e6, "cpu_us": cpu / count * 1e6}


def deliveries(broker: Broker, topic: str, count: int) -> Figures:
    """Produce one small record after the other, and see how long each takes to a consumer of librdkafka that waits."""
    frame = produce_frame(topic, batch(SMALL_BYTES, 1))
    consumer = Consumer({"bootstrap.servers": broker.address, **CLIENT, "group.id": "bench"})
    took = []
    with Raw(broker.address) as raw:
        (_, end), *_ = Topics(raw).ends(topic, 1)
        consumer.assign([TopicPartition(topic, 0, end)])
        for number in range(DELIVERIES_WARM_UP + count):
            time.sleep(PAUSE_SECONDS)  # its next fetch waits by then
            start = time.perf_counter()
            raw.round_trips(frame, 1)
            got = consumer.poll(TIMEOUT_SECONDS)
            if got is None or got.error():
                raise RuntimeError(f"record {number} did not come: {got and got.error()}")
            took.append(time.perf_counter() - start)
    consumer.close()
    centiles = statistics.quantiles(took[DELIVERIES_WARM_UP:], n=100)
    return {"p50_ms": centiles[49] * 1e3, "p99_ms": centiles[98] * 1e3}


def pipelined(broker: Broker, topic: str, seconds: float, in_flight: int = 64) -> Figures:
    """Produce one small record a request, many under way on one connection."""
    frame = produce_frame(topic, batch(SMALL_BYTES, 1))
    with Raw(broker.address) as raw:
        first = Topics(raw).ends(topic, 1)[0][1]
        raw.round_trips(frame, WARM_UP_REQUESTS)
        cpu = broker.cpu_seconds()
        run = raw.pipeline([frame], in_flight, seconds)
        cpu = broker.cpu_seconds() - cpu
        check_stored(raw, topic, first, WARM_UP_REQUESTS + run.requests)
    return {"requests_s": run.requests / run.seconds, "cpu_us": cpu / run.requests * 1e6}


def commits(broker: Broker, topic: str, seconds: float, in_flight: int = 64) -> Figures:
    """Commit one offset a request for a group that nobody is in, many under way on one connection."""
    group = "commits"
    frames = [commit_frame(topic, group, offset) for offset in range(in_flight)]
    with Raw(broker.address) as raw:
        wait_for_coordinator(raw, topic, group)
        raw.round_trips(frames[0], WARM_UP_REQUESTS)
        cpu = broker.cpu_seconds()
        run = raw.pipeline(frames, in_flight, seconds)
        cpu = broker.cpu_seconds() - cpu
        found, last = committed(raw, topic, group), (run.requests - 1) % in_flight
    if found != last:
        raise RuntimeError(f"{found} is committed, and {last} was the last to be")
    return {"requests_s": run.requests / run.seconds, "cpu_us": cpu / run.requests * 1e6}


def batches(broker: Broker, topic: str, records: int, seconds: float, in_flight: int = 5) -> Figures:
    """Produce batches of so many small records, with as many requests under way as producers have by default."""
    frame = produce_frame(topic, batch(SMALL_BYTES, records))
    with Raw(broker.address) as raw:
        raw.pipeline([frame], in_flight, seconds / 10)
        first = Topics(raw).ends(topic, 1)[0][1]
        cpu = broker.cpu_seconds()
        run = raw.pipeline([frame], in_flight, seconds)
        cpu = broker.cpu_seconds() - cpu
        check_stored(raw, topic, first, run.requests * records)
    return {
        "records_s": run.requests * records / run.seconds,
        "cpu_us": cpu / run.requests * 1e6,
        "requests": run.requests,
    }


LARGE_RECORDS = 970  # of 1 KiB, framed: just below the 1,048,588 bytes that a batch may have


def fill_large(broker: Broker, topic: str, batches: int) -> None:
    """Append batches of 1 MiB."""
    frame = produce_frame(topic, batch(1024, LARGE_RECORDS))
    with Raw(broker.address) as raw:
        first = Topics(raw).ends(topic, 1)[0][1]
        raw.round_trips(frame, batches)
        check_stored(raw, topic, first, batches * LARGE_RECORDS)


def large_fetches(broker: Broker, topic: str, seconds: float, in_flight: int) -> Figures:
    """Fetch all the batches of 1 MiB in turn, one a request."""
    with Raw(broker.address) as raw:
        ((start, end),) = Topics(raw).ends(topic, 1)
        frames = [fetch_frame(topic, offset, LARGE_BYTES) for offset in range(start, end, LARGE_RECORDS)]
        raw.pipeline(frames, in_flight, 0.1)
        cpu = broker.cpu_seconds()
        run = raw.pipeline(frames, in_flight, seconds)
        cpu = broker.cpu_seconds() - cpu
    if run.received_bytes < run.requests * LARGE_RECORDS * 1024:
        raise RuntimeError(f"{run.received_bytes} bytes in {run.requests} answers are too few")
    return {"mb_s": run.received_bytes / run.seconds / 1e6, "cpu_s_per_gb": cpu / run.received_bytes * 1e9}


def batch(record_bytes: int, count: int) -> bytes:
    now_ms = int(time.time() * 1000)
    return build_batch(2, [Record(None, value, (), now_ms) for value in values(record_bytes, count)])


def stored(broker: Broker, load: Load) -> int:
    with Raw(broker.address) as raw:
        return sum(end for _, end in Topics(raw).ends(load.topic, load.partitions))


def check_stored(raw: Raw, topic: str, first: int, count: int) -> None:
    """All the answers may have been errors: what counts is where the log ends now."""
    added = Topics(raw).ends(topic, 1)[0][1] - first
    if added != count:
        raise RuntimeError(f"{added} records stored of {count}")
