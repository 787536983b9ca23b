"""Consumer groups against Kafka's own classes, and what must hold however requests, losses and time interleave."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from minibroker.errors import Error, KafkaError
from minibroker.groups.consumer import ConsumerGroup
from minibroker.groups.describe import described
from minibroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from minibroker.stored.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from tests.groups.goldens import golden
from tests.groups.played import GROUP, MadeTopic, MadeTopics, Player, Settings, comparable

TOPIC = (7).to_bytes(16, "big")
Owned = ConsumerGroupHeartbeatRequest.TopicPartitions


@pytest.mark.parametrize("script", golden("consumer-groups"), ids=lambda script: f"{len(script)} steps")
def test_a_group_goes_the_way_it_goes_in_kafka(script: list[Any]) -> None:
    player = Player()
    for number, (step, theirs) in enumerate(script):
        ours = player.play(step)
        assert comparable(step, ours) == comparable(step, theirs), f"step {number}: {step}"


class Cluster:
    """One group over one topic, and shorthand for its requests."""

    def __init__(self, partitions: int = 3, **changed: Any):
        self.group = ConsumerGroup(GROUP)
        self.settings = Settings(**{"consumer.assignment.interval.ms": 0} | changed)
        self.now_ms = 1_000_000
        self.rows: list[Any] = []  # of the last operation
        self.log: list[Any] = []
        self.set_partitions(partitions)

    def set_partitions(self, count: int) -> None:
        self.topics = MadeTopics([MadeTopic("t", TOPIC, [[]] * count)], 1, 1)
        self.group.topics_changed(["t"])

    def take(self, rows: list[Any]) -> None:
        self.rows = rows
        self.log += rows
        for row in rows:
            self.group.apply(*row)

    def beat(self, member_id: str, epoch: int, owned: list[int] | None = None, **fields: Any) -> Any:
        if epoch == 0:
            fields = {"rebalance_timeout_ms": 9_000, "subscribed_topic_names": ["t"]} | fields
            owned = []
        if owned is not None:
            fields["topic_partitions"] = [Owned(topic_id=TOPIC, partitions=owned)] if owned else []
        rows, response = self.group.heartbeat(
            ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields),
            version=1,
            client_id="client",
            client_host="/127.0.0.1",
            now_ms=self.now_ms,
            topics=self.topics,
            config=self.settings,
            new_member_id=lambda: "made",
        )
        self.take(rows)
        return response

    def expire(self) -> None:
        while (due_ms := self.group.deadline_ms()) is not None and due_ms <= self.now_ms:
            self.take(self.group.expire(self.now_ms, topics=self.topics, config=self.settings))

    def loaded_again(self) -> ConsumerGroup:
        group = ConsumerGroup(GROUP)
        for row in self.log:
            group.apply(*row)
        return group


def partitions(response: ConsumerGroupHeartbeatResponse) -> list[int] | None:
    if response.assignment is None:
        return None
    return [partition for topic in response.assignment.topic_partitions for partition in topic.partitions]


def refusal(call: Any) -> tuple[Error, str]:
    with pytest.raises(KafkaError) as refused:
        call()
    return refused.value.code, refused.value.message


def test_a_partition_changes_hands_only_when_its_owner_says_that_it_let_go() -> None:
    cluster = Cluster()
    assert partitions(cluster.beat("a", 0)) == [0, 1, 2]
    assert cluster.group.state.name == "Stable"
    joined = cluster.beat("b", 0)
    assert (joined.member_epoch, partitions(joined)) == (3, [])
    assert cluster.group.state.name == "Reconciling"
    told = cluster.beat("a", 2, [0, 1, 2])
    assert (told.member_epoch, partitions(told)) == (2, [0, 1])
    assert partitions(cluster.beat("b", 3, [])) is None
    assert partitions(cluster.beat("a", 2)) is None  # it does not say what it owns: it may own all
    told = cluster.beat("a", 2, [0, 1])
    assert (told.member_epoch, partitions(told)) == (3, None)
    assert partitions(cluster.beat("b", 3)) == [2]
    assert cluster.group.state.name == "Stable"


def test_rows_of_a_first_join_come_in_the_order_of_kafka_and_of_a_leave_as_tombstones() -> None:
    cluster = Cluster()
    cluster.beat("a", 0)
    names = [type(key).__name__.removeprefix("ConsumerGroup").removesuffix("Key") for key, _ in cluster.rows]
    wanted = "MemberMetadata Metadata TargetAssignmentMember TargetAssignmentMetadata CurrentMemberAssignment"
    assert names == wanted.split()
    cluster.beat("a", -1)
    assert [value is None for _, value in cluster.rows] == [True, True, True, False, False]
    assert cluster.group.state.name == "Empty"
    assert cluster.group.deadline_ms() is None
    cluster.take(cluster.group.tombstones())
    assert not cluster.group.state.exists


def test_a_group_with_members_is_not_deleted() -> None:
    cluster = Cluster()
    cluster.beat("a", 0)
    assert refusal(cluster.group.check_delete) == (Error.NON_EMPTY_GROUP, "The group is not empty.")


def test_an_operation_leaves_the_state_to_its_rows() -> None:
    cluster = Cluster()
    take, cluster.take = cluster.take, lambda rows: None  # type: ignore[method-assign]
    first = cluster.beat("a", 0)
    assert not cluster.group.state.members
    cluster.take = take  # type: ignore[method-assign]
    assert cluster.beat("a", 0).member_epoch == first.member_epoch


def test_a_member_without_heartbeats_is_gone_when_its_session_ends_and_not_before() -> None:
    cluster = Cluster()
    cluster.beat("a", 0)
    cluster.beat("b", 0)
    cluster.now_ms += 30_000
    cluster.beat("b", 3)
    cluster.now_ms += 14_999
    cluster.expire()
    assert set(cluster.group.state.members) == {"a", "b"}
    cluster.now_ms += 1
    cluster.expire()
    assert set(cluster.group.state.members) == {"b"}
    assert partitions(cluster.beat("b", 3, [])) == [0, 1, 2]


def test_a_member_that_does_not_let_go_in_its_rebalance_timeout_is_thrown_out() -> None:
    cluster = Cluster()
    cluster.beat("a", 0)
    cluster.beat("b", 0)
    cluster.beat("a", 2, [0, 1, 2])
    cluster.now_ms += 8_999
    cluster.beat("a", 2, [0, 1, 2])
    cluster.expire()
    assert "a" in cluster.group.state.members
    cluster.now_ms += 1
    cluster.expire()
    assert set(cluster.group.state.members) == {"b"}
    assert refusal(lambda: cluster.beat("a", 2)) == (Error.UNKNOWN_MEMBER_ID, "Member a is not a member of group g.")


def test_a_member_that_lets_go_in_time_stays() -> None:
    cluster = Cluster()
    cluster.beat("a", 0)
    cluster.beat("b", 0)
    cluster.beat("a", 2, [0, 1, 2])
    cluster.beat("a", 2, [0, 1])
    cluster.now_ms += 9_000
    cluster.expire()
    assert set(cluster.group.state.members) == {"a", "b"}


def test_a_static_member_finds_its_partitions_waiting_and_its_place_is_not_taken_from_it() -> None:
    cluster = Cluster()
    cluster.beat("a", 0, instance_id="i")
    cluster.beat("b", 0)
    words = "Static member x with instance id i cannot join the group because the instance id is owned by a member."
    assert refusal(lambda: cluster.beat("x", 0, instance_id="i")) == (Error.UNRELEASED_INSTANCE_ID, words)
    epoch = cluster.group.state.epoch
    assert cluster.beat("a", -2, instance_id="i").member_epoch == -2
    back = cluster.beat("c", 0, instance_id="i")
    assert (back.member_epoch, partitions(back)) == (epoch, [0, 1])
    assert cluster.group.state.epoch == epoch
    words = "Static member a with instance id i was fenced by member c."
    assert refusal(lambda: cluster.beat("a", 2, instance_id="i")) == (Error.FENCED_INSTANCE_ID, words)


def test_a_static_member_that_has_left_is_refused_at_the_epoch_before_the_one_it_left_at() -> None:
    cluster = Cluster()
    cluster.beat("a", 0, instance_id="i")
    cluster.set_partitions(4)
    cluster.beat("a", 2, [0, 1, 2], instance_id="i")
    assert cluster.beat("a", 2, [0, 1, 2], instance_id="i").member_epoch == 3  # the last answer may have been lost
    cluster.beat("a", -2, instance_id="i")
    code, _ = refusal(lambda: cluster.beat("a", 2, [0, 1, 2], instance_id="i"))
    assert code == Error.FENCED_MEMBER_EPOCH


def test_a_lost_answer_is_made_good_if_the_member_owns_no_more_than_it_got() -> None:
    cluster = Cluster()
    cluster.beat("a", 0)
    cluster.set_partitions(4)
    cluster.beat("a", 2, [0, 1, 2])  # its answer, with epoch 3, is lost
    assert cluster.beat("a", 2, [0, 1, 2]).member_epoch == 3
    code, _ = refusal(lambda: cluster.beat("a", 2, [0, 9]))
    assert code is Error.FENCED_MEMBER_EPOCH
    assert refusal(lambda: cluster.beat("a", 2))[0] is Error.FENCED_MEMBER_EPOCH
    assert refusal(lambda: cluster.beat("a", 9))[0] is Error.FENCED_MEMBER_EPOCH
    for epoch in (1, 4):
        assert refusal(lambda epoch=epoch: cluster.beat("a", epoch, [0]))[0] is Error.FENCED_MEMBER_EPOCH


def test_who_says_everything_is_told_its_assignment_though_it_is_the_same() -> None:
    cluster = Cluster()
    epoch = cluster.beat("a", 0).member_epoch
    said = {"rebalance_timeout_ms": 9_000, "subscribed_topic_names": ["t"]}
    assert partitions(cluster.beat("a", epoch, owned=[0, 1, 2], **said)) == [0, 1, 2]
    for name in said:
        rest = {other: value for other, value in said.items() if other != name}
        assert partitions(cluster.beat("a", epoch, owned=[0, 1, 2], **rest)) is None, f"without {name}"
    assert partitions(cluster.beat("a", epoch, **said)) is None, "without what it owns"


def test_a_group_is_full() -> None:
    cluster = Cluster(**{"group.consumer.max.size": 1})
    cluster.beat("a", 0)
    words = "The consumer group has reached its maximum capacity of 1 members."
    assert refusal(lambda: cluster.beat("b", 0)) == (Error.GROUP_MAX_SIZE_REACHED, words)
    cluster.beat("a", 0)


def test_new_partitions_are_given_out_at_the_next_heartbeat_and_only_after_the_group_heard_of_them() -> None:
    cluster = Cluster()
    cluster.beat("a", 0)
    assert cluster.beat("a", 2, [0, 1, 2]).member_epoch == 2
    cluster.set_partitions(5)
    told = cluster.beat("a", 2, [0, 1, 2])
    assert (told.member_epoch, partitions(told)) == (3, [0, 1, 2, 3, 4])


def test_assignments_keep_their_distance() -> None:
    cluster = Cluster(**{"consumer.assignment.interval.ms": 1000})
    cluster.beat("a", 0)
    joined = cluster.beat("b", 0)
    assert (joined.member_epoch, partitions(joined), cluster.group.state.name) == (2, [], "Assigning")
    cluster.now_ms += 1000
    assert cluster.beat("b", 2, []).member_epoch == 3


def test_a_pattern_is_resolved_after_the_heartbeat_and_again_when_a_topic_is_made() -> None:
    cluster = Cluster()
    cluster.beat("a", 0, subscribed_topic_names=None, subscribed_topic_regex="t.*")
    cluster.expire()
    assert partitions(cluster.beat("a", 1, [])) == [0, 1, 2]
    topics = [*cluster.topics.by_name.values(), MadeTopic("t2", (8).to_bytes(16, "big"), [[]])]
    cluster.topics = MadeTopics(topics, 2, 2)
    cluster.now_ms += 10_001
    cluster.beat("a", 2, [0, 1, 2])
    cluster.expire()
    told = cluster.beat("a", 2, [0, 1, 2])
    assert told.assignment is not None
    assert len(told.assignment.topic_partitions) == 2


@pytest.mark.parametrize("interval_ms", [20_000, 50_000])
def test_a_pattern_is_resolved_again_after_the_refresh_interval(interval_ms: int) -> None:
    """What it matches may have changed though no topic was made."""
    cluster = Cluster(**{"group.consumer.regex.refresh.interval.ms": interval_ms})
    cluster.beat("a", 0, subscribed_topic_names=None, subscribed_topic_regex="t.*")
    cluster.expire()
    for _ in range(2):
        cluster.now_ms += interval_ms
        cluster.beat("a", 1, [])
        assert cluster.group.timers.patterns is None
        cluster.now_ms += 1
        cluster.beat("a", 1, [])
        assert cluster.group.timers.patterns is not None
        cluster.expire()


def test_commits_of_an_older_epoch_are_taken_for_what_the_member_has_had_since() -> None:
    cluster = Cluster()
    cluster.beat("a", 0)
    cluster.set_partitions(4)
    cluster.beat("a", 2, [0, 1, 2])

    def commit(epoch: int, partition: int, member: str = "a", version: int = 9) -> None:
        check = cluster.group.check_commit(member, None, epoch, is_transactional=False, version=version)
        if check is not None:
            check("t", TOPIC, partition)

    commit(3, 3)
    commit(2, 0)
    words = "Received member epoch 2 is older than assignment epoch 3 for partition t-3."
    assert refusal(lambda: commit(2, 3)) == (Error.STALE_MEMBER_EPOCH, words)
    assert refusal(lambda: commit(4, 0))[0] is Error.STALE_MEMBER_EPOCH
    assert refusal(lambda: commit(2, 9))[0] is Error.STALE_MEMBER_EPOCH
    assert refusal(lambda: commit(3, 0, member="x"))[0] is Error.UNKNOWN_MEMBER_ID
    assert refusal(lambda: commit(3, 0, version=8))[0] is Error.UNSUPPORTED_VERSION
    cluster.group.check_fetch(None, -1)
    cluster.group.check_fetch("a", 3)
    assert refusal(lambda: cluster.group.check_fetch("a", 2))[0] is Error.STALE_MEMBER_EPOCH
    cluster.beat("a", -1)
    commit(-1, 0, member="")


def test_a_group_written_by_an_older_release_gets_rid_of_the_row_it_no_longer_needs() -> None:
    cluster = Cluster()
    cluster.group.apply(
        ConsumerGroupPartitionMetadataKey(group_id=GROUP), ConsumerGroupPartitionMetadataValue(topics=[])
    )
    cluster.group.apply(ConsumerGroupMetadataKey(group_id=GROUP), ConsumerGroupMetadataValue(epoch=5))
    cluster.beat("a", 0)
    assert (ConsumerGroupPartitionMetadataKey(group_id=GROUP), None) in cluster.rows
    cluster.set_partitions(4)
    cluster.beat("a", 6)
    assert (ConsumerGroupPartitionMetadataKey(group_id=GROUP), None) not in cluster.rows


def test_a_member_in_a_state_of_a_later_release_starts_from_nothing() -> None:
    cluster = Cluster()
    cluster.beat("a", 0)
    held = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(topic_id=TOPIC, partitions=[0, 1, 2])
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=2,
        previous_member_epoch=1,
        state=9,
        assigned_partitions=[held],
        partitions_pending_revocation=[],
    )
    cluster.group.apply(ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="a"), value)
    assert refusal(lambda: cluster.beat("a", 2))[0] is Error.FENCED_MEMBER_EPOCH
    assert refusal(lambda: cluster.beat("a", 2, owned=[0]))[0] is Error.FENCED_MEMBER_EPOCH
    assert partitions(cluster.beat("a", 0)) == [0, 1, 2]


def test_timers_run_again_after_loading() -> None:
    cluster = Cluster()
    cluster.beat("a", 0)
    cluster.beat("b", 0)
    cluster.beat("a", 2, [0, 1, 2])
    group = cluster.loaded_again()
    assert group.deadline_ms() is None
    group.loaded(50, cluster.settings)
    assert group.deadline_ms() == 50 + 9_000
    group.expire(9_050, topics=cluster.topics, config=cluster.settings)
    assert group.deadline_ms() == 50 + 45_000


class Interleavings(RuleBasedStateMachine):
    """Members that are as slow, forgetful and mortal as real ones; each owns what it was last told, or still more."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(partitions=5)
        self.members: dict[str, dict[str, Any]] = {}
        self.made = 0
        self.epochs = (0, 0)

    def say(self, name: str, is_answer_lost: bool) -> None:
        member = self.members[name]
        owned = sorted(member["owned"])
        # Who did not hear an answer says everything again, and so hears everything again.
        fields = {"rebalance_timeout_ms": 9_000, "subscribed_topic_names": ["t"]} if member.get("is_unsure") else {}
        try:
            response = self.cluster.beat(name, member["epoch"], owned, **fields)
        except KafkaError as error:
            assert error.code in (Error.FENCED_MEMBER_EPOCH, Error.UNKNOWN_MEMBER_ID)
            member.update(epoch=0, owned=set(), told=set())
            return
        member["is_unsure"] = is_answer_lost
        if is_answer_lost:
            return
        member["epoch"] = response.member_epoch
        if (told := partitions(response)) is not None:
            member["told"] = set(told)
            member["owned"] |= member["told"]  # new ones at once; what it lost it gives up when it gets to it

    @rule()
    def join(self) -> None:
        if len(self.members) < 4:
            self.made += 1
            self.members[f"m{self.made}"] = {"epoch": 0, "owned": set(), "told": set()}
            self.say(f"m{self.made}", False)

    @rule(data=st.data(), is_answer_lost=st.sampled_from([False, False, False, True]))
    def heartbeat(self, data: st.DataObject, is_answer_lost: bool) -> None:
        if self.members:
            self.say(data.draw(st.sampled_from(sorted(self.members))), is_answer_lost)

    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        if self.members:
            member = self.members[data.draw(st.sampled_from(sorted(self.members)))]
            member["owned"] = set(member["told"])

    @rule(data=st.data(), is_polite=st.booleans())
    def go(self, data: st.DataObject, is_polite: bool) -> None:
        if self.members:
            name = data.draw(st.sampled_from(sorted(self.members)))
            del self.members[name]
            if is_polite and name in self.cluster.group.state.members:
                self.cluster.beat(name, -1)

    @rule(seconds=st.sampled_from([1, 5, 9, 46]))
    def wait(self, seconds: int) -> None:
        self.cluster.now_ms += seconds * 1000
        self.cluster.expire()
        for name, member in self.members.items():
            if name not in self.cluster.group.state.members:  # a client notices by itself that its time is over
                member.update(epoch=0, owned=set(), told=set())

    @rule(count=st.integers(1, 9))
    def add_partitions(self, count: int) -> None:
        self.cluster.set_partitions(max(count, len(self.cluster.topics.by_name["t"].racks)))

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        owned = [partition for member in self.members.values() for partition in member["owned"]]
        assert len(owned) == len(set(owned))
        held = [
            partition
            for member in self.cluster.group.state.members.values()
            for part in (member.held, member.to_revoke)
            for partition in part.get(TOPIC, ())
        ]
        assert len(held) == len(set(held))

    @invariant()
    def epochs_rise_and_keep_their_order(self) -> None:
        state = self.cluster.group.state
        assert self.epochs <= (state.epoch, state.target_epoch)
        self.epochs = (state.epoch, state.target_epoch)
        assert state.epoch >= state.target_epoch
        assert all(member.epoch <= state.target_epoch for member in state.members.values())

    @invariant()
    def targets_are_complete_and_disjoint(self) -> None:
        state = self.cluster.group.state
        if state.members and state.epoch == state.target_epoch:
            given_out = [part for target in state.targets.values() for part in target.get(TOPIC, ())]
            assert sorted(given_out) == list(range(len(given_out)))
            seen = len(self.cluster.topics.by_name["t"].racks)
            assert len(given_out) == seen or self.cluster.group.timers.must_see_topics(
                self.cluster.now_ms, self.cluster.group.state.epoch
            )

    @invariant()
    def the_state_is_what_its_rows_say(self) -> None:
        state, loaded = self.cluster.group.state, self.cluster.loaded_again().state
        assert (state.members, state.owners, state.epoch) == (loaded.members, loaded.owners, loaded.epoch)
        assert (state.targets, state.target_epoch, state.name) == (loaded.targets, loaded.target_epoch, loaded.name)

    def teardown(self) -> None:
        """Whatever has happened: left to themselves the members come to hold all partitions, and peace returns."""
        self.cluster.now_ms += 1000
        for _ in range(6):
            for name, member in self.members.items():
                member["owned"] &= member["told"] if member["epoch"] else set()
                self.say(name, False)
        self.cluster.now_ms += 44_000  # those that died without a word
        for _ in range(6):
            self.cluster.expire()
            for name, member in self.members.items():
                member["owned"] &= member["told"] if member["epoch"] else set()
                self.say(name, False)
        if self.members:
            assert self.cluster.group.state.name == "Stable"
            owned = sorted(partition for member in self.members.values() for partition in member["owned"])
            assert owned == list(range(len(self.cluster.topics.by_name["t"].racks)))


