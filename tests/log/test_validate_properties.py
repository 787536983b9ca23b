"""Random batches, spoilt at random: stored or refused as an oracle says that knows Kafka's rules and no shortcuts."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from minibroker.errors import KafkaError
from minibroker.log.batches import batches
from minibroker.log.formats import HEADER_BYTES
from tests.log.random_produce import LEADER_EPOCH, NEXT_OFFSET, NOW_MS, Sent, sent
from tests.log.record_oracle import Stored, outcome
from tests.log.test_validate import WAYS, Way

CASES, PARTS = 3_000, 5


def stored(case: Sent, *, writable: bool, way: Way) -> bytes:
    data = bytearray(case.data) if writable else case.data
    done = way(data, case.settings, next_offset=NEXT_OFFSET, leader_epoch=LEADER_EPOCH, now_ms=NOW_MS, partition="t-0")
    return b"".join(done.chunks)


@WAYS
@pytest.mark.parametrize("part", range(PARTS))
def test_a_batch_is_taken_if_and_only_if_kafka_takes_it(part: int, way: Way) -> None:
    seen: Counter[str] = Counter()
    for seed in range(part, CASES, PARTS):
        case = sent(Random(seed))
        wanted = outcome(case)
        try:
            done = stored(case, writable=seed % 2 == 0, way=way)
        except KafkaError as refused:
            assert refused.code == wanted, (seed, refused)
            seen[refused.code.name] += 1
            continue
        assert isinstance(wanted, Stored), (seed, wanted)
        (batch,) = batches(done, strict=True)
        batch.check_crc()
        assert (batch.attributes, batch.max_timestamp) == (wanted.attributes, wanted.max_timestamp), seed
        assert (batch.base_offset, batch.partition_leader_epoch) == (NEXT_OFFSET, LEADER_EPOCH), seed
        (was,) = batches(case.data)
        assert (batch.count, batch.last_offset) == (was.count, NEXT_OFFSET + was.count - 1), seed
        if not wanted.is_rebuilt:
            assert done[HEADER_BYTES:] == case.data[HEADER_BYTES:], seed
        seen["rebuilt" if wanted.is_rebuilt else "in place"] += 1
    kinds = ("in place", "rebuilt", "INVALID_RECORD", "INVALID_TIMESTAMP", "CORRUPT_MESSAGE", "UNKNOWN_SERVER_ERROR")
    assert all(seen[kind] > 3 for kind in kinds), seen
