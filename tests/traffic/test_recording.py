"""Frames in a file: what is kept, what is masked, what is torn; and sent again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minibroker import Broker
from minibroker.client import Cluster as Client
from minibroker.client import Producer
from minibroker.clock import LoopClock
from minibroker.traffic.differences import Learned, differences
from minibroker.traffic.exchanges import rows
from minibroker.traffic.files import open_recorder, read
from minibroker.traffic.recording import CONNECTION, REQUEST, BrokenRecording
from minibroker.traffic.replay import Replay, ReplayedRequest


async def record(path: Path, **arguments: object) -> None:
    """Write down what a client does that makes a topic, produces and reads."""
    recorder = open_recorder(str(path), LoopClock(), pytest.fail)
    broker = Broker(**arguments)  # type: ignore[arg-type]
    async with broker:
        servers = broker._running()._node.servers  # type: ignore[attr-defined]
        for server in servers:
            server.service = recorder.over(server.service, 1)
        if not arguments:
            async with Broker.attach(broker.bootstrap_servers) as client:
                await client.acreate_topic("orders")
                await client.aproduce("orders", {"id": 1}, key="k")
                await client.arecords("orders")
        else:
            await broker.acreate_topic("orders")
            await broker.aproduce("orders", "x")
    recorder.close()


async def replayed(path: Path, address: str) -> list[ReplayedRequest]:
    host, _, port = address.rpartition(":")
    return [each async for each in Replay((host, int(port)), LoopClock()).run(read(str(path)).entries)]


async def test_what_a_client_did_is_in_the_file(tmp_path: Path) -> None:
    await record(tmp_path / "traffic.rec")
    recording = read(str(tmp_path / "traffic.rec"))
    assert not recording.torn_bytes
    found = [row for _, row in rows(recording.entries)]
    assert [row.summary for row in found if row.api == "Produce"] == ["orders-0 1 record, 77 B -> offset 0"]
    assert any(row.api == "Fetch" and "orders-0 at 0 -> 1 record" in row.summary for row in found)
    assert all(row.ms is not None and row.broker == 1 for row in found)


async def test_the_same_requests_are_answered_alike_by_a_new_broker(tmp_path: Path) -> None:
    path = tmp_path / "traffic.rec"
    await record(path)
    async with Broker() as other:
        outcomes = await replayed(path, other.bootstrap_servers)
        assert [record.value for record in await other.arecords("orders")] == [b'{"id":1}']
    assert len(outcomes) == sum(entry.kind == REQUEST for entry in read(str(path)).entries)
    assert not [each for each in outcomes if each.reason]
    assert [str(each) for outcome in outcomes for each in outcome.differences if not each.is_natural] == []
    assert [each for outcome in outcomes for each in outcome.differences if each.is_natural]


async def test_another_answer_is_told_field_by_field(tmp_path: Path) -> None:
    path = tmp_path / "traffic.rec"
    await record(path)
    async with Broker(topics=["orders"]) as other:
        await other.aproduce("orders", "before")
        outcomes = await replayed(path, other.bootstrap_servers)
    told = [str(each) for outcome in outcomes for each in outcome.differences if not each.is_natural]
    assert "topics[orders].error_code: 0 was recorded, 36 now" in told
    assert any(re.fullmatch(r"responses\[.*\]\.base_offset: 0 was recorded, 1 now", each) for each in told)


async def test_a_torn_end_is_passed_over_and_cut_off_by_who_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "traffic.rec"
    await record(path)
    whole = read(str(path))
    path.write_bytes(path.read_bytes() + b"\0\0\0\x30torn")
    assert read(str(path)) == (whole.entries, whole.end, 8)
    told: list[str] = []
    open_recorder(str(path), LoopClock(), told.append).close()
    assert told == [f"{path}: 8 bytes behind the last whole frame are cut off"]
    await record(path)
    connections = [each.connection for each in read(str(path)).entries if each.kind == CONNECTION]
    assert connections == list(range(1, len(connections) + 1))
    assert len(read(str(path)).entries) > len(whole.entries)
    path.write_bytes(b"no recording")
    with pytest.raises(BrokenRecording, match="does not begin as a recording"):
        open_recorder(str(path), LoopClock(), told.append)


async def test_what_a_login_says_is_masked(tmp_path: Path) -> None:
    path = tmp_path / "traffic.rec"
    await record(path, users={"alice": "hush-hush"})
    data = path.read_bytes()
    assert b"hush" not in data
    assert b"alice" not in data
    masked = [entry for entry in read(str(path)).entries if entry.is_masked]
    assert masked
    assert max(len(entry.payload) for entry in masked) <= 8


def test_rows_are_compared_by_what_they_are_about() -> None:
    learned = Learned()
    recorded = {"topics": [{"name": "a", "topic_id": b"1" * 16, "x": 1}, {"name": "b", "topic_id": b"2" * 16, "x": 2}]}
    now = {"topics": [{"name": "b", "topic_id": b"3" * 16, "x": 2}, {"name": "a", "topic_id": b"4" * 16, "x": 5}]}
    found = list(differences(recorded, now, learned))
    assert [str(each) for each in found if not each.is_natural] == ["topics[a].x: 1 was recorded, 5 now"]
    assert learned.now("topic_id", b"2" * 16) == b"3" * 16
    again = {"responses": [{"topic_id": b"1" * 16, "error_code": 0}]}
    assert list(differences(again, {"responses": [{"topic_id": b"4" * 16, "error_code": 0}]}, learned)) == []


async def transact(address: str, transactional_id: str) -> None:
    async with Client(address) as client, Producer(client, transactional_id=transactional_id) as producer:
        await producer.init_transactions()
        producer.begin_transaction()
        await producer.send("orders", b"paid")
        await producer.commit_transaction()


async def test_ids_that_a_broker_made_up_are_those_of_now(tmp_path: Path) -> None:
    """Of topics, in Produce and Fetch; of producers, in the batches themselves, too."""
    path = tmp_path / "traffic.rec"
    recorder = open_recorder(str(path), LoopClock(), pytest.fail)
    async with Broker(topics=["orders"]) as broker:
        (server,) = broker._running()._node.servers  # type: ignore[attr-defined]
        server.service = recorder.over(server.service, 1)
        await transact(broker.bootstrap_servers, "pay")
    recorder.close()
    async with Broker(topics=["other", "orders"]) as now:
        await now.acreate_topic("bills")
        await transact(now.bootstrap_servers, "another")
        outcomes = await replayed(path, now.bootstrap_servers)
        assert [record.value for record in await now.await_records("orders", 2)] == [b"paid", b"paid"]
        before, after = [(await now.atransaction(name)).producer_id for name in ("another", "pay")]
        assert before != after
    told = [each for outcome in outcomes for each in outcome.differences if not each.is_natural]
    assert [each.path.rpartition(".")[2] for each in told] == ["base_offset"]
    assert not [each for each in outcomes if each.reason]
