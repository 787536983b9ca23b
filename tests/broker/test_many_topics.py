"""Many topics and partitions are made and deleted while others are served; what is too much is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import copy
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.broker import Node
from minibroker.errors import Error
from minibroker.log.storage import OsStorage
from minibroker.protocol.messages.api_versions import ApiVersionsRequest
from minibroker.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from minibroker.protocol.messages.create_partitions import CreatePartitionsRequest
from minibroker.protocol.messages.create_topics import CreateTopicsRequest
from minibroker.protocol.messages.delete_topics import DeleteTopicsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.stored.brokers import BrokerRegistrationChangeRecord
from tests.cluster.virtual import Lab, in_cluster
from tests.groups.test_growth import steps_of
from tests.server.running import Client, FedTransport, batch, connected, frame, produce, running, turns

OPENED_MAX = 8  # partitions in a turn of the loop
DECIDED_MAX = 500  # of which it is decided where they go
ENCODED_MAX = 1_000  # whose records are encoded
Wanted = CreateTopicsRequest.CreatableTopic
Config = Wanted.CreatableTopicConfig
CREATE, PING = (19, 7), (18, 0)


def creation(*topics: tuple[str, int], is_trial: bool = False, configs: dict[str, str] | None = None) -> Any:
    return CreateTopicsRequest(
        topics=[
            Wanted(
                name=name,
                num_partitions=count,
                replication_factor=1,
                assignments=[],
                configs=[Config(name=key, value=value) for key, value in (configs or {}).items()],
            )
            for name, count in topics
        ],
        timeout_ms=60_000,
        validate_only=is_trial,
    )


def deletion(*names: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=bytes(16)) for name in names], timeout_ms=0
    )


async def watched(node: Node, waiting: Any) -> tuple[Any, int, int]:
    """Return what comes of something, how many turns it took, and how many partitions one of them opened or let go."""
    task = asyncio.ensure_future(waiting)
    before, most, count = len(node.replicas), 0, 0
    while not task.done():
        await asyncio.sleep(0)
        most, before, count = max(most, len(node.replicas) - before), len(node.replicas), count + 1
    return await task, count, most


@pytest.mark.parametrize("topics", [[("wide", 500)], [(f"t{index}", 1) for index in range(500)]])
async def test_many_partitions_are_opened_while_others_are_served(topics: list[tuple[str, int]]) -> None:
    async with running() as node, connected(node) as client:
        other = FedTransport(node)
        answer, count, most = await watched(node, client.ask(creation(*topics), CREATE[1]))
        assert not any(each.error_code for each in answer.topics)
        assert len(node.replicas) == 500
        assert most <= OPENED_MAX
        assert count > 500 / OPENED_MAX
        other.feed(frame(ApiVersionsRequest(), 0))
        assert other.answers(PING)
        other.close()


async def test_partitions_added_to_a_topic_are_opened_while_others_are_served() -> None:
    async with running() as node, connected(node) as client:
        node.create_topic("t", 2)
        more = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=400, assignments=None)
        request = CreatePartitionsRequest(topics=[more], timeout_ms=0, validate_only=False)
        answer, _, most = await watched(node, client.ask(request, 3))
        assert answer.results[0].error_code == Error.NONE
        assert len(node.replicas) == 400
        assert most <= OPENED_MAX


async def test_topics_that_are_made_by_asking_are_made_while_others_are_served() -> None:
    names = [MetadataRequest.MetadataRequestTopic(name=f"t{index}") for index in range(300)]
    async with running() as node, connected(node) as client:
        answer, _, most = await watched(node, client.ask(MetadataRequest(topics=names), 9))
        assert [each.error_code for each in answer.topics] == [0] * 300
        assert len(node.replicas) == 300
        assert most <= OPENED_MAX


async def is_begun(node: Node, topic: str) -> None:
    while topic not in node.image.topics:
        await asyncio.sleep(0)
    assert not node.partitions.is_settled


async def test_a_partition_that_is_not_open_yet_is_led_but_not_here() -> None:
    async with running() as node, connected(node) as client, connected(node) as other:
        client.send(frame(creation(("wide", 300)), CREATE[1]))
        await is_begun(node, "wide")
        fed = FedTransport(node)
        fed.feed(frame(produce("wide", batch(b"a"), partition=299), 9))
        ((_, early),) = fed.answers((0, 9))
        assert early.responses[0].partition_responses[0].error_code == Error.NOT_LEADER_OR_FOLLOWER
        await client.answer(*CREATE)
        answer = await other.ask(produce("wide", batch(b"a"), partition=299), 9)
        assert answer.responses[0].partition_responses[0].error_code == Error.NONE
        fed.close()


async def test_a_topic_that_is_deleted_while_it_is_made_leaves_nothing(tmp_path: Path) -> None:
    async with running(storage=OsStorage(str(tmp_path))) as node, connected(node) as client, connected(node) as other:
        client.send(frame(creation(("wide", 200)), CREATE[1]))
        await is_begun(node, "wide")
        answer = await other.ask(deletion("wide"), 6)
        assert answer.responses[0].error_code == Error.NONE
        await client.answer(*CREATE)
        await node.partitions.settled()
        assert not node.replicas
        assert not list(tmp_path.glob("wide*"))


async def test_a_topic_of_the_name_of_one_that_goes_is_a_new_one(tmp_path: Path) -> None:
    async with running(storage=OsStorage(str(tmp_path))) as node, connected(node) as client:
        await client.ask(creation(("t", 100)), CREATE[1])
        await client.ask(produce("t", batch(b"old"), partition=99), 9)
        old_id = node.image.topics["t"].id
        client.send(frame(deletion("t"), 6) + frame(creation(("t", 100)), CREATE[1]))
        await client.answer(20, 6)
        await client.answer(*CREATE)
        assert node.image.topics["t"].id != old_id
        assert len(node.replicas) == 100
        assert node.replicas["t", 99].log.log_end_offset == 0
        assert node.partitions.is_settled
        assert sorted(each.name for each in tmp_path.glob("t-*")) == sorted(f"t-{index}" for index in range(100))


async def test_who_goes_away_does_not_leave_a_topic_half_open() -> None:
    async with running() as node:
        async with connected(node) as client:
            client.send(frame(creation(("wide", 300)), CREATE[1]))
            await is_begun(node, "wide")
            client.reset()
        await node.partitions.settled()
        assert len(node.replicas) == 300


async def test_a_stop_in_the_middle_leaves_what_the_metadata_say(tmp_path: Path) -> None:
    async with running(storage=OsStorage(str(tmp_path))) as node, connected(node) as client:
        await client.ask(creation(("old", 100)), CREATE[1])
        client.send(frame(deletion("old"), 6))
        await client.answer(20, 6)
        client.send(frame(creation(("new", 100)), CREATE[1]))
        await is_begun(node, "new")
    async with running(storage=OsStorage(str(tmp_path))) as node:
        assert {topic for topic, _ in node.replicas} == {"new"}
        assert len(node.replicas) == 100
        assert not [line for line in node.reporter.lines if "belongs to no topic" in line]  # type: ignore[attr-defined]


async def test_a_kill_in_the_middle_is_mended_by_the_next_start(tmp_path: Path) -> None:
    async with running(storage=OsStorage(str(tmp_path))) as node, connected(node) as client:
        client.send(frame(creation(("new", 100)), CREATE[1]))
        await is_begun(node, "new")
        await node.kill()
    async with running(storage=OsStorage(str(tmp_path))) as node:
        assert len(node.replicas) == 100


def test_brokers_of_a_cluster_open_many_partitions_in_shares() -> None:
    async def main(lab: Lab) -> None:
        nodes = [lab.cluster.nodes[broker] for broker in lab.cluster.broker_ids]
        opened, counts = [0], []  # in this turn of the loop, and in each that opened some

        def end_turn() -> None:
            counts.append(opened[0])
            opened[0] = 0

        def counted(opening: Any) -> Any:
            def act(*arguments: Any, **settings: Any) -> Any:
                if not opened[0]:
                    asyncio.get_running_loop().call_soon(end_turn)
                opened[0] += 1
                return opening(*arguments, **settings)

            return act

        for node in nodes:
            node.directory.opening = counted(node.directory.opening)  # type: ignore[method-assign]
        lab.cluster.create_topic("wide", 60, 3)
        while sum(len(node.replicas) for node in nodes) < 180:
            await lab.world.clock.sleep(1)
        assert sum(counts) == 180
        assert max(counts) <= OPENED_MAX * len(nodes)
        assert await lab.send(b"a", topic="wide") == [0]

    in_cluster(main)


# What is decided in pieces


class Made:
    """How many records are made by a function, in all and in one turn of the loop at most."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str = "minibroker.controller.controller.new_partition"):
        self.in_turn = self.in_turn_max = self.in_all = 0
        module, _, attribute = name.rpartition(".")
        make = getattr(import_module(module), attribute)

        def counted(*arguments: Any) -> Any:
            if not self.in_turn:
                asyncio.get_running_loop().call_soon(self.end_turn)
            self.in_turn += 1
            self.in_all += 1
            return make(*arguments)

        monkeypatch.setattr(name, counted)

    def end_turn(self) -> None:
        self.in_turn_max, self.in_turn = max(self.in_turn_max, self.in_turn), 0


