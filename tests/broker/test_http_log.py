"""Logs by HTTP: segments, how a place is found, and batches byte by byte, whatever lies in them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minibroker.broker.broker import Node
from minibroker.log.build import build_batch
from minibroker.log.compression import CODEC_NAMES, ZSTD
from minibroker.log.records import Record
from minibroker.security.acls import DESCRIBE, READ, TOPIC
from minibroker.security.principal import ANONYMOUS
from minibroker.tools.explain import explain
from tests.cluster.served import served
from tests.security.test_authorizing import creation
from tests.server.running import running
from tests.view.logs import START_MS, flip, plant, records, transaction

from .test_http_topics import AUTHORIZER, allow
from .test_http_verbs import ask

pytestmark = pytest.mark.outside

SMALL = {"segment.bytes": "1048576", "index.interval.bytes": "64"}


async def get(node: Node, path: str = "") -> Any:
    status, answer = await ask(node, "GET", f"/api/log/orders/0{path}")
    assert status == 200, answer
    return answer


def by_name(answer: Any) -> dict[str, Any]:
    return {field["path"]: field for field in answer["fields"]}


async def test_a_log_is_shown_with_its_segments_and_epochs() -> None:
    async with running() as node:
        node.create_topic("orders", 1, {"segment.bytes": "1048576"})
        batches = [
            build_batch(2, records(at, b"x" * 300_000), partition_leader_epoch=at // 5, codec=0) for at in range(10)
        ]
        plant(node, "orders", *batches, *transaction(10, 7, [b"open"], commit=None, epoch=1))
        face = await get(node)
        assert [(segment["base_offset"], segment["end_offset"]) for segment in face["segments"]] == [
            *((0, 3), (3, 6), (6, 9), (9, 11)),
        ]
        assert [segment["is_active"] for segment in face["segments"]] == [False, False, False, True]
        assert face["segments"][0]["latest_timestamp"] == START_MS + 2
        assert sum(segment["size_bytes"] for segment in face["segments"]) == face["size_bytes"]
        assert (face["start_offset"], face["high_watermark"], face["end_offset"]) == (0, 11, 11)
        assert face["last_stable_offset"] == 10
        assert face["open_transactions"] == [{"first_offset": 10, "producer_id": 7}]
        assert face["epochs"] == [{"epoch": 0, "start_offset": 0}, {"epoch": 1, "start_offset": 5}]
        assert face["recovery_point"] <= 11


async def test_entries_of_indexes_are_shown_all_or_each_so_many() -> None:
    async with running() as node:
        node.create_topic("orders", 1, {"index.interval.bytes": "1"})
        plant(node, "orders", *(build_batch(2, records(at, b"x")) for at in range(600)))
        shown = await get(node, "?segment=0")
        count = (await get(node))["segments"][0]["index_entries"]
        assert count > 500
        assert (shown["index_step"], len(shown["index"])) == (2, -(-count // 2))
        assert shown["index"][0]["position"] > 0
        assert [entry["offset"] for entry in shown["index"]] == sorted(entry["offset"] for entry in shown["index"])
        assert (await ask(node, "GET", "/api/log/orders/0?segment=7"))[0] == 404


async def test_the_steps_of_a_lookup_are_told() -> None:
    async with running() as node:
        node.create_topic("orders", 1, SMALL)
        plant(node, "orders", *(build_batch(2, records(at, b"x")) for at in range(100)))
        steps = (await get(node, "/lookup?offset=57"))["steps"]
        assert [step["kind"] for step in steps] == ["segment", "index", "scan", "batch"]
        assert steps[-1]["base_offset"] == 57
        steps = (await get(node, f"/lookup?time={START_MS + 57}"))["steps"]
        assert steps[1]["kind"] == "timeindex"
        assert steps[-1]["offset"] == 57
        assert (await get(node, "/lookup?offset=1000"))["steps"][0]["kind"] == "nothing"
        found = await get(node, f"/bytes?segment=0&at={steps[-2]['position']}")
        assert found["fields"][0]["value"] <= 57


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", range(len(CODEC_NAMES)))
async def test_batches_of_every_format_and_codec_are_explained_as_by_explain(magic: int, codec: int) -> None:
    if magic < 2 and codec == ZSTD:
        pytest.skip("zstd came with format 2")
    async with running() as node:
        node.create_topic("orders", 1)
        batch = build_batch(magic, records(0, *(b"value" * at for at in range(30)), key=b"k"), codec=codec)
        plant(node, "orders", batch)
        found = await get(node, "/bytes?offset=0&records=100&compare=1")
        first = batch if codec or magic == 2 else batch[: found["size_bytes"]]
        assert (found["hex"], found["position"]) == (first.hex(), 0)
        parts = json.loads(json.dumps([part.to_dict() for part in explain(first, "batch").parts]))
        for shown, part in zip(found["fields"], parts, strict=True):
            if "is_cut" in shown:
                part |= {"hex": part["hex"][:512], "value": shown["value"], "is_cut": True}
            assert shown == part
        assert "error" not in found
        sizes = {(row["format"], row["codec"]): row["bytes"] for row in found["formats"]}
        assert {format_ for format_, _ in sizes} == {0, 1, 2}
        if magic == 2:
            assert sizes[2, CODEC_NAMES[codec]] == len(batch)
        if magic or not codec:
            assert found["sent"]["in_place"], found["sent"]
        covered = found["size_bytes"] if not codec or magic < 2 else None
        outside = [field for field in found["fields"] if "inside" not in field]
        assert sum(field["to"] - field["from"] for field in outside) == (covered or len(batch))


async def test_what_the_broker_changed_stands_beside_what_was_sent() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        for value in ("first", "second"):
            await ask(node, "POST", "/api/topics/orders/records", {"value": value})
        sent = (await get(node, "/bytes?offset=1&compare=1"))["sent"]
        assert [change["path"].rpartition(".")[2] for change in sent["changed"]] == [
            *("base_offset", "partition_leader_epoch"),
        ]
        assert "the CRC stands" in sent["summary"]
        fields = by_name(await get(node, "/bytes?offset=1"))
        assert fields["batch[0].base_offset"]["set_by"] == "broker"
        assert fields["batch[0].crc"]["covers"][0] == 21
        assert fields["batch[0].records[0].value.size"]["meaning"]


async def test_the_same_records_are_to_be_had_in_the_other_formats() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        plant(node, "orders", build_batch(2, records(0, b"value", key=b"key"), codec=CODEC_NAMES.index("zstd")))
        sizes = []
        for magic in (0, 1, 2):
            found = await get(node, f"/bytes?offset=0&format={magic}")
            assert by_name(found)["batch[0].magic"]["value"] == magic
            sizes.append(found["size_bytes"])
        assert sizes == [34, 42, 76]


async def test_of_many_records_some_are_explained_and_the_rest_is_one_part() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        for magic, codec in ((2, 0), (2, 1), (1, 1)):
            start = node.replicas["orders", 0].log.log_end_offset
            rows = records(start, *[b"x"] * 5000)
            plant(node, "orders", build_batch(magic, rows, codec=codec))
            which = f"offset={start + 1234}" if magic == 2 else f"offset={start}&record=1234"
            found = await get(node, f"/bytes?{which}&records=3")
            parts = [field["path"] for field in found["fields"] if field["type"] == "not shown"]
            assert len(parts) == 2, parts
            assert "[0..1233]" in parts[0]
            assert "[1237..4999]" in parts[1]
            assert len(found["fields"]) < 60
            assert not [field for field in found["fields"] if "1237]" in field["path"]]
        found = await get(node, "/bytes?offset=0&records=0")
        assert [field["path"] for field in found["fields"]][-1] == "batch[0].records[0..4999]"
        assert "more than 100 records" in (await get(node, "/bytes?offset=0&compare=1"))["sent"]["why"]


async def test_sizes_are_bounded_whatever_lies_there() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        plant(node, "orders", build_batch(2, records(0, b"\xff" * 1_000_000, key=b"k" * 1_000_000)))
        headers = tuple((f"h{at}", b"v") for at in range(30_000))
        plant(node, "orders", build_batch(2, [Record(b"k", b"v", headers, START_MS, 1)]))
        plant(node, "orders", build_batch(2, records(2, b"x" * 5_000_000)))
        bomb = [Record(None, bytes(60 << 20), (), START_MS, 3)]
        plant(node, "orders", build_batch(2, bomb, codec=CODEC_NAMES.index("gzip")))
        found = await get(node, "/bytes?offset=0&compare=1")
        assert len(found["hex"]) == 2 * 65536
        assert found["hex_left_out"] == found["size_bytes"] - 65536
        value = by_name(found)["batch[0].records[0].value"]
        assert (value["is_cut"], len(value["hex"]), value["to"] - value["from"]) == (True, 512, 1_000_000)
        assert len(json.dumps(found)) < 200_000
        found = await get(node, "/bytes?offset=1&compare=1")
        assert "30,000 headers" in found["fields"][-1]["comment"]
        assert "65,536 bytes" in found["sent"]["why"]
        status, answer = await ask(node, "GET", "/api/log/orders/0/bytes?offset=2")
        assert (status, "are explained" in answer["error"]) == (400, True)
        found = await get(node, "/bytes?offset=3&compare=1")
        assert "error" in found
        assert len(json.dumps(found)) < 500_000


async def test_broken_bytes_are_shown_up_to_where_they_make_sense() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        batch = build_batch(2, records(0, b"value"))
        replica = plant(node, "orders", batch, build_batch(2, records(1, b"value")))
        flip(node, replica, 67)
        found = await get(node, "/bytes?segment=0&at=0&compare=1")
        assert by_name(found)["batch[0].crc"]["meaning"].startswith("WRONG")
        assert found["sent"]["why"] == "its checksum is wrong"
        flip(node, replica, 8)
        found = await get(node, "/bytes?segment=0&at=0")
        assert found["error"]
        assert found["hex"]
        found = await get(node, f"/bytes?segment=0&at={len(batch) - 5}")
        assert found["error"]
        for at in range(2 * len(batch)):
            assert (await ask(node, "GET", f"/api/log/orders/0/bytes?segment=0&at={at}"))[0] == 200
        status, answer = await ask(node, "GET", "/api/log/orders/0/lookup?offset=1")
        assert (status, bool(answer["error"])) == (400, True)
        for path in ("/bytes?offset=1", f"/lookup?time={START_MS + 1}"):
            assert (await ask(node, "GET", f"/api/log/orders/0{path}"))[0] in (200, 400)


async def test_a_marker_is_explained_and_was_sent_by_nobody() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        plant(node, "orders", *transaction(0, 7, [b"x"], commit=False))
        found = await get(node, "/bytes?offset=1&compare=1")
        assert found["sent"]["why"] == "it is a marker, and no producer sent it"
        assert "control" in by_name(found)["batch[0].attributes"]["meaning"]


async def test_each_replica_has_a_log_of_its_own() -> None:
    async with served() as cluster:
        cluster.create_topic("orders", 1, replication_factor=3)
        await cluster.waits.in_sync()
        leader = await cluster.waits.leader("orders", 0)
        node = cluster.nodes[next(broker for broker in (1, 2, 3) if broker != leader)]
        await ask(node, "POST", "/api/topics/orders/records", {"value": "x"})
        for broker in (1, 2, 3):
            face = await get(node, f"?broker={broker}")
            assert (face["broker"], face["leader"], face["end_offset"]) == (broker, leader, 1)
            assert (await get(node, f"/bytes?offset=0&broker={broker}"))["broker"] == broker
        assert (await get(node))["broker"] == leader
        await cluster.kill(leader)
        status, answer = await ask(node, "GET", f"/api/log/orders/0?broker={leader}")
        assert (status, answer["code"]) == (503, "BROKER_NOT_AVAILABLE")


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/log/none/0", 404, "there is no topic"),
        ("/api/log/orders/1", 404, "partitions 0 to 0"),
        ("/api/log/orders/-1", 400, "a partition is a number"),
        ("/api/log/orders/x", 400, "a partition is a number"),
        (f"/api/log/orders/{'9' * 300}", 400, "a partition is a number"),
        ("/api/log/orders/0?broker=9", 400, "is on"),
        ("/api/log/orders/0?segment=-1", 400, "segment is a number"),
        ("/api/log/orders/0/lookup", 400, "an offset or a time"),
        ("/api/log/orders/0/lookup?offset=1&time=1", 400, "not both"),
        ("/api/log/orders/0/lookup?offset=-1", 400, "offset is a number"),
        ("/api/log/orders/0/bytes", 400, "says which batch"),
        ("/api/log/orders/0/bytes?offset=5", 400, "comes next"),
        ("/api/log/orders/0/bytes?at=0", 400, "has 0 bytes"),
        ("/api/log/orders/0/bytes?at=99999999999999", 400, "has 0 bytes"),
        ("/api/log/orders/0/bytes?segment=8&at=0", 404, "no segment begins with 8"),
        ("/api/log/orders/0/bytes?offset=0&at=0", 400, "not both"),
        ("/api/log/orders/0/bytes?offset=0&records=101", 400, "records is a number"),
        ("/api/log/orders/0/bytes?offset=0&format=3", 400, "format is a number"),
        ("/api/log/orders/0/bytes?offset=0&record=4294967296", 400, "comes next"),
        ("/api/log/orders/0/nothing", 404, "there"),
    ],
)
async def test_what_makes_no_sense_is_refused_in_words(path: str, status: int, words: str) -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        found, answer = await ask(node, "GET", path)
        assert (found, words in (answer if isinstance(answer, str) else answer["error"])) == (status, True), answer


async def test_rules_are_asked_for_logs_too() -> None:
    async with running(AUTHORIZER) as node:
        node.create_topic("orders", 1)
        plant(node, "orders", build_batch(2, records(0, b"x")))
        for path in ("", "/lookup?offset=0", "/bytes?offset=0"):
            status, answer = await ask(node, "GET", f"/api/log/orders/0{path}")
            assert (status, answer["code"]) == (403, "TOPIC_AUTHORIZATION_FAILED")
            assert (await ask(node, "GET", f"/api/log/orders/0{path}", Sec_Fetch_Site="cross-site"))[0] == 403
            assert (await ask(node, "GET", f"/api/log/orders/0{path}", host="evil.example"))[0] == 403
    async with running({**AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}) as node:
        node.create_topic("orders", 1)
        plant(node, "orders", build_batch(2, records(0, b"x")))
        await allow(node, creation(TOPIC, "orders", DESCRIBE, who=str(ANONYMOUS)))
        assert (await get(node))["end_offset"] == 1
        assert (await ask(node, "GET", "/api/log/orders/0/bytes?offset=0"))[0] == 403
        await allow(node, creation(TOPIC, "orders", READ, who=str(ANONYMOUS)))
        assert (await ask(node, "GET", "/api/log/orders/0/bytes?offset=0"))[0] == 200
