"""What a client knows of a cluster, and how patient it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from minibroker.client import Admin, Cluster, ConnectionLost, Groups, NewTopic, SomeFailed, Transactions
from minibroker.errors import Error, KafkaError
from minibroker.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from minibroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.client.scripted import CLOSE, SILENCE, ScriptedBroker, TestClock, metadata

pytestmark = pytest.mark.outside


async def test_metadata_is_asked_for_once_and_again_when_forgotten() -> None:
    async with ScriptedBroker() as broker, Cluster(f"127.0.0.1:{broker.port}") as cluster:
        for _ in range(3):
            assert (await cluster.leader_of("orders", 0)).leader_id == 1
        assert len(broker.asked(MetadataRequest)) == 1
        cluster.forget("orders")
        await cluster.leader_of("orders", 0)
        assert len(broker.asked(MetadataRequest)) == 2
        assert (cluster.cluster_id, cluster.nodes[1].port) == ("scripted", broker.port)


async def test_many_who_ask_at_once_share_one_connection() -> None:
    async with ScriptedBroker() as broker, Cluster([("127.0.0.1", broker.port)]) as cluster:
        await asyncio.gather(*(cluster.connection() for _ in range(20)))
        await cluster.connection(1)
        assert broker.connection_count == 1
        assert await cluster.connection(1, lane="another") is not await cluster.connection(1)
        assert broker.connection_count == 2


async def test_a_connection_that_broke_is_made_anew() -> None:
    async with ScriptedBroker() as broker, Cluster([("127.0.0.1", broker.port)]) as cluster:
        first = await cluster.connection()
        await first.close()
        assert not (await cluster.connection()).closed
        assert broker.connection_count == 2


async def test_the_next_bootstrap_server_is_tried_if_one_is_not_there() -> None:
    async with ScriptedBroker() as gone:
        pass
    async with ScriptedBroker() as broker, Cluster(f"127.0.0.1:{gone.port},127.0.0.1:{broker.port}") as cluster:
        assert (await cluster.topic("orders")).name == "orders"


async def test_nobody_there_is_told_after_bounded_patience() -> None:
    async with ScriptedBroker() as gone:
        pass
    clock = TestClock()
    async with Cluster(f"127.0.0.1:{gone.port}", clock=clock, retry_count=8, retry_pause_ms=10) as cluster:
        with pytest.raises(ConnectionLost, match="no connection to"):
            await cluster.topic("orders")
    assert clock.slept == [10, 20, 40, 80, 160, 320, 640, 1000]


CALLS: dict[str, Callable[[Cluster], Awaitable[object]]] = {
    "controller": lambda cluster: Admin(cluster).create_topics(["orders"]),
    "leader": lambda cluster: Admin(cluster).describe_producers([("orders", 7)]),
    "offset": lambda cluster: Admin(cluster).list_offsets({("orders", 7): "latest"}),
    "marker": lambda cluster: Transactions(cluster).abort(("orders", 7), 1, 0),
    "coordinator": lambda cluster: Groups(cluster).find_coordinators(["group"]),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_patience_is_not_multiplied_where_a_call_needs_metadata_first(
    call: Callable[[Cluster], Awaitable[object]],
) -> None:
    def answer(request: MetadataRequest, version: int) -> object:
        """Hang up on whoever asks for brokers; there is no partition 7."""
        return metadata(broker.port, {"orders": 1}) if request.topics else CLOSE

    def coordinator(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
        """Name a broker that nobody knows yet."""
        row = FindCoordinatorResponse.Coordinator(
            key="group", node_id=2, host="127.0.0.1", port=broker.port, error_code=0, error_message=None
        )
        return FindCoordinatorResponse(coordinators=[row])

    broker = ScriptedBroker({MetadataRequest: answer, FindCoordinatorRequest: coordinator})
    clock = TestClock()
    async with broker, Cluster([("127.0.0.1", broker.port)], clock=clock, retry_count=3, retry_pause_ms=10) as cluster:
        with pytest.raises(KafkaError):
            await call(cluster)
    assert clock.slept == [10, 20, 40]
    assert len(broker.asked(MetadataRequest)) == 4


async def test_a_topic_that_is_being_created_is_waited_for() -> None:
    errors = [Error.LEADER_NOT_AVAILABLE, Error.UNKNOWN_TOPIC_OR_PARTITION]

    def answer(request: MetadataRequest, version: int) -> MetadataResponse:
        found = metadata(broker.port, {"orders": 1})
        if errors:
            found.topics[0].error_code = errors.pop()
        return found

    clock = TestClock()
    async with ScriptedBroker({MetadataRequest: answer}) as broker:
        async with Cluster([("127.0.0.1", broker.port)], clock=clock) as cluster:
            assert not (await cluster.topic("orders", create=True)).error
        assert [request.allow_auto_topic_creation for request in broker.asked(MetadataRequest)] == [True] * 3
    assert len(clock.slept) == 2


async def test_a_partition_without_leader_is_asked_for_until_there_is_one() -> None:
    leaders = [{0: -1}, {0: -1}, {0: 1}]

    def answer(request: MetadataRequest, version: int) -> MetadataResponse:
        return metadata(broker.port, {"orders": 2}, leaders.pop(0))

    async with (
        ScriptedBroker({MetadataRequest: answer}) as broker,
        Cluster([("127.0.0.1", broker.port)], clock=TestClock()) as cluster,
    ):
        assert (await cluster.leader_of("orders", 0)).leader_id == 1
    assert not leaders


async def test_what_will_not_pass_is_not_repeated() -> None:
    def answer(request: MetadataRequest, version: int) -> MetadataResponse:
        found = metadata(broker.port, {"bad name": 0})
        found.topics[0].error_code = Error.INVALID_TOPIC_EXCEPTION
        return found

    async with ScriptedBroker({MetadataRequest: answer}) as broker:
        async with Cluster([("127.0.0.1", broker.port)], clock=TestClock()) as cluster:
            with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION: bad name"):
                await cluster.topic("bad name")
        assert len(broker.asked(MetadataRequest)) == 1


async def test_a_broker_that_does_not_answer_in_time_loses_its_connection() -> None:
    clock = TestClock()
    async with (
        ScriptedBroker({CreateTopicsRequest: lambda request, version: SILENCE}) as broker,
        Cluster([("127.0.0.1", broker.port)], clock=clock, timeout_ms=100) as cluster,
    ):
        connection = await cluster.connection()
        call = asyncio.ensure_future(cluster.call(CreateTopicsRequest(topics=[])))
        await broker.wait_for_requests(CreateTopicsRequest, 1)
        clock.pass_time(100)
        with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
            await call
        assert connection.closed


async def test_a_call_about_many_tells_which_failed_and_which_did_not() -> None:
    Row = CreateTopicsResponse.CreatableTopicResult

    def answer(request: CreateTopicsRequest, version: int) -> CreateTopicsResponse:
        codes = {"old": Error.TOPIC_ALREADY_EXISTS, "new": Error.NONE}
        return CreateTopicsResponse(topics=[Row(name=t.name, error_code=codes[t.name]) for t in request.topics])

    async with (
        ScriptedBroker({CreateTopicsRequest: answer}) as broker,
        Cluster([("127.0.0.1", broker.port)]) as cluster,
    ):
        with pytest.raises(SomeFailed, match="old: TOPIC_ALREADY_EXISTS") as caught:
            await Admin(cluster).create_topics([NewTopic("old", 1, 1), "new"])
    assert caught.value.code == Error.TOPIC_ALREADY_EXISTS
    assert (list(caught.value.errors), list(caught.value.results)) == (["old"], ["new"])


@pytest.mark.parametrize("bootstrap", ["", "localhost", "localhost:x", []])
def test_what_is_no_address_is_refused(bootstrap: str) -> None:
    with pytest.raises(ValueError, match=r"host:port|no bootstrap"):
        Cluster(bootstrap)
