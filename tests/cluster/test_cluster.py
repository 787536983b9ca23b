"""Several brokers replicate, elect, and come to agree again: in virtual time, so that minutes take no time."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from random import Random

import pytest

from minibroker.client import Admin, NewTopic
from minibroker.client import Cluster as Client
from minibroker.cluster.nodes import RUNNING, NoSuchBroker
from minibroker.errors import Error, KafkaError, StorageError
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.replication.network import CONTROLLER
from minibroker.replication.replica import Replica
from minibroker.simulation.disk import SimulatedStorage
from tests.server.running import Said

from .virtual import TOPIC, Lab, in_cluster


def test_what_is_acknowledged_is_on_every_replica() -> None:
    async def main(lab: Lab) -> None:
        lab.cluster.create_topic(TOPIC, 1)
        assert await lab.send(b"a", b"b", b"c") == [0, 1, 2]
        assert {end for end, _ in lab.ends().values()} == {3}
        assert lab.ends()[1] == (3, 3)

    in_cluster(main)


def test_followers_learn_of_the_high_watermark_with_their_next_answer() -> None:
    async def main(lab: Lab) -> None:
        lab.cluster.create_topic(TOPIC, 1)
        await lab.send(b"a")
        assert sorted(lab.ends().values()) != [(1, 1)] * 3
        await lab.world.clock.sleep(501)  # replica.fetch.wait.max.ms
        assert sorted(lab.ends().values()) == [(1, 1)] * 3

    in_cluster(main)


def test_a_killed_leader_is_followed_by_one_that_has_everything() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        await lab.send(b"a", b"b")
        leader = cluster.partition(TOPIC, 0).leader
        await cluster.kill(leader)
        assert await cluster.waits.leader(TOPIC, other_than=leader) != leader
        assert await lab.send(b"c") == [2]
        await cluster.start(leader)
        assert sorted(await cluster.waits.isr(TOPIC)) == [1, 2, 3]
        await cluster.waits.in_sync()
        assert {end for end, _ in lab.ends().values()} == {3}

    in_cluster(main)


def test_without_notice_the_controller_waits_for_a_session_to_expire() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        await cluster.waits.in_sync()
        killed_ms = lab.world.clock.now_ms()
        await cluster.kill(1, notice=False)
        await cluster.waits.leader(TOPIC, other_than=1)
        assert 7000 <= lab.world.clock.now_ms() - killed_ms <= 9100

    in_cluster(main)


def test_a_leader_that_only_had_a_record_loses_it_with_itself() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        await cluster.waits.in_sync()
        for other in (2, 3):
            cluster.links.cut(1, other)
        assert await lab.send(b"only here", acks=1) == [0]
        await cluster.kill(1)
        cluster.links.heal()
        assert await lab.send(b"instead") == [0]
        await cluster.start(1)
        await cluster.waits.in_sync()
        truncated = lab.lines("truncate")
        assert truncated == ["truncate b1 orders-0 from=1 to=0"]
        assert lab.lines("loss") == []  # it had never been committed
        assert lab.ends()[1] == (1, 1)

    in_cluster(main)


def test_too_few_in_sync_refuse_acks_all_and_take_acks_1() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1, min_insync_replicas="2")
        await cluster.waits.in_sync()
        await cluster.kill(2)
        await cluster.kill(3)
        await cluster.waits.isr(TOPIC, brokers=[1])
        with pytest.raises(KafkaError) as caught:
            await lab.send(b"a")
        assert caught.value.code == Error.NOT_ENOUGH_REPLICAS
        assert await lab.send(b"b", acks=1) == [0]
        assert lab.ends()[1] == (1, 0)  # nobody else has it, so it is not committed
        await cluster.start(2)
        await cluster.waits.high_watermark(TOPIC, offset=1)

    in_cluster(main)


def test_a_broker_that_hangs_is_fenced_and_comes_back() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        await cluster.waits.in_sync()
        cluster.pause(1)
        await cluster.waits.leader(TOPIC, other_than=1, timeout=20)
        await lab.send(b"a")
        cluster.resume(1)
        await cluster.waits.isr(TOPIC)
        await cluster.waits.in_sync()
        assert "broker b1 fenced" in lab.lines("broker")

    in_cluster(main)


def test_a_leader_that_is_cut_off_acknowledges_nothing_that_is_lost() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1, min_insync_replicas="2")
        await cluster.waits.in_sync()
        for other in (2, 3, CONTROLLER):
            cluster.links.cut(1, other)
        with pytest.raises(KafkaError):
            await lab.send(b"a", timeout_ms=3000)  # only 1 leads, as far as it knows
        await cluster.waits.leader(TOPIC, other_than=1, timeout=20)
        assert cluster.nodes[1].replicas[TOPIC, 0].is_leader
        assert cluster.nodes[1].replicas[TOPIC, 0].high_watermark == 0
        cluster.links.heal()
        await cluster.waits.isr(TOPIC, timeout=60)
        await cluster.waits.in_sync()

    in_cluster(main)


def test_a_lagging_follower_leaves_the_isr_and_comes_back_when_it_has_everything() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        await cluster.waits.in_sync()
        cluster.links.cut(1, 3)
        await lab.send(b"a", timeout_ms=60_000)  # until 3 is out
        assert cluster.partition(TOPIC, 0).isr == [1, 2]
        cluster.links.heal()
        await cluster.waits.isr(TOPIC)
        isr = [event for event in lab.heard if event.kind == "isr"]
        assert [event.line for event in isr] == ["isr orders-0 1,2,3->1,2", "isr orders-0 1,2->1,2,3"]
        assert isr[0].sentence.endswith("because broker 3 has not been caught up for more than 5000 ms.")
        assert isr[1].sentence.endswith("because broker 3 has everything up to 1, and the high watermark is 1.")

    in_cluster(main, settings={"replica.lag.time.max.ms": "5000"})


def test_an_idle_follower_stays_in_the_isr_when_the_leader_is_written_to_again() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        await lab.send(b"a")
        await lab.world.clock.sleep(14_990)  # the next look at who lags comes at 15 s
        cluster.links.delay(1, 2, 30)
        await lab.send(*[b"b"] * 20)
        assert lab.lines("isr") == []

    in_cluster(main)


def test_replicas_move_and_leave_nothing_behind() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, assignments=[[1, 2]])
        await lab.send(b"a", b"b")
        cluster.reassign(TOPIC, 0, [3, 4])
        await cluster.waits.isr(TOPIC, brokers=[3, 4])
        assert cluster.partition(TOPIC, 0).replicas == [3, 4]
        assert await lab.send(b"c") == [2]
        await cluster.waits.in_sync()
        assert sorted(lab.ends()) == [3, 4]
        assert not cluster.storages[1].exists(f"{TOPIC}-0")

    in_cluster(main, brokers=4)


@pytest.mark.setting("leader.imbalance.check.interval.seconds")
def test_the_preferred_leader_gets_its_partition_back() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        await cluster.waits.in_sync()
        cluster.move_leader(TOPIC, 0, 2)
        assert await cluster.waits.leader(TOPIC, broker=2) == 2
        cluster.elect(TOPIC)
        assert await cluster.waits.leader(TOPIC, broker=1) == 1
        with pytest.raises(KafkaError) as caught:
            cluster.elect(TOPIC)
        assert caught.value.code == Error.ELECTION_NOT_NEEDED
        cluster.move_leader(TOPIC, 0, 3)
        await cluster.waits.leader(TOPIC, broker=3)
        await cluster.waits.leader(TOPIC, broker=1, timeout=61)  # by itself, in time

    in_cluster(main, settings={"leader.imbalance.check.interval.seconds": "60"})


def test_a_stop_in_order_moves_the_leaders_first() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        await cluster.waits.in_sync()
        begun_ms = lab.world.clock.now_ms()
        await cluster.stop(1)
        assert lab.world.clock.now_ms() - begun_ms < 100
        assert cluster.partition(TOPIC, 0).leader == 2
        await cluster.start(1)
        await cluster.waits.isr(TOPIC)

    in_cluster(main)


def test_records_are_served_while_there_is_no_controller() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        await lab.send(b"a")
        await cluster.kill(CONTROLLER)
        assert await lab.send(b"b") == [1]
        with pytest.raises(NoSuchBroker, match="the controller is killed"):
            cluster.elect(TOPIC)
        await cluster.start(CONTROLLER)
        cluster.move_leader(TOPIC, 0, 2)
        await cluster.waits.leader(TOPIC, broker=2)
        assert await lab.send(b"c") == [2]

    in_cluster(main)


def test_a_broker_begins_with_a_snapshot_where_the_metadata_log_begins_later() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 2)
        await lab.send(b"a")
        log = cluster.controller.log
        log.write_snapshot(now_ms=lab.world.clock.now_ms())
        log.log.roll()
        log.log.advance_log_start(log.log_end_offset)  # as Kafka does when it has a snapshot and grows old
        cluster.create_topic("later", 1)
        await cluster.kill(3)
        await cluster.start(3)
        await cluster.waits.in_sync()
        assert set(cluster.nodes[3].image.topics) == {TOPIC, "later"}
        assert cluster.nodes[3].image.features == cluster.controller.image.features

    in_cluster(main)


def test_what_fell_out_of_the_leaders_log_is_not_asked_for_for_ever() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        await cluster.waits.in_sync()
        await cluster.kill(3)
        await lab.send(b"a", b"b", b"c")
        async with Client(cluster.bootstrap_servers, clock=lab.world.clock) as client:
            await Admin(client).delete_records({(TOPIC, 0): 2})
        await cluster.start(3)
        await cluster.waits.isr(TOPIC)
        await cluster.waits.in_sync()
        replica = cluster.replica(TOPIC, 0, 3)
        assert replica is not None
        assert replica.log.log_start_offset == 2
        assert replica.log.log_end_offset == 3

    in_cluster(main)


def test_any_broker_takes_what_the_controller_decides() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        async with Client(cluster.nodes[3].bootstrap_servers, clock=lab.world.clock) as client:
            connection = await client.connection(3)
            asked = [MetadataRequest.MetadataRequestTopic(name="made-by-asking")]
            answer = await connection.call(MetadataRequest(topics=asked, allow_auto_topic_creation=True))
            assert [len(topic.partitions) for topic in answer.topics] == [1]
            await Admin(client).create_topics([NewTopic("wanted", 2, 3, {})])
            assert cluster.nodes[3].image.topics["wanted"].partitions[1].replicas == [3, 1, 2]
            await Admin(client).delete_topics(["wanted"])
        for node in cluster.nodes.values():
            assert "made-by-asking" in node.image.topics
        assert cluster.partition("made-by-asking", 0).replicas == [1, 2, 3]
        cluster.alter_topic("made-by-asking", min_insync_replicas=2)
        await lab.world.clock.sleep(1)
        assert cluster.nodes[1].replicas["made-by-asking", 0].min_in_sync == 2
        cluster.delete_topic("made-by-asking")
        await lab.world.clock.sleep(1)
        assert not any(node.replicas for node in cluster.nodes.values())

    in_cluster(main)


def test_a_broker_that_starts_again_has_the_settings_of_the_cluster() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        async with Client(cluster.nodes[1].bootstrap_servers, clock=lab.world.clock) as client:
            await Admin(client).alter_configs(
                {("broker", ""): {"log.retention.ms": "12345"}, ("broker", "2"): {"message.max.bytes": "54321"}}
            )
        for start in (1, 2):
            await lab.world.clock.sleep(1)
            for broker, node in cluster.nodes.items():
                settings = node.replicas[TOPIC, 0].log.settings
                found = settings.retention_ms, settings.validation.max_message_bytes
                assert found == (12345, 54321 if broker == 2 else 1_048_588), f"start {start} of broker {broker}"
            if start == 1:
                for broker in cluster.broker_ids:
                    await cluster.stop(broker)
                    await cluster.start(broker)
                    await cluster.waits.in_sync()

    in_cluster(main)


def test_producer_ids_come_from_different_blocks_on_each_broker() -> None:
    async def main(lab: Lab) -> None:
        found = []
        for node in lab.cluster.nodes.values():
            found += [await node.producer_ids.later(), await node.producer_ids.later()]
        assert len(set(found)) == 6

    in_cluster(main)


@pytest.mark.setting("replica.selector.class")
def test_consumers_read_from_a_replica_in_their_rack() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        await lab.send(b"a")
        async with Client(cluster.bootstrap_servers, clock=lab.world.clock) as client:
            request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[], rack_id="b")
            request.topics = [
                FetchRequest.FetchTopic(
                    topic=TOPIC,
                    topic_id=cluster.controller.image.topics[TOPIC].id,
                    partitions=[
                        FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
                    ],
                )
            ]
            leader, follower = await client.connection(1), await client.connection(2)
            answer = (await leader.call(request, 13)).responses[0].partitions[0]
            assert answer.preferred_read_replica == 2
            assert not answer.records
            await cluster.waits.high_watermark(TOPIC, broker=2, offset=1)
            near = (await follower.call(request, 13)).responses[0].partitions[0]
            assert near.preferred_read_replica == -1
            assert near.records

    in_cluster(main, racks=("a", "b", "c"))


def test_who_asks_the_wrong_broker_is_told_who_leads_and_where() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, assignments=[[1]])
        await cluster.waits.in_sync()
        batch = build_batch(2, [Record(None, b"a", (), 1000)])
        topic_id = cluster.controller.image.topics[TOPIC].id
        data = ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=batch)
        produce = ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[ProduceRequest.TopicProduceData(name=TOPIC, topic_id=topic_id, partition_data=[data])],
        )
        wanted = FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        topic = FetchRequest.FetchTopic(topic=TOPIC, topic_id=topic_id, partitions=[wanted])
        fetch = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic])
        async with Client(cluster.bootstrap_servers, clock=lab.world.clock) as client:
            connection = await client.connection(2)
            for version in (10, 13):
                produced = await connection.call(produce, version)
                answer = produced.responses[0].partition_responses[0]
                assert answer.error_code == Error.NOT_LEADER_OR_FOLLOWER
                assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (1, 0)
                assert [(each.node_id, each.port) for each in produced.node_endpoints] == [
                    (1, cluster.nodes[1].servers[0].port)
                ]
            fetched = await connection.call(fetch, 16)
            answer = fetched.responses[0].partitions[0]
            assert answer.error_code == Error.NOT_LEADER_OR_FOLLOWER
            assert answer.current_leader.leader_id == 1
            assert [each.node_id for each in fetched.node_endpoints] == [1]

    in_cluster(main)


def test_a_broker_whose_disk_is_full_ends_and_others_lead() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        await lab.send(b"a")
        cluster.disks.fill(1)
        assert await lab.send(b"b") == [1]
        assert cluster.states[1] == "killed"
        assert cluster.partition(TOPIC, 0).leader == 2
        assert any("No space left on device" in event.sentence for event in lab.heard if event.kind == "broker")
        cluster.disks.heal(1)
        await cluster.start(1)
        await cluster.waits.in_sync()

    in_cluster(main)


def test_a_broker_that_has_no_room_for_a_new_partition_follows_when_there_is_some() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.disks.fill(3)
        cluster.create_topic(TOPIC, 1)
        await cluster.waits.isr(TOPIC, 0, [1, 2])
        assert await lab.send(b"a") == [0]
        cluster.disks.heal(3)
        await cluster.waits.in_sync()
        assert cluster.states[3] == "running"

    in_cluster(main)


def test_a_controller_whose_disk_fails_a_sync_ends_and_starts_from_what_is_there() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic("before", assignments=[[1, 2, 3]])
        await cluster.waits.leader("before", 0, 1)
        storage = cluster.storages[CONTROLLER]
        assert isinstance(storage, SimulatedStorage)
        storage.fail(errno.EIO, doing="sync", path=f"__cluster_metadata-0/{0:020d}.log")
        with pytest.raises(StorageError):
            cluster.create_topic("after", assignments=[[1, 2, 3]])
        await lab.world.clock.sleep(1000)
        assert cluster.states[CONTROLLER] == "killed"
        assert any("controller ends" in line and "Input/output error" in line for line in reporter.lines)
        assert await lab.send(b"a", topic="before") == [0]  # whoever leads goes on
        cluster.storages[CONTROLLER] = storage.crashed(Random(1))
        await cluster.start(CONTROLLER)
        assert list(cluster.controller.image.topics) == ["before"]
        cluster.create_topic("after", assignments=[[3, 2, 1]])
        await cluster.waits.leader("after", 0, 3)

    reporter = Said()
    in_cluster(main, reporter=reporter)


def test_a_stop_on_a_full_disk_is_a_stop_and_the_next_start_is_as_after_a_crash() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        await lab.send(b"a")
        cluster.disks.fill(2)
        await cluster.stop(2)
        assert cluster.states[2] == "stopped"
        assert not cluster.storages[2].exists(".kafka_cleanshutdown")
        cluster.disks.heal(2)
        await cluster.start(2)
        await cluster.waits.in_sync()

    in_cluster(main)


def test_a_slow_disk_makes_a_slow_acknowledgement() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        await lab.send(b"a")
        cluster.disks.slow(1, 2000)
        begun_ms = lab.world.clock.now_ms()
        await lab.send(b"b", timeout_ms=10_000)
        assert lab.world.clock.now_ms() - begun_ms >= 2000
        cluster.disks.heal()

    in_cluster(main)


def test_a_power_loss_takes_what_was_not_flushed_and_the_others_have_it() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        await lab.send(b"a", b"b", b"c")
        await cluster.kill(2, lossy=True)
        await cluster.start(2)
        await cluster.waits.isr(TOPIC)
        await cluster.waits.in_sync()
        assert {end for end, _ in lab.ends().values()} == {3}

    in_cluster(main)


def test_a_broker_loses_its_power_though_its_disk_cannot_be_read() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        await lab.send(b"a", b"b", b"c")
        follower = next(each for each in (1, 2, 3) if each != cluster.partition(TOPIC, 0).leader)
        storage = cluster.storages[follower]
        assert isinstance(storage, SimulatedStorage)
        storage.fail(errno.EIO, doing="read", times=1000)
        await cluster.kill(follower, lossy=True)
        await cluster.start(follower)
        await cluster.waits.in_sync()
        assert {end for end, _ in lab.ends().values()} == {3}

    in_cluster(main)


def test_a_broker_cannot_start_while_it_is_being_killed() -> None:
    """Its listeners are still its own: the start would meet an address in use."""

    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        killing = asyncio.get_running_loop().create_task(cluster.kill(2))
        while cluster.states[2] == RUNNING:
            await asyncio.sleep(0)
        with pytest.raises(NoSuchBroker, match="broker 2 is stopping"):
            await cluster.start(2)
        await killing
        await cluster.start(2)
        assert cluster.states[2] == RUNNING

    in_cluster(main)


def test_a_broker_whose_kill_failed_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        kill = cluster.nodes[2].kill

        async def fail() -> None:
            await kill()
            raise OSError(errno.EIO, "no more")

        monkeypatch.setattr(cluster.nodes[2], "kill", fail)
        with pytest.raises(OSError, match="no more"):
            await cluster.kill(2)
        await cluster.start(2)
        assert cluster.states[2] == RUNNING

    in_cluster(main)


def test_verbs_say_what_is_wrong() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        with pytest.raises(NoSuchBroker, match=r"there is no broker 7: there are controller, 1, 2, 3"):
            await cluster.kill(7)
        with pytest.raises(NoSuchBroker, match="broker 1 is running; it would have to be stopped or killed"):
            await cluster.start(1)
        with pytest.raises(TimeoutError, match=r"not within 0.5 s: there is no topic 'no-such'"):
            await cluster.waits.leader("no-such", timeout=0.5)

    in_cluster(main)


@pytest.mark.parametrize("gone", [(), (2, 3)])
def test_the_last_broker_alive_waits_for_nobody_when_it_stops(gone: tuple[int, ...]) -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 2)
        await cluster.waits.in_sync()
        for broker in gone:
            await cluster.kill(broker)
        begun_ms = lab.world.clock.steady_ms()
        await cluster.stop(1)
        assert lab.world.clock.steady_ms() - begun_ms <= 50
        assert cluster.controller.image.brokers[1].fenced

    in_cluster(main, brokers=1 + len(gone))


@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000, 86_400_000 * 3650])
def test_a_clock_that_is_set_fences_nobody_and_throws_nobody_out(jump_ms: int) -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 3)
        await cluster.waits.in_sync()
        await lab.world.clock.sleep(5_000)
        lab.heard.clear()
        for process in (cluster.controller, *cluster.nodes.values()):
            process.clock.skew_ms += jump_ms
        await lab.send(b"a", b"b")
        await lab.world.clock.sleep(60_000)
        assert lab.lines("broker", "isr", "leader") == []

    in_cluster(main)


@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000])
def test_who_dies_is_fenced_in_time_whatever_the_clock_is_set_to(jump_ms: int) -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, assignments=[[3, 1, 2]])
        await cluster.waits.in_sync()
        for process in (cluster.controller, *cluster.nodes.values()):
            process.clock.skew_ms += jump_ms
        await cluster.kill(3, notice=False)
        begun_ms = lab.world.clock.steady_ms()
        await cluster.waits.leader(TOPIC, 0, other_than=3, timeout=60)
        session_ms = cluster.controller.config["broker.session.timeout.ms"]
        assert lab.world.clock.steady_ms() - begun_ms <= session_ms + 100

    in_cluster(main)


@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000])
def test_who_lags_falls_out_in_time_whatever_the_clock_is_set_to(jump_ms: int) -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, assignments=[[1, 2, 3]])
        await cluster.waits.in_sync()
        cluster.links.cut(1, 3)
        for process in (cluster.controller, *cluster.nodes.values()):
            process.clock.skew_ms += jump_ms
        begun_ms = lab.world.clock.steady_ms()
        await lab.send(b"a", acks=1)
        await cluster.waits.isr(TOPIC, 0, [1, 2], timeout=60)
        passed_ms = lab.world.clock.steady_ms() - begun_ms
        assert 20_000 <= passed_ms <= 46_000  # replica.lag.time.max.ms, and half of it until somebody looks

    in_cluster(main)


@pytest.mark.pure
@pytest.mark.parametrize("count", [10, 200])
def test_acks_of_many_partitions_are_asked_for_a_few_times_each(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[int] = Counter()
    replicated = Replica.replicated

    def counting(replica: Replica, end_offset: int, leader_epoch: int) -> Error | None:
        asked[replica.partition] += 1
        return replicated(replica, end_offset, leader_epoch)

    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, assignments=[[1, 2]] * count)
        await cluster.waits.in_sync(timeout=60)
        data = build_batch(2, [Record(None, b"value", (), 1_700_000_000_000)])
        Topic = ProduceRequest.TopicProduceData
        rows = [Topic.PartitionProduceData(index=number, records=data) for number in range(count)]
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[Topic(name=TOPIC, partition_data=rows)])
        async with Client(cluster.bootstrap_servers, clock=lab.world.clock) as client:
            connection = await client.connection(1)
            answer = await connection.call(request, 9)
        assert {row.error_code for topic in answer.responses for row in topic.partition_responses} == {0}

    monkeypatch.setattr(Replica, "replicated", counting)
    in_cluster(main, brokers=2, settings={"log.index.size.max.bytes": "4096"})
    assert len(asked) == count
    assert max(asked.values()) <= 4
