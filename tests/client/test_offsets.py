"""Offsets by time are asked for in numbers that brokers take for times."""

from __future__ import annotations

import pytest

from minibroker.client import AtTime, Cluster
from minibroker.client.offsets import EARLIEST, find_offsets
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tests.client.scripted import ScriptedBroker

pytestmark = pytest.mark.outside


@pytest.mark.parametrize(
    ("wanted", "asked"),
    [(AtTime(1), 1), (AtTime(0), 0), *((AtTime(time), EARLIEST) for time in range(-8, 0)), ("max", -3), (-4, -4)],
    ids=str,
)
async def test_a_time_before_1970_is_no_other_word(wanted: AtTime | str | int, asked: int) -> None:
    def answer(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        Row = ListOffsetsResponse.ListOffsetsTopicResponse
        partition = Row.ListOffsetsPartitionResponse(partition_index=0, error_code=0, timestamp=-1, offset=7)
        return ListOffsetsResponse(topics=[Row(name="orders", partitions=[partition])])

    async with (
        ScriptedBroker({ListOffsetsRequest: answer}) as broker,
        Cluster(f"127.0.0.1:{broker.port}") as cluster,
    ):
        await find_offsets(cluster, {("orders", 0): wanted})
        (request,) = broker.asked(ListOffsetsRequest)
    assert request.topics[0].partitions[0].timestamp == asked
