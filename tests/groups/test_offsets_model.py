"""Offsets against a plain register: commits under way while groups, offsets and topics go and coordinators move.

Hypothesis draws what is done; followers are held now and then, so that what is written is not committed. A model says
what each write leaves behind the one before it. While followers are held nothing of that may be seen; once all is
committed the last of it is; and after a coordinator has died some beginning of it, with all that was acknowledged.
Two producers commit offsets in transactions, too. Who wants stable offsets is never shown one that a transaction is
about to replace, from when that is written on.
"""

from __future__ import annotations

import asyncio
from asyncio import Task
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from minibroker.client.connection import Connection
from minibroker.errors import Error
from minibroker.groups import OFFSETS_TOPIC
from minibroker.protocol.messages.delete_groups import DeleteGroupsRequest
from minibroker.protocol.messages.offset_commit import OffsetCommitRequest
from minibroker.protocol.messages.offset_delete import OffsetDeleteRequest
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest
from minibroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from minibroker.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from tests.cluster.virtual import Lab, in_cluster
from tests.groups.test_offsets_partition import Caller, CommitPartition, CommitTopic, FetchedGroup

pytestmark = pytest.mark.outside

GROUPS, TOPICS, PRODUCERS = ("g0", "g1"), ("t0", "t1"), (100, 101)
RETENTION_MS, WAIT_MS = 60_000, 40_000  # a wait never ends near the end of an offset's time
NO_TIMEOUT_MS = 3_600_000
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "500",
    "offsets.commit.timeout.ms": str(NO_TIMEOUT_MS),
    "replica.lag.time.max.ms": str(NO_TIMEOUT_MS),
    "group.initial.rebalance.delay.ms": "0",
    "transaction.partition.verification.enable": "false",
}
GROUP, TOPIC, PRODUCER = st.sampled_from(GROUPS), st.sampled_from(TOPICS), st.sampled_from(PRODUCERS)
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), GROUP, TOPIC),
        st.tuples(st.just("commit"), GROUP, TOPIC),
        st.tuples(st.just("commit_in_transaction"), GROUP, TOPIC, PRODUCER),
        st.tuples(st.just("commit_in_transaction"), GROUP, TOPIC, PRODUCER),
        st.tuples(st.just("end"), PRODUCER, st.booleans()),
        st.tuples(st.just("delete_group"), GROUP),
        st.tuples(st.just("delete_offset"), GROUP, TOPIC),
        st.tuples(st.just("make_anew"), TOPIC),
        st.tuples(st.just("wait")),
        st.tuples(st.just("hold")),
        st.tuples(st.just("hold")),
        st.tuples(st.just("release")),
        st.tuples(st.just("move")),
    ),
    min_size=3,
    max_size=14,
)

Key = tuple[str, str]  # group and topic
Entry = tuple[int, int, float]  # offset, which topic of the name, when it was committed
State = dict[tuple[str, str, int], Entry]  # by group, topic, and the producer whose transaction is open, or
NOBODY = -1