def extension(topic: str, count: int, *, is_trial: bool = False) -> CreatePartitionsRequest:
    more = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=count, assignments=None)
    return CreatePartitionsRequest(topics=[more], timeout_ms=0, validate_only=is_trial)


@pytest.mark.slow
async def test_the_partitions_of_one_topic_are_decided_while_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as node, connected(node) as client:
        made = Made(monkeypatch)
        encoded = Made(monkeypatch, "minibroker.metadata.metadata_log.write_record")
        answer = await client.ask(creation(("wide", 2_000)), CREATE[1])
        assert answer.topics[0].error_code == 0
        assert answer.topics[0].num_partitions == 2_000
        more = await client.ask(extension("wide", 4_000), 3)
        assert more.results[0].error_code == 0
        assert len(node.replicas) == 4_000
        assert made.in_all == 4_000
        assert made.in_turn_max <= DECIDED_MAX
        assert encoded.in_all > 4_000
        assert encoded.in_turn_max <= ENCODED_MAX


async def test_a_trial_makes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as node, connected(node) as client:
        node.create_topic("t", 1)
        end_offset, places, made = node.metadata_log.log_end_offset, node.controller._next_place, Made(monkeypatch)
        answer = await client.ask(creation(("wide", 9_999), ("t", 1), is_trial=True), CREATE[1])
        told = [(each.error_code, each.num_partitions, each.replication_factor) for each in answer.topics]
        assert told == [(0, 9_999, 1), (Error.TOPIC_ALREADY_EXISTS, -1, -1)]
        assert any(answer.topics[0].topic_id)
        assert answer.topics[0].configs
        answer = await client.ask(extension("t", 9_999, is_trial=True), 3)
        assert answer.results[0].error_code == 0
        answer = await client.ask(extension("t", 1, is_trial=True), 3)
        assert answer.results[0].error_code == Error.INVALID_PARTITIONS
        assert (made.in_all, node.metadata_log.log_end_offset, node.controller._next_place) == (0, end_offset, places)


