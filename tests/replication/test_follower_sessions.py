"""How leaders feed their followers and followers follow, in clusters in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.metadata_in_cluster import ClusterMetadata
from minibroker.errors import Error, KafkaError, StorageError
from minibroker.event_kinds import Append
from minibroker.lessons.running import check
from minibroker.lessons.scenario import parse_scenario
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.replication import fetcher as following
from minibroker.replication.follower_sessions import SessionPartition
from minibroker.replication.leader import LeaderState
from minibroker.replication.replica import Replica
from minibroker.reporter import Reporter
from tests.cluster import test_cluster
from tests.cluster.virtual import TOPIC, Lab, in_cluster
from tests.planting import planted
from tests.simulation import test_cluster_runs

from . import test_exploring, test_leader
from .bugs import BUGS

pytestmark = pytest.mark.outside


class Said(Reporter):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def append(replica: Replica, *values: bytes) -> None:
    """Append a batch at a leader."""
    data = build_batch(2, [Record(None, value, (), 1_700_000_000_000) for value in values])
    replica.append(bytearray(data), now_ms=1_700_000_000_000, steady_ms=0)


def leader_of(lab: Lab, topic: str = TOPIC) -> Replica:
    leader = lab.cluster.leader(topic, 0)
    assert leader is not None
    return leader


def delete_records(replica: Replica, offset: int) -> None:
    replica.log.advance_log_start(offset)
    replica.log_start_moved("somebody asked for it")


def test_a_replica_that_is_being_added_is_not_waited_for() -> None:
    check(
        parse_scenario("""# It has never had everything
    start 2 brokers
    topic orders replicas=1
    produce orders-0 "a"

    hold answer of=2
    reassign orders-0 to 1,2
    produce orders-0 "b" acks=all
    ----
    ack b1->lesson orders-0 acks=-1 offset=1
    state: orders-0 b1 leo=2 hw=2
    state: orders-0 b2 leo=0
""")
    )


def test_where_consumers_read_from_followers_a_high_watermark_is_told_at_once() -> None:
    check(
        parse_scenario("""# Also to the follower whose fetch has moved it
    start 2 brokers racks=east,west
    topic orders replicas=1,2
    produce orders-0 "a" acks=all
    ----
    hw b2 orders-0 0->1
    state: orders-0 b2 leo=1 hw=1