class Model:
    """What the offsets are to be."""

    def __init__(self, lab: Lab):
        self.lab = lab
        self.states: list[State] = [{}]  # what is committed, then what each write leaves that is not
        self.acknowledged = 0  # the last of them that somebody was told of
        self.topics = dict.fromkeys(TOPICS, 0)  # how often each was made anew
        self.count = 0
        self.is_held = False
        self.under_way: list[tuple[Task[int], int, bool]] = []  # what is asked, the state it leaves, whether it writes

    @property
    def now(self) -> float:
        return self.lab.world.loop.time()

    @property
    def last(self) -> State:
        return self.states[-1]

    def is_current(self, key: tuple[str, str, int], entry: Entry) -> bool:
        return entry[1] == self.topics[key[1]]

    def shown(self, state: State) -> dict[Key, int]:
        found = {key: entry[0] for key, entry in state.items() if self.is_current(key, entry)}
        return {(group, topic): offset for (group, topic, producer), offset in found.items() if producer == NOBODY}

    def unstable(self, state: State) -> set[Key]:
        """Return where a transaction would commit an offset."""
        found = [key for key, entry in state.items() if self.is_current(key, entry)]
        return {(group, topic) for group, topic, producer in found if producer != NOBODY}

    def alive(self, state: State) -> State:
        """Return what has not expired: an offset stays for as long as a transaction may replace it."""
        pending = {key[:2] for key in state if key[2] != NOBODY}
        return {
            key: entry
            for key, entry in state.items()
            if key[:2] in pending or self.now - entry[2] < RETENTION_MS / 1000
        }

    # Who coordinates

    def leader(self) -> int:
        topic = self.lab.cluster.controller.image.topics[OFFSETS_TOPIC]
        return topic.partitions[0].leader

    async def connect(self) -> Connection:
        host, _, port = self.lab.cluster.nodes[self.leader()].bootstrap_servers.rpartition(":")
        return await Connection.open(host, int(port), clock=self.lab.world.clock)

    async def begin(self, request: Any, version: int, left: State, code_of: Any, *, writes: bool = True) -> None:
        """Ask for something that leaves a state, and do not wait for the answer while followers are held."""
        connection = await self.connect()

        async def ask() -> int:
            try:
                return int(code_of(await connection.call(request, version, timeout_ms=NO_TIMEOUT_MS)))
            finally:
                await connection.close()

        task = self.lab.world.loop.create_task(ask())
        self.states.append(left)
        self.under_way.append((task, len(self.states) - 1, writes))
        await self.lab.world.clock.sleep(20)
        if not self.is_held:
            await self.settle()

    async def settle(self) -> None:
        """All that is under way is answered: it is committed."""
        for task, _, _ in self.under_way:
            assert await task == Error.NONE
        self.under_way.clear()
        self.states = [self.last]

    # What is done

    async def commit(self, group: str, topic: str) -> None:
        self.count += 1
        partition = CommitPartition(partition_index=0, committed_offset=self.count, committed_metadata="")
        request = OffsetCommitRequest(group_id=group, topics=[CommitTopic(name=topic, partitions=[partition])])
        left = self.last | {(group, topic, NOBODY): (self.count, self.topics[topic], self.now)}
        await self.begin(request, 8, left, lambda answer: answer.topics[0].partitions[0].error_code)

    async def commit_in_transaction(self, group: str, topic: str, producer: int) -> None:
        self.count += 1
        Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        row = Topic.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=self.count, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=group,
            producer_id=producer,
            producer_epoch=0,
            topics=[Topic(name=topic, partitions=[row])],
        )
        left = self.last | {(group, topic, producer): (self.count, self.topics[topic], self.now)}
        await self.begin(request, 3, left, lambda answer: answer.topics[0].partitions[0].error_code)

    async def end(self, producer: int, commit: bool) -> None:
        """Have the marker of a transaction written."""
        Marker = WriteTxnMarkersRequest.WritableTxnMarker
        marker = Marker(
            producer_id=producer,
            producer_epoch=0,
            transaction_result=commit,
            topics=[Marker.WritableTxnMarkerTopic(name=OFFSETS_TOPIC, partition_indexes=[0])],
            coordinator_epoch=0,
        )
        left = {key: entry for key, entry in self.last.items() if key[2] != producer}
        for (group, topic, of), entry in self.last.items() if commit else ():
            if of == producer and left.get((group, topic, NOBODY), (0,))[0] < entry[0]:
                left[group, topic, NOBODY] = entry
        await self.begin(
            WriteTxnMarkersRequest(markers=[marker]),
            1,
            left,
            lambda answer: answer.markers[0].topics[0].partitions[0].error_code,
        )

    async def delete_group(self, group: str) -> None:
        left = {key: entry for key, entry in self.last.items() if key[0] != group}
        is_there = len(left) < len(self.last)

        def code_of(answer: Any) -> int:
            code = answer.results[0].error_code
            assert code != Error.GROUP_ID_NOT_FOUND or not is_there, f"{group} has offsets, and is not there"
            return int(Error.NONE if code == Error.GROUP_ID_NOT_FOUND else code)

        await self.begin(DeleteGroupsRequest(groups_names=[group]), 1, left, code_of, writes=is_there)

    async def delete_offset(self, group: str, topic: str) -> None:
        left = {key: entry for key, entry in self.last.items() if key[:2] != (group, topic)}
        is_there = any(key[0] == group for key in self.last)
        wanted = OffsetDeleteRequest.OffsetDeleteRequestTopic
        one = wanted.OffsetDeleteRequestPartition(partition_index=0)
        request = OffsetDeleteRequest(group_id=group, topics=[wanted(name=topic, partitions=[one])])

        def code_of(answer: Any) -> int:
            if answer.error_code == Error.GROUP_ID_NOT_FOUND:
                assert not is_there, f"{group} has offsets, and is not there"
                return int(Error.NONE)
            return int(answer.error_code or answer.topics[0].partitions[0].error_code)

        await self.begin(request, 0, left, code_of, writes=left != self.last)

    async def make_anew(self, topic: str) -> None:
        cluster = self.lab.cluster
        cluster.delete_topic(topic)
        await self.lab.world.clock.sleep(700)
        cluster.create_topic(topic, 1)
        self.topics[topic] += 1
        await self.lab.world.clock.sleep(700)
        self.states.append({key: entry for key, entry in self.last.items() if key[1] != topic})
        if not self.is_held:
            self.states = [self.last]

    async def wait(self) -> None:
        await self.lab.world.clock.sleep(WAIT_MS)
        self.states.append(self.alive(self.last))
        if not self.is_held:
            self.states = [self.last]

    async def hold(self) -> None:
        if not self.is_held:
            await self.lab.cluster.waits.in_sync()
            self.lab.cluster.steps.hold("fetch")
            self.is_held = True

    async def release(self) -> None:
        if self.is_held:
            self.lab.cluster.steps.release()
            self.is_held = False
            await self.settle()
            await self.lab.world.clock.sleep(700)

    async def move(self) -> None:
        """The coordinator dies; another one leads, and what was under way has come to something or to nothing."""
        cluster, leader = self.lab.cluster, self.leader()
        await cluster.kill(leader)
        for task, index, writes in self.under_way:
            try:
                if await task == Error.NONE and writes:
                    self.acknowledged = max(self.acknowledged, index)
            except Exception:  # it was cut off
                pass
        self.under_way.clear()
        cluster.steps.release()
        self.is_held = False
        await cluster.waits.leader(OFFSETS_TOPIC, 0, other_than=leader)
        await cluster.start(leader)
        await cluster.waits.in_sync()
        await self.lab.world.clock.sleep(1500)
        found, unstable = await self.fetch(), await self.fetch_unstable()
        candidates = [self.alive(state) for state in self.states[self.acknowledged :]]
        for state in candidates:
            if (found, unstable) == (self.shown(state), self.unstable(state)):
                self.states = [{key: entry for key, entry in state.items() if self.is_current(key, entry)}]
                break
        else:
            raise AssertionError(f"found {found} and pending {unstable}, which is none of {candidates}")
        self.acknowledged = 0
        for producer in PRODUCERS:  # whose offset of two that are pending has come through cannot be seen
            await self.end(producer, False)

    # What is seen

    async def fetch(self) -> dict[Key, int]:
        connection = await self.connect()
        found: dict[Key, int] = {}
        try:
            while True:
                wanted = [FetchedGroup(group_id=group, topics=None) for group in GROUPS]
                answer = await connection.call(OffsetFetchRequest(groups=wanted), 8)
                if all(group.error_code == Error.NONE for group in answer.groups):
                    break
                assert not any(group.error_code != Error.COORDINATOR_LOAD_IN_PROGRESS for group in answer.groups)
                await self.lab.world.clock.sleep(50)
        finally:
            await connection.close()
        for group in answer.groups:
            for topic in group.topics:
                for each in topic.partitions:
                    if each.committed_offset != -1:
                        found[group.group_id, topic.name] = each.committed_offset
        return found

    async def fetch_unstable(self) -> set[Key]:
        """Return of which partitions no stable offset is shown."""
        connection = await self.connect()
        topics = [FetchedGroup.OffsetFetchRequestTopics(name=topic, partition_indexes=[0]) for topic in TOPICS]
        wanted = [FetchedGroup(group_id=group, topics=topics) for group in GROUPS]
        try:
            answer = await connection.call(
                OffsetFetchRequest(groups=wanted, require_stable=True), 8, timeout_ms=NO_TIMEOUT_MS
            )
        finally:
            await connection.close()
        return {
            (group.group_id, topic.name)
            for group in answer.groups
            for topic in group.topics
            for each in topic.partitions
            if each.error_code == Error.UNSTABLE_OFFSET_COMMIT
        }

    async def check(self) -> None:
        assert await self.fetch() == self.shown(self.states[0])
        asking = self.lab.world.loop.create_task(self.fetch_unstable())
        if self.is_held:  # then it may be that it waits
            await self.lab.world.clock.sleep(20)
        if not self.is_held or asking.done():
            assert self.unstable(self.last) == await asking
        else:
            asking.cancel()
            await asyncio.wait([asking])