@pytest.mark.parametrize("other", ["wi.de", "wi_de"])
async def test_of_two_who_make_a_topic_at_once_one_is_told_that_it_is_there(other: str, tmp_path: Path) -> None:
    async with running(storage=OsStorage(str(tmp_path))) as node, connected(node) as client:
        fed = FedTransport(node)
        fed.feed(frame(creation(("wi.de", 500)), CREATE[1]))
        assert not node.image.topics  # it is being decided
        answer = await client.ask(creation((other, 3)), CREATE[1])
        assert answer.topics[0].error_code == 0
        await fed.idle()
        ((_, late),) = fed.answers(CREATE)
        expected = Error.TOPIC_ALREADY_EXISTS if other == "wi.de" else Error.INVALID_TOPIC_EXCEPTION
        assert late.topics[0].error_code == expected
        assert list(node.image.topics) == [other]
        assert len(node.replicas) == 3
        fed.close()


async def test_partitions_for_a_topic_that_is_deleted_meanwhile_are_not_made() -> None:
    async with running() as node, connected(node) as client:
        node.create_topic("t", 1)
        fed = FedTransport(node)
        fed.feed(frame(extension("t", 500), 3))
        assert len(node.image.topics["t"].partitions) == 1
        await client.ask(deletion("t"), 6)
        await client.ask(creation(("t", 600)), CREATE[1])
        await fed.idle()
        ((_, late),) = fed.answers((37, 3))
        assert late.results[0].error_code in (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.INVALID_PARTITIONS)
        await node.partitions.settled()
        assert len(node.replicas) in (0, 600)
        fed.close()


