"""The topic that everybody reads: produced into a broker over a plain socket, in batches made beforehand.

Values are 200 bytes of words and numbers, which compress about as JSON does; keys are drawn from 100,000. Batches are
as large as a busy producer's with its default batch.size.
"""

from __future__ import annotations

import time
from random import Random
from typing import Any

from bench.broker.raw import Raw, Topics
from minibroker.log.build import build_batch
from minibroker.log.compression import LZ4, NONE
from minibroker.log.records import Record
from minibroker.protocol import message

PARTITIONS = 4
VALUE_BYTES = 200
BATCH_RECORDS = 75  # 16 KiB
REQUEST_BATCHES = 16
KEYS = 100_000
CODECS = {"none": NONE, "lz4": LZ4}
WORDS = ("order", "customer", "amount", "EUR", "created", "2026", "shipped", "address", "items", "discount")


def values(chance: Random, count: int) -> list[bytes]:
    texts = [" ".join(chance.choice(WORDS) + str(chance.randrange(1000)) for _ in range(24)) for _ in range(count)]
    return [f"{text:.{VALUE_BYTES}}".ljust(VALUE_BYTES).encode() for text in texts]


def produce(address: str, topic: str, codec: str, records: int, partitions: int = PARTITIONS) -> int:
    """Produce about so many records, as many into each partition; return how many."""
    chance = Random(7)
    pool = values(chance, 997)
    start_ms = int(time.time() * 1000) - records  # younger than what retention removes
    batches_each = -(-records // (partitions * BATCH_RECORDS))
    with Raw(address) as raw:
        topics = Topics(raw)
        topics.create(topic, partitions)
        for partition in range(partitions):
            built = []
            for number in range(batches_each):
                first = number * BATCH_RECORDS
                rows = [
                    Record(b"key%05d" % chance.randrange(KEYS), chance.choice(pool), (), start_ms + first + each, each)
                    for each in range(BATCH_RECORDS)
                ]
                built.append(build_batch(2, rows, codec=CODECS[codec]))
            for batch in built:
                produce_batch(raw, topic, partition, batch)
        made = sum(end - begin for begin, end in topics.ends(topic, partitions))
    assert made == batches_each * BATCH_RECORDS * partitions
    return made


def produce_batch(raw: Raw, topic: str, partition: int, batch: bytes) -> None:
    """Produce one; a leader whose topic was just made may not know it yet."""
    data: Any = message("ProduceRequest").TopicProduceData  # type: ignore[attr-defined]
    told = [data(name=topic, partition_data=[data.PartitionProduceData(index=partition, records=batch)])]

    def attempt() -> int:
        answer = raw.ask("ProduceRequest", acks=-1, timeout_ms=30_000, topic_data=told)
        error: int = answer.responses[0].partition_responses[0].error_code
        return error

    Topics.retry(f"producing into {topic}-{partition}", attempt)