""")
    )


@pytest.mark.parametrize("what", ["the disk fails", "it leads no longer", "it leads in another epoch"])
def test_a_follower_that_waits_is_answered_when(what: str) -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, assignments=[[1, 2]])
        await cluster.waits.in_sync()
        await lab.world.clock.sleep(100)  # its fetch is there
        leader = leader_of(lab)
        waiting = [
            each for waiter in leader.waiters if isinstance(each := getattr(waiter, "__self__", None), SessionPartition)
        ]
        assert [fed.session.news for fed in waiting] == [{}]
        if what == "the disk fails":
            leader.log.fail(StorageError("no disk"))
        elif what == "it leads no longer":
            leader.leave()
        else:
            leader.lead(leader.leader_epoch + 1)
        (fed,) = waiting
        assert fed.key in fed.session.news

    in_cluster(main, brokers=2)


def test_a_fetcher_that_is_stopped_while_it_gives_up_a_call_stays_stopped() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        await cluster.waits.in_sync()
        replication = cluster.nodes[2].replication
        assert replication is not None
        fetcher = replication.fetchers.fetchers[1]
        await lab.world.clock.sleep(100)  # its fetch waits for something new
        fetcher.go()  # a partition has come
        fetcher.stop()
        await lab.world.clock.sleep(100)
        assert fetcher._task is not None
        assert fetcher._task.done()

    in_cluster(main)


def test_a_large_batch_is_replicated_while_another_partition_is_busy() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        for topic in ("busy", "large"):
            cluster.create_topic(topic, assignments=[[1, 2]])
        await cluster.waits.in_sync()
        for _ in range(200):
            append(leader_of(lab, "busy"), b"x" * 300)
        append(leader_of(lab, "large"), b"x" * 3000)
        lab.heard.clear()
        await cluster.waits.high_watermark("large", 0, 1)
        followed = [event.topic for event in lab.heard if isinstance(event, Append) and event.broker == 2]
        assert followed.index("large") <= 3, followed

    in_cluster(main, brokers=2, settings={"replica.fetch.max.bytes": "1000"})


def test_every_partition_gets_its_turn_where_an_answer_has_room_for_one() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        topics = [f"t{number}" for number in range(5)]
        for topic in topics:
            cluster.create_topic(topic, assignments=[[1, 2]])
        await cluster.waits.in_sync()
        for topic in topics:
            for _ in range(20):
                append(leader_of(lab, topic), b"x" * 300)
        lab.heard.clear()
        for topic in topics:
            await cluster.waits.high_watermark(topic, 0, 20)
        followed = [event.topic for event in lab.heard if isinstance(event, Append) and event.broker == 2]
        for turn in range(1, 15):
            assert len(set(followed[5 * turn : 5 * turn + 5])) == 5, followed

    settings = {"replica.fetch.max.bytes": "400", "replica.fetch.response.max.bytes": "400"}
    in_cluster(main, brokers=2, settings=settings)


def copy_of(lab: Lab, broker: int) -> tuple[int, int, bytes]:
    """Return what a replica has: where it starts and ends for readers, and its bytes."""
    replica = lab.cluster.replica(TOPIC, 0, broker)
    assert replica is not None
    log = replica.log
    return (
        log.log_start_offset,
        log.log_end_offset,
        b"".join(bytes(each.view(0, each.size_bytes)) for each in log.segments),
    )


@pytest.mark.parametrize("is_lossy", [False, True])
def test_a_replica_begins_with_the_batch_of_which_the_first_records_are_deleted(is_lossy: bool) -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, assignments=[[1]])
        await cluster.waits.in_sync()
        leader = leader_of(lab)
        append(leader, *[b"value %d" % number for number in range(10)])
        delete_records(leader, 5)
        cluster.reassign(TOPIC, 0, [1, 2])
        await cluster.waits.isr(TOPIC, 0, [1, 2], timeout=5)
        assert copy_of(lab, 2) == copy_of(lab, 1)
        assert copy_of(lab, 2)[:2] == (5, 10)
        await cluster.kill(2, lossy=is_lossy)
        append(leader, b"one more")
        await cluster.start(2)
        await cluster.waits.isr(TOPIC, 0, [1, 2], timeout=20)
        assert copy_of(lab, 2) == copy_of(lab, 1)

    in_cluster(main, brokers=2)


def test_a_replica_that_was_away_while_records_were_deleted_within_a_batch_comes_back() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, assignments=[[1, 2]])
        await cluster.waits.in_sync()
        leader = leader_of(lab)
        append(leader, *[b"early"] * 10)
        await cluster.waits.high_watermark(TOPIC, 0, 10)
        await cluster.stop(2)
        await cluster.waits.isr(TOPIC, 0, [1])
        append(leader, *[b"late"] * 10)
        delete_records(leader, 15)
        await cluster.start(2)
        await cluster.waits.isr(TOPIC, 0, [1, 2], timeout=5)
        follower = cluster.replica(TOPIC, 0, 2)
        assert follower is not None
        assert (follower.log.log_start_offset, follower.log.log_end_offset) == (15, 20)
        assert follower.log.segments[0].base_offset == 10
        assert await lab.send(b"and on") == [20]

    in_cluster(main, brokers=2)


@pytest.mark.pure
def test_what_cannot_be_followed_is_said_and_said_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Said()

    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, assignments=[[1, 2]])
        await cluster.waits.in_sync()
        follower = cluster.replica(TOPIC, 0, 2)
        assert follower is not None

        def refuse(*_: object, **__: object) -> int:
            raise KafkaError(Error.CORRUPT_MESSAGE, "it does not fit")

        monkeypatch.setattr(follower.log, "append_as_follower", refuse)
        append(leader_of(lab), b"a")
        await lab.world.clock.sleep(100_000)
        lines = [line for line in said.lines if "cannot follow" in line]
        assert len(lines) == 3  # after 4, 16 and 64 seconds
        assert f"broker 2 cannot follow broker 1 in {TOPIC}-0" in lines[0]
        assert "it does not fit" in lines[0]
        monkeypatch.undo()
        await cluster.waits.high_watermark(TOPIC, 0, 1, broker=2)

    in_cluster(main, brokers=2, reporter=said)


@pytest.mark.pure
def test_an_error_of_our_own_at_one_partition_does_not_end_replication(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Said()

    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        for topic in (TOPIC, "other"):
            cluster.create_topic(topic, assignments=[[1, 2]])
        await cluster.waits.in_sync()
        follower = cluster.replica(TOPIC, 0, 2)
        assert follower is not None

        def break_down(*_: object, **__: object) -> int:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(follower.log, "append_as_follower", break_down)
        append(leader_of(lab), b"a")
        append(leader_of(lab, "other"), b"b")
        await cluster.waits.high_watermark("other", 0, 1)
        await lab.world.clock.sleep(3_000)
        assert sum("a bug" in line for line in said.lines) == 1
        assert "please report it" in said.lines[0]
        monkeypatch.undo()
        await cluster.waits.high_watermark(TOPIC, 0, 1)

    in_cluster(main, brokers=2, reporter=said)


def test_an_error_of_our_own_in_a_fetch_does_not_end_replication(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Said()

    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, assignments=[[1, 2]])
        await cluster.waits.in_sync()

        def break_down(*_: object) -> None:
            raise ZeroDivisionError("a bug")

        with monkeypatch.context() as broken:
            broken.setattr(following.Fetcher, "_take", break_down)
            append(leader_of(lab), b"a")
            await lab.world.clock.sleep(3_000)
        await cluster.waits.high_watermark(TOPIC, 0, 1)
        assert sum("a bug" in line for line in said.lines) == 1

    in_cluster(main, brokers=2, reporter=said)


def test_a_follower_whose_session_is_refused_asks_once_at_once_and_then_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(lab: Lab) -> None:
        cluster, asked_ms = lab.cluster, []
        cluster.create_topic(TOPIC, assignments=[[1, 2]])
        await cluster.waits.in_sync()

        async def refuse(*_: object) -> FetchResponse:
            asked_ms.append(lab.world.clock.now_ms())
            return FetchResponse(error_code=Error.FETCH_SESSION_ID_NOT_FOUND, session_id=0, responses=[])

        with monkeypatch.context() as refused:
            refused.setattr(following.Fetcher, "_ask", refuse)
            append(leader_of(lab), b"a")
            await lab.world.clock.sleep(2_500)
        assert [each - asked_ms[0] for each in asked_ms] == [0, 0, 1000, 2000]
        await cluster.waits.high_watermark(TOPIC, 0, 1)

    in_cluster(main, brokers=2)


def test_an_error_of_our_own_in_an_answer_about_the_isr_ends_no_proposal(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Said()

    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, assignments=[[1, 2]])
        await cluster.waits.in_sync()

        def break_down(*_: object, **__: object) -> None:
            raise ZeroDivisionError("a bug")

        with monkeypatch.context() as broken:
            broken.setattr(LeaderState, "alter_answered", break_down)
            cluster.links.cut(1, 2)
            append(leader_of(lab), b"a")
            await lab.world.clock.sleep(60_000)
        await cluster.waits.isr(TOPIC, 0, [1])
        await cluster.waits.high_watermark(TOPIC, 0, 1)
        cluster.links.heal()
        await cluster.waits.isr(TOPIC, 0, [1, 2])
        assert said.lines
        assert all("a bug" in line for line in said.lines)

    in_cluster(main, brokers=2, reporter=said)


def test_an_error_of_our_own_in_a_heartbeat_fences_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Said()

    async def main(lab: Lab) -> None:
        def break_down(*_: object) -> None:
            raise ZeroDivisionError("a bug")

        with monkeypatch.context() as broken:
            broken.setattr(ClusterMetadata, "_beat", break_down)
            await lab.world.clock.sleep(3_000)
        await lab.world.clock.sleep(20_000)
        assert lab.lines("broker") == []
        assert sum("a bug" in line for line in said.lines) == 3  # one for each broker

    in_cluster(main, reporter=said)


@pytest.mark.parametrize("place", ["apply", "follow"])
def test_an_error_of_our_own_at_a_change_of_the_metadata_hides_no_other(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Said()

    async def main(lab: Lab) -> None:
        cluster = lab.cluster

        def break_down(*_: object, **__: object) -> None:
            raise ZeroDivisionError("a bug")

        node = cluster.nodes[2]
        with monkeypatch.context() as broken:
            broken.setattr(node.metadata.image if place == "apply" else node.metadata, place, break_down)
            cluster.create_topic("lost", assignments=[[1, 2]])
            await lab.world.clock.sleep(3_000)
        assert any("a bug" in line for line in said.lines)
        cluster.create_topic(TOPIC, assignments=[[1, 2]])
        await lab.world.clock.sleep(3_000)
        append(leader_of(lab), b"a")
        await cluster.waits.high_watermark(TOPIC, 0, 1)

    in_cluster(main, brokers=2, reporter=said)


class SessionByHand:
    """A fetch session of broker 2 with broker 1, request by request: its own fetcher has stopped."""

    def __init__(self, lab: Lab):
        leading, following = lab.cluster.nodes[1].replication, lab.cluster.nodes[2].replication
        assert leading is not None
        assert following is not None
        following.fetchers.stop()
        self.leader = leader_of(lab)
        self.broker_epoch = lab.cluster.nodes[2].metadata.broker_epoch
        self.sessions = leading.follower_sessions
        self.id = 0

    @classmethod
    async def opened(cls, lab: Lab) -> SessionByHand:
        lab.cluster.create_topic(TOPIC, assignments=[[1, 2]])
        await lab.cluster.waits.in_sync()
        return cls(lab)

    def fetch(
        self, session_epoch: int, offset: int | None = None, *, leader_epoch: int | None = None, forgets: bool = False
    ) -> FetchResponse:
        """Ask; offset: names the partition, where the follower's log ends; forgets: asks for it no more."""
        topic = FetchRequest.FetchTopic(topic_id=self.leader.topic_id, partitions=[])
        if offset is not None:
            epochs = {
                "current_leader_epoch": self.leader.leader_epoch if leader_epoch is None else leader_epoch,
                "last_fetched_epoch": self.leader.leader_epoch if offset else -1,
            }
            partition = FetchRequest.FetchTopic.FetchPartition(
                partition=0, fetch_offset=offset, log_start_offset=0, partition_max_bytes=1 << 20, **epochs
            )
            topic.partitions.append(partition)
        answer = self.sessions.fetch(
            FetchRequest(
                replica_state=FetchRequest.ReplicaState(replica_id=2, replica_epoch=self.broker_epoch),
                max_wait_ms=0,
                min_bytes=1,
                session_id=self.id,
                session_epoch=session_epoch,
                topics=[topic],
                forgotten_topics_data=[
                    FetchRequest.ForgottenTopic(topic_id=topic.topic_id, partitions=[0] if forgets else [])
                ],
            )
        )
        assert isinstance(answer, FetchResponse)
        self.id = answer.session_id or self.id
        return answer

    def sent(self, *request: int) -> int:
        """Ask; return how many bytes of records came."""
        answer = self.fetch(*request)
        return sum(len(each.records or b"") for topic in answer.responses for each in topic.partitions)