async def test_what_is_prepared_is_written_behind_what_came_meanwhile(tmp_path: Path) -> None:
    async with running(storage=OsStorage(str(tmp_path))) as node, connected(node) as client:
        fed = FedTransport(node)
        fed.feed(frame(creation(("wide", 500)), CREATE[1]))
        await client.ask(creation(("other", 3)), CREATE[1])
        await fed.idle()
        ((_, answer),) = fed.answers(CREATE)
        assert answer.topics[0].error_code == 0
        fed.close()
        assert list(node.image.topics) == ["other", "wide"]
        assert node.image.offset == node.metadata_log.log_end_offset - 1
    async with running(storage=OsStorage(str(tmp_path))) as node:
        assert {name: len(topic.partitions) for name, topic in node.image.topics.items()} == {"other": 3, "wide": 500}


def test_a_broker_that_is_fenced_meanwhile_leads_nothing_new() -> None:
    async def main(lab: Lab) -> None:
        controller = lab.cluster.controller
        wish = creation(("wide", 600))
        wish.topics[0].replication_factor = 3
        asked = asyncio.ensure_future(controller.answer(0, wish, CREATE[1]))
        await asyncio.sleep(0)
        assert "wide" not in controller.image.topics
        controller.lose(lab.cluster.broker_ids[0], "the test says so")
        assert controller.image.brokers[lab.cluster.broker_ids[0]].fenced
        answer = await asked
        assert answer.topics[0].error_code == 0
        leaders = {each.leader for each in controller.image.topics["wide"].partitions}
        assert leaders == set(lab.cluster.broker_ids[1:])

    in_cluster(main)