async def play(lab: Lab, acts: list[tuple[str, ...]]) -> None:
    cluster = lab.cluster
    for topic in TOPICS:
        cluster.create_topic(topic, 1)
    await cluster.waits.in_sync()
    host, _, port = cluster.nodes[1].bootstrap_servers.rpartition(":")
    async with await Connection.open(host, int(port), clock=lab.world.clock) as connection:
        await Caller(connection).find()
    await cluster.waits.in_sync()
    await lab.world.clock.sleep(100)
    model = Model(lab)
    for act, *places in acts:
        await getattr(model, act)(*places)
        await model.check()
    await model.release()
    await model.check()


@pytest.mark.slow
@settings(
    max_examples=40,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(ACTS)
# What is under way is overlooked by what deletes: expiry, DeleteGroups, a topic that is deleted, OffsetDelete.
@example([("commit", "g0", "t0"), ("wait",), ("hold",), ("commit", "g0", "t0"), ("wait",), ("release",)])
@example([("hold",), ("commit", "g0", "t0"), ("delete_group", "g0"), ("release",), ("delete_group", "g0")])
@example([("hold",), ("commit", "g0", "t0"), ("make_anew", "t0"), ("release",)])
@example([("commit", "g0", "t1"), ("hold",), ("commit", "g0", "t0"), ("delete_offset", "g0", "t0"), ("release",)])
@example([("hold",), ("commit", "g0", "t0"), ("make_anew", "t0"), ("move",)])
@example([("commit", "g0", "t0"), ("hold",), ("delete_group", "g0"), ("commit", "g0", "t1"), ("move",)])
# A transaction's offset is written and not committed: who wants stable offsets, what deletes, and what moves.
@example([("commit", "g0", "t0"), ("hold",), ("commit_in_transaction", "g0", "t0", 100)])
@example(
    [("hold",), ("commit_in_transaction", "g0", "t0", 100), ("delete_group", "g0"), ("end", 100, True), ("release",)]
)
@example(
    [
        ("commit_in_transaction", "g0", "t0", 100),
        ("hold",),
        ("end", 100, True),
        ("delete_offset", "g0", "t0"),
        ("move",),
    ]
)
@example(
    [("commit", "g0", "t0"), ("commit_in_transaction", "g0", "t0", 100), ("wait",), ("wait",), ("end", 100, False)]
)
def test_offsets_are_what_a_register_would_show(acts: list[tuple[str, ...]]) -> None:
    async def main(lab: Lab) -> None:
        await play(lab, acts)

    in_cluster(main, brokers=2, settings=SETTINGS)


@pytest.mark.slow
@settings(max_examples=150, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(ACTS)
def test_offsets_are_what_a_register_would_show_in_many_more_histories(acts: list[tuple[str, ...]]) -> None:
    async def main(lab: Lab) -> None:
        await play(lab, acts)

    in_cluster(main, brokers=2, settings=SETTINGS)