def test_a_session_refuses_a_request_whose_epoch_is_not_due() -> None:
    async def main(lab: Lab) -> None:
        session = await SessionByHand.opened(lab)
        codes = [session.fetch(epoch).error_code for epoch in (0, 1, 1, 3, 2)]
        refused = Error.INVALID_FETCH_SESSION_EPOCH
        assert codes == [Error.NONE, Error.NONE, refused, refused, Error.NONE]

    in_cluster(main, brokers=2)


def test_a_session_sends_again_what_no_request_has_confirmed() -> None:
    async def main(lab: Lab) -> None:
        session = await SessionByHand.opened(lab)
        append(session.leader, b"a")
        size_bytes = session.sent(0, 0)
        assert size_bytes > 0
        assert session.sent(1) == size_bytes  # the answer has been lost: the follower is where it was
        assert session.sent(2, 1) == 0
        assert session.sent(3) == 0

    in_cluster(main, brokers=2)


def test_a_session_refuses_again_until_the_follower_has_heard_of_it() -> None:
    async def main(lab: Lab) -> None:
        session = await SessionByHand.opened(lab)
        ahead = session.leader.leader_epoch + 1

        def codes(session_epoch: int, offset: int | None = None, **more: Any) -> list[int]:
            answer = session.fetch(session_epoch, offset, **more)
            return [each.error_code for topic in answer.responses for each in topic.partitions if each.error_code]

        refused = [Error.UNKNOWN_LEADER_EPOCH]
        assert codes(0, 0, leader_epoch=ahead) == refused
        assert codes(1) == refused  # the answer has been lost, or given up
        assert codes(2, forgets=True) == codes(3) == []
        assert codes(4, 0, leader_epoch=ahead) == refused
        assert codes(5, 0) == codes(6) == []

    in_cluster(main, brokers=2)


# Bugs that no schedule has shown, and the test that each must fail.
FAILED_BY = {
    "any-session-epoch": test_a_session_refuses_a_request_whose_epoch_is_not_due,
    "joining-is-not-waited-for": test_leader.test_a_replica_that_is_about_to_join_is_waited_for_as_long_as_it_may_lag,
    "never-looks-again": test_cluster.test_replicas_move_and_leave_nothing_behind,
    "refused-counts-as-heard": test_a_session_refuses_again_until_the_follower_has_heard_of_it,
    "sent-counts-as-received": test_a_session_sends_again_what_no_request_has_confirmed,
}


@pytest.mark.parametrize("bug", FAILED_BY)
def test_a_planted_bug_fails_the_test_of_its_rule(bug: str) -> None:
    with planted(bug), pytest.raises((AssertionError, TimeoutError)):
        FAILED_BY[bug]()


def test_every_planted_bug_of_replication_is_looked_for() -> None:
    found = {*FAILED_BY, *test_exploring.BUDGETS, *test_exploring.RARE_BUDGETS, *test_cluster_runs.BUDGETS}
    assert found == {*BUGS, "anybody-leads"}  # which is the controller's
