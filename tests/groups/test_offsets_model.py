"""Offsets against a plain register: commits under way while groups, offsets and topics go and coordinators move.

Hypothesis draws what is done; followers are held now and then, so that what is written is not committed. A model says
what each write leaves behind the one before it. While followers are held nothing of that may be seen; once all is
committed the last of it is; and after a coordinator has died some beginning of it, with all that was acknowledged.
"""

from __future__ import annotations

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
from tests.cluster.virtual import Lab, in_cluster
from tests.groups.test_offsets_partition import Caller, CommitPartition, CommitTopic, FetchedGroup

pytestmark = pytest.mark.outside

GROUPS, TOPICS = ("g0", "g1"), ("t0", "t1")
RETENTION_MS, WAIT_MS = 60_000, 40_000  # a wait never ends near the end of an offset's time
NO_TIMEOUT_MS = 3_600_000
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "500",
    "offsets.commit.timeout.ms": str(NO_TIMEOUT_MS),
    "replica.lag.time.max.ms": str(NO_TIMEOUT_MS),
    "group.initial.rebalance.delay.ms": "0",
}
GROUP, TOPIC = st.sampled_from(GROUPS), st.sampled_from(TOPICS)
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), GROUP, TOPIC),
        st.tuples(st.just("commit"), GROUP, TOPIC),
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
State = dict[Key, Entry]


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

    def is_current(self, key: Key, entry: Entry) -> bool:
        return entry[1] == self.topics[key[1]]

    def shown(self, state: State) -> dict[Key, int]:
        return {key: entry[0] for key, entry in state.items() if self.is_current(key, entry)}

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
        left = self.last | {(group, topic): (self.count, self.topics[topic], self.now)}
        await self.begin(request, 8, left, lambda answer: answer.topics[0].partitions[0].error_code)

    async def delete_group(self, group: str) -> None:
        left = {key: entry for key, entry in self.last.items() if key[0] != group}
        is_there = len(left) < len(self.last)

        def code_of(answer: Any) -> int:
            code = answer.results[0].error_code
            assert code != Error.GROUP_ID_NOT_FOUND or not is_there, f"{group} has offsets, and is not there"
            return int(Error.NONE if code == Error.GROUP_ID_NOT_FOUND else code)

        await self.begin(DeleteGroupsRequest(groups_names=[group]), 1, left, code_of, writes=is_there)

    async def delete_offset(self, group: str, topic: str) -> None:
        left = {key: entry for key, entry in self.last.items() if key != (group, topic)}
        is_there = any(key[0] == group for key in self.last)
        wanted = OffsetDeleteRequest.OffsetDeleteRequestTopic
        one = wanted.OffsetDeleteRequestPartition(partition_index=0)
        request = OffsetDeleteRequest(group_id=group, topics=[wanted(name=topic, partitions=[one])])

        def code_of(answer: Any) -> int:
            if answer.error_code == Error.GROUP_ID_NOT_FOUND:
                assert not is_there, f"{group} has offsets, and is not there"
                return int(Error.NONE)
            return int(answer.error_code or answer.topics[0].partitions[0].error_code)

        await self.begin(request, 0, left, code_of, writes=(group, topic) in self.last)

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
        left = {key: entry for key, entry in self.last.items() if self.now - entry[2] < RETENTION_MS / 1000}
        self.states.append(left)
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
        found = await self.fetch()
        candidates = self.states[self.acknowledged :]
        for state in candidates:
            alive = {key: entry for key, entry in state.items() if self.now - entry[2] < RETENTION_MS / 1000}
            if found == self.shown(alive):
                self.states = [{key: entry for key, entry in alive.items() if self.is_current(key, entry)}]
                break
        else:
            raise AssertionError(f"found {found}, which is none of {[self.shown(state) for state in candidates]}")
        self.acknowledged = 0

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

    async def check(self) -> None:
        assert await self.fetch() == self.shown(self.states[0])


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
