"""What a topic that is compacted refuses, in Kafka's words."""

from __future__ import annotations

import pytest

from minibroker.errors import Error
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from tests.server.running import connected, produce, running


@pytest.mark.parametrize("count", [1, 5_000])  # looked at in one go, and in pieces
async def test_a_record_without_a_key_is_refused_with_the_name_of_its_partition(count: int) -> None:
    async with running() as node, connected(node) as client:
        node.create_topic("t", 1, {"cleanup.policy": "compact"})
        records = [Record(None if index == count - 1 else b"k", b"v", (), 1_700_000_000_000) for index in range(count)]
        answer = await client.ask(produce("t", build_batch(2, records)), 9)
        (found,) = answer.responses[0].partition_responses
        assert found.error_code == Error.INVALID_RECORD
        assert [(each.batch_index, each.batch_index_error_message) for each in found.record_errors] == [
            (count - 1, "Compacted topic cannot accept message without key in topic partition t-0")
        ]
