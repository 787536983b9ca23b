"""Groups of consumers as a test sees them: waiting for them, members, offsets and lags."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from minibroker import Broker
from minibroker.broker.http_verbs import seen_groups
from minibroker.embedded import FaultError, GroupView
from minibroker.errors import Error, KafkaError
from minibroker.events import EventStream
from minibroker.log.build import build_batch
from minibroker.log.records import Record

from .groups import CONSUMER, team
from .test_broker import EVERYWHERE, PROCESS, aproduce


@pytest.fixture(params=EVERYWHERE)
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    async with Broker(topics="orders:2", process=request.param == PROCESS) as broker:
        yield broker


@pytest.fixture
async def here() -> AsyncIterator[Broker]:
    async with Broker(topics="orders:2") as broker:
        yield broker


def topic_id(broker: Broker) -> bytes:
    found: bytes = broker._running()._node.image.topics["orders"].id  # type: ignore[attr-defined]
    return found


# Waiting


async def test_a_group_is_waited_for_until_all_have_their_parts(broker: Broker) -> None:
    async with team(broker.bootstrap_servers, "readers", ["orders"]) as readers:
        waiting = asyncio.create_task(broker.await_group("readers", members=2))
        await readers.join("anna")
        await readers.share()
        await readers.join("ben")
        await broker.await_group("readers", 2, "PreparingRebalance")
        await readers.join("anna")
        await readers.share()
        found = await waiting
        assert (found.group, found.type, found.protocol_type, found.state) == (
            "readers",
            "Classic",
            "consumer",
            "Stable",
        )
        assert (found.epoch, found.assignor, found.coordinator) == (2, "range", 1)
        assert {member.client_id: member.assignment for member in found.members} == {
            "anna": [("orders", 0)],
            "ben": [("orders", 1)],
        }
        assert {member.id for member in found.members} == {member.id for member in readers.members.values()}
        assert all(member.host == "/127.0.0.1" and member.epoch == 2 for member in found.members)
        assert await broker.agroups() == [("readers", "Classic", "consumer", "Stable", 2, 1)]


async def test_any_state_and_any_number_can_be_waited_for(here: Broker) -> None:
    async with team(here.bootstrap_servers, "readers", ["orders"]) as readers:
        await readers.join("anna")
        await readers.share()
        assert len((await here.await_group("readers")).members) == 1
        # The second and the third come while the group is preparing: its state stays as it is.
        waiting = asyncio.create_task(here.await_group("readers", 3, "PreparingRebalance"))
        await readers.join("ben", "clara")
        assert len((await waiting).members) == 3
        await readers.join("anna")
        await readers.share()
        waiting = asyncio.create_task(here.await_group("readers", members=0))
        for name in ("anna", "ben", "clara"):
            await readers.leave(name)
        assert (await waiting).members == []


async def test_who_sees_a_stable_group_sees_what_its_members_have(here: Broker) -> None:
    """Also if it looks at the very moment."""
    engine = here._running()
    events: EventStream = engine._node.events  # type: ignore[attr-defined]
    seen: list[list[tuple[str, int]]] = []

    def look(event: object) -> None:
        view = seen_groups(engine._node).group("readers")  # type: ignore[attr-defined]
        if view.state == "Stable":
            seen.append(view.members[0].assignment)

    async with team(here.bootstrap_servers, "readers", ["orders"]) as readers:
        with events.subscribe(look, ("group",)):
            await readers.join("anna")
            await readers.share()
    assert seen == [[("orders", 0), ("orders", 1)]]


async def test_a_group_of_the_consumer_protocol_is_seen_on_its_way(here: Broker) -> None:
    async with team(here.bootstrap_servers, "readers", ["orders"], CONSUMER) as readers:
        waiting = asyncio.create_task(here.await_group("readers", 1))
        await readers.join("anna")
        found = await waiting
        assert (found.type, found.assignor) == ("Consumer", "uniform")
        assert found.members[0].assignment == found.members[0].target == [("orders", 0), ("orders", 1)]
        await readers.join("ben")
        found = await here.await_group("readers", 2, "Assigning")
        assert found.epoch == found.members[0].epoch + 1
        waiting = asyncio.create_task(here.await_group("readers", 1))
        await readers.leave("anna")
        found = await here.await_group("readers", 1, "Assigning")
        assert [member.client_id for member in found.members] == ["ben"]
        waiting.cancel()


async def test_a_group_that_has_been_deleted_is_dead(here: Broker) -> None:
    from minibroker.client import Cluster
    from minibroker.client.groups import Groups

    await here.await_group("readers", state="Dead")
    async with team(here.bootstrap_servers, "readers", ["orders"], CONSUMER) as readers:
        await readers.join("anna")
        await readers.leave("anna")
    await here.await_group("readers", 0)
    waiting = asyncio.create_task(here.await_group("readers", state="Dead"))
    async with Cluster(here.bootstrap_servers) as client:
        await Groups(client).delete_groups(["readers"])
    assert (await waiting).state == "Dead"


async def test_waiting_for_what_does_not_come_says_what_there_is(broker: Broker) -> None:
    with pytest.raises(TimeoutError, match=r"not within 0.05 s: group 'readers' does not exist, and not Stable$"):
        await broker.await_group("readers", timeout=0.05)
    async with team(broker.bootstrap_servers, "readers", ["orders"]) as readers:
        await readers.join("anna")
        await readers.share()
        with pytest.raises(TimeoutError, match=r"'readers' is Stable with 1 member, and not Stable with 2 members"):
            await broker.await_group("readers", 2, timeout=0.05)
        with pytest.raises(TimeoutError, match=r"committed nothing of orders-0; it is Stable with 1 member"):
            await broker.await_committed("readers", "orders", timeout=0.05)
        await readers.commit("anna", "orders", 0, 3)
        with pytest.raises(TimeoutError, match=r"committed offset 3 of orders-0, and not 4; it is Stable"):
            await broker.await_committed("readers", "orders", 0, 4, timeout=0.05)
    with pytest.raises(ValueError, match="'stable' is no state of a group: there are Empty, PreparingRebalance"):
        await broker.await_group("readers", state="stable")


async def test_a_commit_is_waited_for(broker: Broker) -> None:
    async with team(broker.bootstrap_servers, "readers", ["orders"]) as readers:
        waiting = asyncio.create_task(broker.await_committed("readers", "orders", 1, 5))
        await readers.join("anna")
        await readers.share()
        await readers.commit("anna", "orders", 1, 4)
        assert await broker.await_committed("readers", "orders", partition=1) == 4
        assert not waiting.done()
        await readers.commit("anna", "orders", 1, 7)
        assert await waiting == 7


async def test_nothing_is_polled_while_one_waits(here: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    from minibroker.broker.group_view import SeenGroups

    looks: list[str] = []
    find = SeenGroups._find
    monkeypatch.setattr(SeenGroups, "_find", lambda self, group: looks.append(group) or find(self, group))
    with pytest.raises(TimeoutError):
        await here.await_group("readers", timeout=0.2)
    assert len(looks) == 2  # at the beginning, and to say how the group is


def test_plain_verbs_wait_in_any_thread() -> None:
    with Broker(topics="orders") as broker:
        found: list[int] = []
        waiting = threading.Thread(target=lambda: found.append(len(broker.wait_group("readers").members)))
        waiting.start()
        asyncio.run(_commit(broker))
        waiting.join()
        assert found == [1]
        assert broker.wait_committed("readers", "orders") == 2
        view = broker.group("readers")
        assert isinstance(view, GroupView)
        assert view.partition("orders").committed == 2
        assert [row.group for row in broker.groups()] == ["readers"]


async def _commit(broker: Broker) -> None:
    async with team(broker.bootstrap_servers, "readers", ["orders"]) as readers:
        await readers.join("anna")
        await readers.share()
        await readers.commit("anna", "orders", 0, 2)


async def test_a_broker_that_comes_back_has_its_groups(here: Broker) -> None:
    await _commit(here)
    await here.astop()
    await here.astart()
    assert await here.await_committed("readers", "orders") == 2
    assert (await here.await_group("readers")).members[0].client_id == "anna"


# Looking


async def test_a_partition_is_seen_with_its_offsets_and_lags_by_name(here: Broker) -> None:
    await aproduce(here, "orders", b"1", b"2", b"3")
    async with team(here.bootstrap_servers, "readers", ["orders"]) as readers:
        await readers.join("anna")
        await readers.share()
        await readers.commit("anna", "orders", 0, 1)
        _open_transaction(here)
        view = await here.agroup("readers")
        row = view.partition("orders", 0)
        assert row.member == readers.members["anna"].id
        assert (row.log_start_offset, row.last_stable_offset, row.high_watermark, row.log_end_offset) == (0, 3, 4, 4)
        assert (row.committed, row.lag_to_lso, row.lag_to_hw, row.lag_to_leo) == (1, 2, 3, 3)
        other = view.partition("orders", 1)
        assert (other.committed, other.lag_to_lso, other.lag_to_hw, other.lag_to_leo) == (None, None, None, None)
        with pytest.raises(KeyError, match="readers has nothing to do with orders-7"):
            view.partition("orders", 7)


def _open_transaction(broker: Broker) -> None:
    """Have a record of a transaction that nobody ends in the log, as a directory of Kafka's may."""
    batch = build_batch(
        2, [Record(None, b"x", (), 1, 0)], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    node = broker._running()._node  # type: ignore[attr-defined]
    replica = node.replicas["orders", 0]
    verified = replica.log.producers.start_verification(7, 0, 0, 1)
    replica.append(bytearray(batch), now_ms=1, steady_ms=0, verification=verified)


async def test_a_position_is_what_a_member_has_asked_for_last_if_one_can_tell(here: Broker) -> None:
    async with team(here.bootstrap_servers, "readers", ["orders"]) as readers:
        await readers.join("anna")
        await readers.share()
        assert (await here.agroup("readers")).partition("orders", 0).position is None
        await aproduce(here, "orders", b"1", b"2")
        await readers.fetch("anna", "orders", topic_id(here), 0, 0)
        await readers.fetch("anna", "orders", topic_id(here), 0, 2)
        view = await here.agroup("readers")
        assert [row.position for row in view.partitions] == [2, None]
        async with team(here.bootstrap_servers, "others", ["orders"]) as others:
            await others.join("anna")  # of the same name, and at the same address
            await others.share()
            await others.fetch("anna", "orders", topic_id(here), 0, 1)
            assert (await here.agroup("readers")).partition("orders", 0).position is None
        await readers.leave("anna")
        assert (await here.agroup("readers")).partitions == []


async def test_there_is_no_group_before_there_is_one(broker: Broker) -> None:
    assert await broker.agroups() == []
    with pytest.raises(KafkaError, match="there is no group 'readers/1'") as caught:
        await broker.agroup("readers/1")
    assert caught.value.code == Error.GROUP_ID_NOT_FOUND
    assert await broker.atopics() == {"orders": 2}  # looking has made nothing


async def test_groups_are_told_of_by_http(broker: Broker) -> None:
    async with team(broker.bootstrap_servers, "readers", ["orders"]) as readers:
        await readers.join("anna")
        await readers.share()
        control = broker._running().control
        assert (await control("GET", "/groups", None))[0]["group"] == "readers"
        found = await control("POST", "/wait-group", {"group": "readers", "members": 1})
        assert found == await control("GET", "/groups/readers", None)
        assert found["partitions"][1]["lag_to_hw"] is None
        with pytest.raises(FaultError, match="there is no group 'writers'"):
            await control("GET", "/groups/writers", None)
        with pytest.raises(FaultError, match="missing a required argument: 'group'"):
            await control("POST", "/wait-group", {})
        with pytest.raises(FaultError, match="unexpected keyword argument 'grup'"):
            await control("POST", "/wait-group", {"group": "readers", "grup": 1})


def loaded_by(program: str) -> Iterator[str]:
    code = f"import sys; {program}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return (name for name in done.stdout.split() if re.match(r"minibroker\..*(group|coordinator)", name))


@pytest.mark.slow
@pytest.mark.parametrize("what", ["Broker", "Cluster"])
def test_a_broker_without_groups_loads_next_to_nothing_of_them(what: str) -> None:
    light = {"minibroker.groups", "minibroker.groups.service", "minibroker.cluster.groups"}
    light |= {"minibroker.coordinator", "minibroker.coordinator.service"}
    loaded = set(loaded_by(f"from minibroker import {what}; b = {what}(topics='a'); b.start(); b.stop()"))
    assert loaded <= light