@pytest.mark.parametrize("replication_factor", [1, 3])
def test_a_broker_that_is_fenced_and_back_meanwhile_leaves_no_partition_behind(
    replication_factor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known of the brokers is the same before and after, and was not in between."""

    async def main(lab: Lab) -> None:
        controller, ids = lab.cluster.controller, lab.cluster.broker_ids
        made = Made(monkeypatch)
        wish = creation(("wide", -1))
        wish.topics[0].replication_factor = -1
        wish.topics[0].assignments = [
            Wanted.CreatableReplicaAssignment(
                partition_index=index, broker_ids=[ids[(index + each) % 3] for each in range(replication_factor)]
            )
            for index in range(700)
        ]
        asked = asyncio.ensure_future(controller.answer(0, wish, CREATE[1]))
        while not made.in_all:
            await asyncio.sleep(0)
        controller.lose(ids[0], "the test says so")
        assert controller.image.brokers[ids[0]].fenced
        placed = made.in_all
        while made.in_all == placed and not asked.done():
            await asyncio.sleep(0)
        assert placed < 700
        came = BrokerHeartbeatRequest(
            broker_id=ids[0],
            broker_epoch=controller.image.brokers[ids[0]].broker_epoch,
            current_metadata_offset=controller.log.log_end_offset - 1,
            want_fence=False,
            want_shut_down=False,
        )
        controller.answer(ids[0], came, 1)
        assert not controller.image.brokers[ids[0]].fenced
        answer = await asked
        if replication_factor == 1:  # there was nobody to lead some of them when it was their turn
            assert answer.topics[0].error_code == Error.INVALID_REPLICA_ASSIGNMENT
            assert "wide" not in controller.image.topics
        else:
            assert answer.topics[0].error_code == Error.NONE
            partitions = controller.image.topics["wide"].partitions
            assert [each.isr for each in partitions] == [each.replicas for each in partitions]
            assert len(partitions) == 700

    in_cluster(main)


MOVED = bytes(range(16))  # the only directory of a broker that had another


def cordoned(broker: Any) -> Any:
    return changed(broker, cordoned_log_dirs=broker.log_dirs)


def with_another_directory(broker: Any) -> Any:
    return changed(broker, log_dirs=[MOVED])


def changed(broker: Any, **what: Any) -> Any:
    return BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, **what)


def in_another_rack(broker: Any) -> Any:
    record = copy(broker)
    record.rack = "a"
    return record


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        (cordoned, lambda each: 3 not in each.replicas),
        (
            with_another_directory,
            lambda each: dict(zip(each.replicas, each.directories, strict=True)).get(3, MOVED) == MOVED,
        ),
        (in_another_rack, lambda each: 2 in each.replicas),  # of two racks, it is alone in its own
    ],
)
def test_what_is_changed_of_a_broker_meanwhile_counts(
    change: Callable[[Any], Any], holds: Callable[[Any], bool]
) -> None:
    async def main(lab: Lab) -> None:
        controller = lab.cluster.controller
        wish = creation(("wide", 600))
        wish.topics[0].replication_factor = 2
        asked = asyncio.ensure_future(controller.answer(0, wish, CREATE[1]))
        await asyncio.sleep(0)
        assert "wide" not in controller.image.topics
        controller.change([change(controller.image.brokers[3])], "the test says so")
        answer = await asked
        assert answer.topics[0].error_code == 0
        assert all(map(holds, controller.image.topics["wide"].partitions))

    in_cluster(main, racks=("a", "b", "b"))


# What is too much


@pytest.mark.parametrize("is_trial", [True, False])
async def test_more_than_ten_thousand_partitions_in_a_request_are_refused(is_trial: bool) -> None:
    request = creation(*((f"t{index}", 9_999) for index in range(300)), is_trial=is_trial)
    async with running() as node, connected(node) as client:
        answer = await client.ask(request, CREATE[1])
        assert {each.error_code for each in answer.topics} == {Error.POLICY_VIOLATION}
        assert answer.topics[0].error_message == "Excessively large number of partitions per request."
        assert not node.image.topics
        fits = await client.ask(creation(("a", 9_000), ("b", 1_000), is_trial=True), CREATE[1])
        assert [each.error_code for each in fits.topics] == [0, 0]


async def test_more_than_ten_thousand_new_partitions_in_a_request_are_refused() -> None:
    async with running() as node, connected(node) as client:
        for name in "abc":
            node.create_topic(name, 1)
        more = [
            CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=4_000, assignments=None) for name in "abc"
        ]
        answer = await client.ask(CreatePartitionsRequest(topics=more, timeout_ms=0, validate_only=False), 3)
        assert {each.error_code for each in answer.results} == {Error.POLICY_VIOLATION}
        assert len(node.replicas) == 3


async def test_asking_for_very_many_unknown_topics_makes_none() -> None:
    names = [MetadataRequest.MetadataRequestTopic(name=f"t{index}") for index in range(10_001)]
    async with running() as node, connected(node) as client:
        answer = await client.ask(MetadataRequest(topics=names), 9)
        assert {each.error_code for each in answer.topics} == {Error.UNKNOWN_TOPIC_OR_PARTITION}
        assert not node.image.topics


# Growth


CHANGES: dict[str, Callable[[Node, str], object]] = {
    "a name with dots": lambda node, name: node.create_topic(f"{name}.with.dots", 1),
    "a topic with settings": lambda node, name: node.create_topic(name, 1, {"retention.ms": "1", "segment.ms": "2"}),
    "settings": lambda node, name: node.change(node.controller.alter_configs(2, "t.1", {"retention.ms": name[1:]})),
    "another topic goes": lambda node, name: node.change(node.controller.delete_topic(name=f"t.{name[1:]}")),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_costs_the_same_among_many_topics(change: str) -> None:
    """Instructions are counted, not time: a thousand more topics add less than one for each."""
    async with running() as node:
        node.create_topic("warm", 1)
        counts = []
        for index in range(2_000):
            if index in (20, 1_020):
                CHANGES[change](node, f"x{index - 10}")
                counts.append(steps_of(lambda index=index: CHANGES[change](node, f"x{index - 5}")))  # type: ignore[misc]
            node.create_topic(f"t.{index}", 1)
        assert counts[1] < counts[0] + 500, counts


async def test_clients_can_be_told_by_the_answer_that_all_is_open() -> None:
    async with running() as node:
        clients: list[Client] = []
        async with connected(node) as one, connected(node) as two:
            clients += [one, two]
            for index, client in enumerate(clients):
                client.send(frame(creation((f"t{index}", 150)), CREATE[1]))
            for client in clients:
                await client.answer(*CREATE)
            await turns(1)
            assert len(node.replicas) == 300