TestInterleavings = pytest.mark.outside(Interleavings.TestCase)
TestInterleavings.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_the_session_recorded_with_a_broker_is_answered_alike() -> None:
    cluster = Cluster(partitions=1)
    response = cluster.beat("bW9uZXllZWVlZWVlZWVlZQ", 0, rebalance_timeout_ms=30000)
    assert (response.member_epoch, response.heartbeat_interval_ms, partitions(response)) == (2, 5000, [0])
    words = (
        "The consumer group member has a greater member epoch (50) than the one known by the group coordinator (2). "
        "The member must abandon all its partitions and rejoin."
    )
    assert refusal(lambda: cluster.beat("bW9uZXllZWVlZWVlZWVlZQ", 50)) == (Error.FENCED_MEMBER_EPOCH, words)
    words = "ServerAssignor nope is not supported. Supported assignors: uniform, range."
    assert refusal(lambda: cluster.beat("x", 0, server_assignor="nope")) == (Error.UNSUPPORTED_ASSIGNOR, words)
    left = cluster.beat("bW9uZXllZWVlZWVlZWVlZQ", -1)
    assert (left.member_epoch, left.heartbeat_interval_ms, left.assignment) == (-1, 0, None)
    group = described(cluster.group, cluster.topics, cluster.settings)
    found = (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name)
    assert found == ("Empty", 3, 3, "uniform")
    assert type(cluster.rows[0][0]) is ConsumerGroupCurrentMemberAssignmentKey
    assert type(cluster.rows[2][0]) is ConsumerGroupMemberMetadataKey
    assert type(cluster.rows[-1][0]) is ConsumerGroupTargetAssignmentMetadataKey
