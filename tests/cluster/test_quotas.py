"""Quotas in a cluster: set at any broker they hold at each, and changes of topics are counted by the controller."""

from __future__ import annotations

from typing import Any

from minibroker.errors import Error
from minibroker.groups import OFFSETS_TOPIC
from minibroker.protocol.framing import decode_response, encode_request
from minibroker.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from minibroker.protocol.messages.create_partitions import CreatePartitionsRequest
from minibroker.protocol.messages.create_topics import CreateTopicsRequest
from minibroker.protocol.messages.delete_topics import DeleteTopicsRequest
from minibroker.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from tests.cluster.virtual import TOPIC, Lab, in_cluster
from tests.server.running import FedTransport, batch, produce

CLIENT_ID = "limited"


async def ask(lab: Lab, broker: int, request: Any, version: int) -> Any:
    """Ask a broker on a connection of its own: one that is throttled is muted."""
    transport = FedTransport(lab.cluster.nodes[broker])
    transport.feed(b"".join(encode_request(request, version, 1, CLIENT_ID)))
    while not transport.sent:
        await lab.world.clock.sleep(1)
    transport.close()
    return decode_response(bytes(transport.sent[4:]), request.api, version)[1]


async def limit(lab: Lab, broker: int, **limits: float) -> None:
    Entry = AlterClientQuotasRequest.EntryData
    entry = Entry(
        entity=[Entry.EntityData(entity_type="client-id", entity_name=CLIENT_ID)],
        ops=[Entry.OpData(key=key, value=value, remove=False) for key, value in limits.items()],
    )
    answer = await ask(lab, broker, AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
    assert answer.entries[0].error_code == Error.NONE
    await lab.world.clock.sleep(1000)  # until every broker has read of it


def new_topic(name: str, partitions: int) -> CreateTopicsRequest:
    Topic = CreateTopicsRequest.CreatableTopic
    asked = Topic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[asked], timeout_ms=1000)


def test_a_limit_that_one_broker_was_told_holds_at_each_for_itself() -> None:
    async def main(lab: Lab) -> None:
        lab.cluster.create_topic(TOPIC, assignments=[[1], [2]])
        await lab.cluster.waits.in_sync()
        await limit(lab, 1, producer_byte_rate=100.0)
        for broker in (1, 2):
            asked = produce(TOPIC, batch(bytes(5000)), partition=broker - 1)
            assert (await ask(lab, broker, asked, 9)).throttle_time_ms > 0
            told = await ask(lab, broker, DescribeClientQuotasRequest(components=[], strict=False), 1)
            assert told.entries[0].values[0].value == 100

    in_cluster(main, brokers=2)


def test_the_controller_counts_changes_of_topics_whichever_broker_is_asked() -> None:
    async def main(lab: Lab) -> None:
        await limit(lab, 1, controller_mutation_rate=0.1)
        answer = await ask(lab, 1, new_topic("a", 2), 6)
        assert answer.topics[0].error_code == Error.NONE
        answer = await ask(lab, 2, new_topic("b", 1), 6)
        assert answer.topics[0].error_code == Error.THROTTLING_QUOTA_EXCEEDED
        assert 7000 < answer.throttle_time_ms <= 9000
        answer = await ask(lab, 2, new_topic("b", 1), 5)
        assert answer.topics[0].error_code == Error.NONE
        assert answer.throttle_time_ms > 9000

    in_cluster(main, brokers=2)


def test_topics_that_a_broker_makes_for_a_client_count_at_the_controller() -> None:
    Wanted = MetadataRequest.MetadataRequestTopic

    async def main(lab: Lab) -> None:
        await limit(lab, 1, controller_mutation_rate=0.1)  # two at once, and then there is a debt
        codes = []
        for broker, name in ((1, "a"), (2, "b"), (2, "c"), (1, "d")):
            answer = await ask(lab, broker, MetadataRequest(topics=[Wanted(name=name)]), 9)
            codes.append(answer.topics[0].error_code)
        assert codes == [Error.NONE, Error.NONE, *[Error.UNKNOWN_TOPIC_OR_PARTITION] * 2]
        answer = await ask(lab, 2, new_topic("e", 1), 6)
        assert answer.topics[0].error_code == Error.THROTTLING_QUOTA_EXCEEDED
        # What brokers need themselves is nobody's.
        await ask(lab, 2, FindCoordinatorRequest(key_type=0, coordinator_keys=["group"]), 4)
        assert OFFSETS_TOPIC in lab.cluster.controller.image.topics

    in_cluster(main, brokers=2)


def test_the_controller_counts_what_is_deleted_and_added_through_any_broker() -> None:
    async def main(lab: Lab) -> None:
        lab.cluster.create_topic(TOPIC, assignments=[[1], [2], [1]])
        lab.cluster.create_topic("c", assignments=[[1]])
        await lab.cluster.waits.in_sync()
        await limit(lab, 1, controller_mutation_rate=0.1)
        gone = DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=1000)
        assert (await ask(lab, 1, gone, 5)).responses[0].error_code == Error.NONE
        assert (await ask(lab, 2, new_topic("b", 1), 6)).topics[0].error_code == Error.THROTTLING_QUOTA_EXCEEDED
        More = CreatePartitionsRequest.CreatePartitionsTopic
        more = CreatePartitionsRequest(
            topics=[More(name="c", count=3, assignments=None)], timeout_ms=1000, validate_only=False
        )
        for broker in (1, 2):
            answer = await ask(lab, broker, more, 3)
            assert answer.results[0].error_code == Error.THROTTLING_QUOTA_EXCEEDED
            assert answer.throttle_time_ms > 5000

    in_cluster(main, brokers=2)


def test_quotas_are_there_when_a_broker_starts_again() -> None:
    async def main(lab: Lab) -> None:
        lab.cluster.create_topic(TOPIC, assignments=[[2]])
        await lab.cluster.waits.in_sync()
        await limit(lab, 1, producer_byte_rate=100.0)
        await lab.cluster.kill(2)
        await lab.cluster.start(2)
        await lab.cluster.waits.in_sync()
        assert (await ask(lab, 2, produce(TOPIC, batch(bytes(5000))), 9)).throttle_time_ms > 0

    in_cluster(main, brokers=2)
