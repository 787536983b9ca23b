"""Records by HTTP: written through Produce, and read as they lie in logs of all kinds, damaged ones too."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from minibroker.broker.broker import Node
from minibroker.log.build import build_batch
from minibroker.log.compression import CODEC_NAMES, ZSTD
from minibroker.log.records import Record
from minibroker.security.acls import DENY, DESCRIBE, READ, TOPIC, WRITE
from minibroker.security.principal import ANONYMOUS
from minibroker.stored.group_offsets import OffsetCommitKey, OffsetCommitValue
from tests.cluster.served import served
from tests.security.test_authorizing import creation
from tests.server.running import running
from tests.view.logs import START_MS, flip, plant, records, transaction

from .test_http_topics import AUTHORIZER, allow, some_node
from .test_http_verbs import ask

pytestmark = pytest.mark.outside

PATH = "/api/topics/orders/records"


async def read(node: Node, query: str = "") -> Any:
    status, answer = await ask(node, "GET", f"{PATH}?{query}" if query else PATH)
    assert status == 200, answer
    return answer


def offsets(answer: Any) -> list[int]:
    return [row["offset"] for row in answer["records"]]


def texts(answer: Any) -> list[str | None]:
    return [row["value"] and row["value"].get("text") for row in answer["records"]]


@pytest.mark.parametrize("kind", ["broker", "cluster"])
async def test_records_are_written_to_the_leader_and_read_from_it(kind: str) -> None:
    async with some_node(kind) as node:
        made = {"name": "orders", "partitions": 3, "replicas": -1 if kind == "broker" else 3}
        assert (await ask(node, "POST", "/api/topics", made))[0] == 200
        rows = [{"partition": number % 3, "value": {"n": number}, "key": f"k{number}"} for number in range(6)]
        status, written = await ask(node, "POST", PATH, {"records": rows})
        assert (status, written["failed"]) == (200, 0), written
        assert [(row["partition"], row["offset"]) for row in written["records"]] == [
            *((0, 0), (1, 0), (2, 0)),
            *((0, 1), (1, 1), (2, 1)),
        ]
        found = await read(node, "partition=1&offset=0")
        assert texts(found) == ['{"n":1}', '{"n":4}']
        assert [row["key"]["text"] for row in found["records"]] == ["k1", "k4"]
        assert [row["timestamp"] for row in found["records"]] == [written["records"][at]["timestamp"] for at in (1, 4)]
        (part,) = found["partitions"]
        assert (part["ended"], part["next_offset"], part["high_watermark"]) == ("end", 2, 2)
        found = await read(node)
        assert sorted(map(str, texts(found))) == sorted(f'{{"n":{number}}}' for number in range(6))
        assert found["order"] == "newest first"


async def test_who_leads_is_found_whichever_broker_is_asked() -> None:
    async with served() as cluster:
        cluster.create_topic("orders", 3, replication_factor=1)
        leaders = {partition.leader for partition in cluster.controller.image.topics["orders"].partitions}
        assert len(leaders) == 3
        for node in cluster.nodes.values():
            for number in range(3):
                status, answer = await ask(node, "POST", PATH, {"partition": number, "value": "x"})
                assert status == 200, answer
        found = await read(cluster.nodes[1])
        assert len(found["records"]) == 9


async def test_a_write_waits_for_all_in_sync_and_says_when_they_are_too_few() -> None:
    async with served() as cluster:
        cluster.create_topic("orders", 1, replication_factor=3, min_insync_replicas="3")
        await cluster.waits.in_sync()
        leader = await cluster.waits.leader("orders", 0)
        node = cluster.nodes[leader]
        assert (await ask(node, "POST", PATH, {"value": "x"}))[0] == 200
        other = next(broker for broker in (1, 2, 3) if broker != leader)
        cluster.links.cut(leader, other)
        status, answer = await ask(node, "POST", PATH, {"value": "y", "timeout_ms": 100})
        assert (status, answer["code"]) == (504, "REQUEST_TIMED_OUT")
        cluster.links.heal()
        await cluster.stop(other)
        await cluster.waits.isr("orders", 0, [broker for broker in (1, 2, 3) if broker != other])
        status, answer = await ask(node, "POST", PATH, {"value": "z"})
        assert (status, answer["code"]) == (503, "NOT_ENOUGH_REPLICAS")


async def test_a_leader_that_is_gone_or_stopped_is_told() -> None:
    async with served() as cluster:
        cluster.create_topic("orders", 1, replication_factor=1)
        leader = await cluster.waits.leader("orders", 0)
        other = next(node for broker, node in cluster.nodes.items() if broker != leader)
        cluster.pause(leader)
        status, answer = await ask(other, "POST", PATH, {"value": "x"})
        assert (status, answer["code"]) == (503, "LEADER_NOT_AVAILABLE")
        assert "paused" in answer["error"]
        cluster.resume(leader)
        await cluster.kill(leader)
        for method, body in (("POST", {"value": "x"}), ("GET", None)):
            status, answer = await ask(other, method, PATH, body)
            assert status == 503, answer
            assert answer["code"] in ("LEADER_NOT_AVAILABLE", "BROKER_NOT_AVAILABLE")


async def test_another_replica_can_be_read() -> None:
    async with served() as cluster:
        cluster.create_topic("orders", 1, replication_factor=2)
        await cluster.waits.in_sync()
        await ask(cluster.nodes[1], "POST", PATH, {"value": "x"})
        replicas = cluster.controller.image.topics["orders"].partitions[0].replicas
        (without,) = {1, 2, 3} - set(replicas)
        for broker in replicas:
            found = await read(cluster.nodes[3], f"broker={broker}")
            assert found["partitions"][0]["broker"] == broker
        status, answer = await ask(cluster.nodes[1], "GET", f"{PATH}?partition=0&broker={without}")
        assert (status, answer["code"]) == (400, "REPLICA_NOT_AVAILABLE")


# What is written


async def test_keys_values_and_headers_may_be_anything() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        raw = bytes(range(256))
        rows = [
            {"value": "text", "key": None},
            {"value": {"a": [1, 2.5, None, "ü"]}},
            {"value": 7, "key": 8},
            {"value_base64": base64.b64encode(raw).decode(), "key_hex": raw.hex()},
            {"value": None, "key": ""},
            {"headers": {"a": "1", "b": None, "c": {"x": 1}}},
            {"headers": [{"name": "twice", "value": "1"}, {"name": "twice", "value_hex": "ff"}], "timestamp": 7},
        ]
        status, written = await ask(node, "POST", PATH, {"records": rows, "acks": 1})
        assert (status, [row["offset"] for row in written["records"]]) == (200, list(range(7)))
        (batch,) = _batches(node)
        found = list(batch.records())
        assert [(record.key, record.value) for record in found] == [
            (None, b"text"),
            (None, '{"a":[1,2.5,null,"ü"]}'.encode()),
            (b"8", b"7"),
            (raw, raw),
            (b"", None),
            (None, None),
            (None, None),
        ]
        assert found[5].headers == (("a", b"1"), ("b", None), ("c", b'{"x":1}'))
        assert found[6].headers == (("twice", b"1"), ("twice", b"\xff"))
        assert found[6].timestamp == 7


def _batches(node: Node) -> list[Any]:
    return [batch for segment in node.replicas["orders", 0].log.segments for batch in segment.batches()]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({}, 400, "1 to 1000 records"),
        ({"records": []}, 400, "1 to 1000 records"),
        ({"records": [{}] * 1001}, 400, "1 to 1000 records"),
        ({"records": {}}, 400, "a list of records"),
        ({"records": [1]}, 400, "record 0: it is to be an object"),
        ({"records": [{"colour": 1}]}, 400, "there is no 'colour'"),
        ({"records": [{}], "value": "x"}, 400, "not both"),
        ({"value": "x", "acks": 0}, 400, "acks"),
        ({"value": "x", "acks": []}, 400, "acks"),
        ({"value": "x", "acks": True}, 400, "acks"),
        ({"value": "x", "timeout_ms": -1}, 400, "timeout_ms"),
        ({"value": "x", "timeout_ms": 1 << 40}, 400, "timeout_ms"),
        ({"value": "x", "value_hex": "00"}, 400, "is enough"),
        ({"value_hex": "0"}, 400, "is not hex"),
        ({"value_base64": "%%%"}, 400, "is not base64"),
        ({"value": "x", "partition": 3}, 404, "partitions 0 to 2"),
        ({"value": "x", "partition": -1}, 400, "from 0"),
        ({"value": "x", "partition": 1 << 80}, 404, "partitions 0 to 2"),
        ({"value": "x", "partition": "0"}, 400, "partition is a number"),
        ({"value": "x", "timestamp": -5}, 400, "timestamp"),
        ({"value": "x", "timestamp": 1 << 63}, 400, "timestamp"),
        ({"value": "x", "timestamp": 1.5}, 400, "timestamp"),
        ({"value": "x", "headers": 7}, 400, "headers"),
        ({"value": "x", "headers": ["a"]}, 400, "a header has a name"),
        ({"value": "x", "headers": [{"name": 1}]}, 400, "a header has a name"),
        (b'{"value": "\\ud800"}', 400, "surrogates"),
        (b'{"value": "x", "headers": {"\\ud800": "x"}}', 400, "surrogates"),
        ({"key": "x" * 40_000}, 400, "needs a partition"),
    ],
)
async def test_what_cannot_be_written_is_refused_and_nothing_is(body: Any, status: int, words: str) -> None:
    async with running() as node:
        node.create_topic("orders", 3)
        found, answer = await ask(node, "POST", PATH, body)
        assert (found, words in answer["error"]) == (status, True), answer
        assert [node.replicas["orders", number].log.log_end_offset for number in range(3)] == [0, 0, 0]


async def test_what_produce_refuses_is_told_in_its_words() -> None:
    async with running({"message.timestamp.after.max.ms": "1000"}) as node:
        node.create_topic("orders", 1, {"max.message.bytes": "200"})
        status, answer = await ask(node, "POST", PATH, {"value": "x" * 500})
        assert (status, answer["code"]) == (413, "MESSAGE_TOO_LARGE")
        status, answer = await ask(node, "POST", PATH, {"value": "x", "timestamp": node.clock.now_ms() + 10**9})
        assert (status, answer["code"]) == (400, "INVALID_TIMESTAMP")
        assert "Timestamp" in answer["error"]
        node.create_topic("__consumer_offsets", 1)
        status, answer = await ask(node, "POST", "/api/topics/__consumer_offsets/records", {"value": "x"})
        assert (status, answer["code"]) == (400, "INVALID_TOPIC_EXCEPTION")
        status, answer = await ask(node, "POST", "/api/topics/none/records", {"value": "x"})
        assert (status, answer["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")


async def test_some_may_be_refused_and_the_rest_is_written() -> None:
    async with served() as cluster:
        cluster.create_topic("orders", 3, replication_factor=1)
        gone = cluster.controller.image.topics["orders"].partitions[1].leader
        await cluster.kill(gone)
        node = next(iter(cluster.nodes.values()))
        rows = [{"value": "x", "partition": number} for number in range(3)]
        status, answer = await ask(node, "POST", PATH, {"records": rows})
        assert (status, answer["failed"]) == (200, 1)
        assert [row.get("offset") for row in answer["records"]] == [0, None, 0]
        assert answer["records"][1]["code"] == "LEADER_NOT_AVAILABLE"


async def test_a_topic_of_an_old_format_or_another_codec_is_written_to() -> None:
    for as_version, magic in (("0.9.0", 0), ("0.10.2", 1), ("3.9", 2)):
        async with running(as_version=as_version) as node:
            node.create_topic("orders", 1)
            status, answer = await ask(node, "POST", PATH, {"records": [{"value": "a"}, {"value": "b"}]})
            assert status == 200, answer
            found = await read(node, "offset=0")
            assert texts(found) == ["a", "b"]
            assert {row["batch"]["format"] for row in found["records"]} == {magic}
    async with running() as node:
        node.create_topic("orders", 1, {"compression.type": "gzip"})
        await ask(node, "POST", PATH, {"value": "a"})
        assert [row["batch"]["codec"] for row in (await read(node))["records"]] == ["gzip"]


# What is read


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", range(len(CODEC_NAMES)))
async def test_every_format_and_codec_is_read(magic: int, codec: int) -> None:
    if magic < 2 and codec == ZSTD:
        pytest.skip("zstd came with format 2")
    async with running() as node:
        node.create_topic("orders", 1)
        rows = records(0, *(f"value {number}".encode() * 20 for number in range(30)), key=b"k")
        plant(node, "orders", build_batch(magic, rows, codec=codec), build_batch(magic, records(30, b"last")))
        found = await read(node, "offset=5&limit=3")
        assert offsets(found) == [5, 6, 7]
        assert texts(found) == ["value 5" * 20, "value 6" * 20, "value 7" * 20]
        batch = found["records"][0]["batch"]
        assert (batch["format"], batch["codec"]) == (magic, CODEC_NAMES[codec])
        assert [row["timestamp_type"] for row in found["records"]] == [None if magic == 0 else "create"] * 3
        assert (found["partitions"][0]["ended"], found["partitions"][0]["next_offset"]) == ("limit", 8)
        assert offsets(await read(node, "newest=4")) == [30, 29, 28, 27]
        assert offsets(await read(node, "offset=8&limit=200"))[-1] == 30
        assert offsets(await read(node, f"time={START_MS + 12}&limit=1")) == ([12] if magic else [])


async def test_what_bytes_are_taken_for_is_said_and_why_nothing_before_fits() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        number = (1 << 40).to_bytes(8, "big")
        values = [b'{"id": 7}', b"plain", b"\0\0\0\0\7\x0eA", b'\0\0\0\0\x09{"a":1}', number, b"\xff\0\x01", None, b""]
        plant(node, "orders", build_batch(2, records(0, *values)))
        rows = (await read(node, "offset=0"))["records"]
        assert [row["value"] and row["value"]["as"] for row in rows] == [
            *("json", "text", "registry", "registry", "registry", "bytes", None, "text"),
        ]
        assert rows[1]["value"]["not"].keys() == {"registry", "json"}
        assert (rows[2]["value"]["schema_id"], rows[2]["value"]["hex"]) == (7, "0e41")
        assert (rows[3]["value"]["schema_id"], rows[3]["value"]["text"]) == (9, '{"a":1}')
        assert rows[4]["value"]["number"] == 1 << 40
        assert rows[5]["value"]["hex"] == "ff0001"
        assert rows[5]["value"]["not"].keys() == {"registry", "json", "text", "number"}
        assert rows[7]["value"]["text"] == ""
        plant(node, "orders", build_batch(2, records(8, (-3).to_bytes(4, "big", signed=True))))
        (row,) = (await read(node, "offset=8"))["records"]
        assert (row["value"]["as"], row["value"]["text"], row["value"]["hex"]) == ("number", "-3", "fffffffd")
        (row,) = (await read(node, "offset=8&bytes=base64"))["records"]
        assert row["value"]["base64"] == base64.b64encode(b"\xff\xff\xff\xfd").decode()


async def test_internal_topics_are_read_by_their_own_schemas() -> None:
    async with running() as node:
        node.create_topic("__consumer_offsets", 1)
        key = OffsetCommitKey(group="g", topic="orders", partition=0)
        value = OffsetCommitValue(offset=42, metadata="", commit_timestamp=7)
        rows = [
            Record(key.encode_stored(), value.encode_stored(4), (), START_MS, 0),
            Record(key.encode_stored(), None, (), START_MS, 1),
            Record(b"\0\1\xff", b"\0\3", (), START_MS, 2),
            Record(None, b"x", (), START_MS, 3),
        ]
        plant(node, "__consumer_offsets", build_batch(2, rows))
        _, found = await ask(node, "GET", "/api/topics/__consumer_offsets/records?offset=0")
        first, gone, broken, keyless = found["records"]
        assert first["key"]["as"] == first["value"]["as"] == "internal"
        assert json.loads(first["key"]["text"])["data"]["group"] == "g"
        assert json.loads(first["value"]["text"])["data"]["offset"] == 42
        assert (gone["key"]["as"], gone["value"]) == ("internal", None)
        assert broken["key"]["as"] == "bytes"
        assert "Could not read" in broken["key"]["not"]["internal"]
        assert "has no key" in keyless["value"]["not"]["internal"]


async def test_long_values_are_shown_by_how_they_begin_and_one_whole_on_demand() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        million = 1 << 20
        values = [b"x" * million, b"\xff" * million, json.dumps(["y" * million]).encode(), "ü".encode() * million]
        plant(node, "orders", *(build_batch(2, records(at, value)) for at, value in enumerate(values)))
        found = await read(node, "offset=0&max_bytes=8000000")
        assert [row["value"]["size_bytes"] for row in found["records"]] == [len(value) for value in values]
        assert [len(row["value"].get("text", row["value"].get("hex"))) for row in found["records"]] == [4096] * 4
        assert all(row["value"]["is_cut"] for row in found["records"])
        assert "more than 65,536 bytes" in found["records"][2]["value"]["not"]["json"]
        assert len(json.dumps(found)) < 100_000
        (row,) = (await read(node, "offset=0&whole=1"))["records"]
        assert row["value"]["text"] == "x" * million
        assert "is_cut" not in row["value"]
        (row,) = (await read(node, "offset=1&whole=1"))["records"]
        assert (len(row["value"]["hex"]), row["value"]["is_cut"]) == (million, True)
        (row,) = (await read(node, "offset=3&whole=1"))["records"]
        assert (set(row["value"]["text"]), row["value"]["is_cut"]) == ({"ü"}, True)
        assert (await ask(node, "GET", f"{PATH}?whole=1&limit=2"))[0] == 400


async def test_many_headers_are_cut_and_counted() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        headers = tuple((f"h{number}", b"v" * 1000) for number in range(200))
        plant(node, "orders", build_batch(2, [Record(None, b"", headers, START_MS, 0)]))
        (row,) = (await read(node, "offset=0"))["records"]
        assert (len(row["headers"]), row["headers_left_out"]) == (50, 150)
        assert len(row["headers"][0]["value"]["text"]) == 256
        (row,) = (await read(node, "offset=0&whole=1"))["records"]
        assert len(row["headers"]) == 200
        assert len(row["headers"][0]["value"]["text"]) == 1000


async def test_an_answer_has_a_limit_whatever_is_asked_for() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        rows = [Record(b"\xff" * 4096, b"\xff" * 4096, (), START_MS, at) for at in range(400)]
        plant(node, "orders", *(build_batch(2, rows[at : at + 100]) for at in range(0, 400, 100)))
        for query in ("offset=0&limit=200&max_bytes=8000000", "newest=200&max_bytes=8000000"):
            found = await read(node, query)
            assert found["partitions"][0]["ended"] == "answer"
            assert 100 < len(found["records"]) < 200
            assert len(json.dumps(found)) < 1_200_000
        found = await read(node, "offset=0&limit=200&max_bytes=1000")
        assert (found["partitions"][0]["ended"], found["partitions"][0]["next_offset"]) == ("max_bytes", 100)
        found = await read(node, "newest=200&max_bytes=1000")
        assert found["partitions"][0]["ended"] == "max_bytes"
        assert offsets(found)[0] == 399


async def test_transactions_are_marked_and_read_committed_leaves_out_what_was_aborted() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        plant(
            node,
            "orders",
            *transaction(0, 7, [b"kept"], commit=True),
            *transaction(2, 8, [b"dropped", b"too"], commit=False),
            build_batch(2, records(5, b"plain")),
            *transaction(6, 9, [b"open"], commit=None),
            build_batch(2, records(7, b"behind")),
        )
        found = await read(node, "offset=0")
        assert [row["batch"].get("transaction") for row in found["records"]] == [
            *("committed", None, "aborted", "aborted", None, None, "open", None),
        ]
        assert [row.get("control") for row in found["records"]] == [
            *(None, "commit", None, None, "abort", None, None, None),
        ]
        assert "endTxnMarker: COMMIT" in found["records"][1]["text"]
        assert [row["batch"].get("producer_id") for row in found["records"]][:3] == [7, 7, 8]
        found = await read(node, "offset=0&isolation=read_committed&markers=0")
        assert texts(found) == ["kept", "plain"]
        (part,) = found["partitions"]
        assert part["left_out"] == {"aborted": 2, "markers": 2}
        assert (part["last_stable_offset"], part["high_watermark"], part["next_offset"]) == (6, 8, 6)
        assert offsets(await read(node, "newest=2&isolation=read_committed&markers=0")) == [5, 0]


async def test_gaps_that_compaction_has_left_are_told_and_looked_over() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        some = [Record(b"k", b"v", (), START_MS, at) for at in (3, 10)]
        plant(
            node,
            "orders",
            build_batch(2, some, base_offset=0, last_offset=20),
            build_batch(2, records(1_000_000, b"far")),
            build_batch(2, [Record(b"k", b"v", (), START_MS, 3_000_000_500)], base_offset=3_000_000_000),
        )
        found = await read(node, "offset=0")
        assert offsets(found) == [3, 10, 1_000_000, 3_000_000_500]
        gaps = found["partitions"][0]["gaps"]
        assert gaps == [[0, 3], [4, 10], [11, 1_000_000], [1_000_001, 3_000_000_500]]
        assert offsets(await read(node, "newest=3")) == [3_000_000_500, 1_000_000, 10]
        assert offsets(await read(node, "offset=500")) == [1_000_000, 3_000_000_500]


async def test_damage_is_told_and_the_rest_is_read() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        batches = [build_batch(2, records(at, b"value %d" % at)) for at in range(5)]
        replica = plant(node, "orders", *batches)
        flip(node, replica, len(batches[0]) + 65)  # in the records of the second
        found = await read(node, "offset=0")
        assert offsets(found) == [0, 2, 3, 4]
        (damage,) = found["partitions"][0]["damaged"]
        assert (damage["offset"], damage["position"]) == (1, len(batches[0]))
        assert "checksum" in damage["error"]
        flip(node, replica, 3 * len(batches[0]) + 8)  # the size of the fourth: nobody knows where the next one begins
        found = await read(node, "offset=0")
        assert offsets(found) == [0, 2]
        assert found["partitions"][0]["ended"] == "damaged"
        assert found["partitions"][0]["error"]
        (part,) = (await read(node, "offset=3"))["partitions"]
        assert (part["ended"], part["next_offset"]) == ("damaged", 3)
        for query in ("newest=3", "newest=200", f"time={START_MS + 3}"):
            status, answer = await ask(node, "GET", f"{PATH}?{query}")
            assert status in (200, 400), answer


async def test_a_record_that_claims_to_be_huge_is_no_harm() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        bomb = build_batch(2, [Record(None, bytes(60 << 20), (), START_MS, 0)], codec=CODEC_NAMES.index("gzip"))
        plant(node, "orders", bomb, build_batch(2, records(1, b"after")))
        found = await read(node, "offset=0")
        assert offsets(found) == [0, 1]
        assert found["records"][0]["value"]["size_bytes"] == 60 << 20
        assert found["records"][0]["value"]["is_cut"]
        bomb = build_batch(2, [Record(None, bytes(65 << 20), (), START_MS, 2)], codec=CODEC_NAMES.index("gzip"))
        plant(node, "orders", bomb, build_batch(2, records(3, b"after")))
        found = await read(node, "offset=2")
        assert offsets(found) == [3]
        assert "67108864" in found["partitions"][0]["damaged"][0]["error"]


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("limit=0", 400, "limit is a number from 1 to 200"),
        ("limit=201", 400, "limit"),
        (f"limit={'9' * 300}", 400, "limit"),
        ("limit=-1", 400, "limit"),
        ("limit=1.5", 400, "limit"),
        ("limit=%D9%A1", 400, "limit"),
        ("max_bytes=0", 400, "max_bytes"),
        ("max_bytes=99999999", 400, "max_bytes"),
        ("partition=-1", 400, "partition"),
        ("partition=2", 404, "partitions 0 to 1"),
        ("partition=99999999999", 400, "partition"),
        ("partition=0&offset=9", 400, "not within 0 to 0"),
        ("partition=0&offset=9223372036854775807", 400, "not within"),
        ("partition=0&offset=9223372036854775808", 400, "offset is a number"),
        ("offset=0", 400, "an offset needs one"),
        ("offset=0&time=0", 400, "not both"),
        ("newest=0", 400, "newest"),
        ("isolation=serializable", 400, "isolation is one of"),
        ("markers=yes", 400, "markers is one of"),
        ("bytes=raw", 400, "bytes is one of"),
        ("broker=7", 400, "is on"),
        ("broker=x", 400, "broker is a number"),
        ("colour=red", 400, "there is no 'colour'"),
        ("limit", 400, "name=value"),
    ],
)
async def test_a_query_that_makes_no_sense_is_refused_in_words(query: str, status: int, words: str) -> None:
    async with running() as node:
        node.create_topic("orders", 2)
        found, answer = await ask(node, "GET", f"{PATH}?{query}")
        assert (found, words in answer["error"]) == (status, True), answer


async def test_a_topic_that_is_deleted_meanwhile_is_no_harm() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        plant(node, "orders", *(build_batch(2, records(at, b"x" * 70_000)) for at in range(50)))
        shares = node.feed.shares
        turns = shares.turn

        async def turn() -> None:
            if "orders" in node.image.topics:
                node.change(node.controller.delete_topic(name="orders"))
            await turns()

        shares.turn = turn  # type: ignore[method-assign]
        status, answer = await ask(node, "GET", f"{PATH}?offset=0&max_bytes=8000000")
        assert status in (200, 404, 503), answer
        assert (await ask(node, "GET", PATH))[0] == 404


async def test_rules_say_who_may_read_and_write() -> None:
    async with running({**AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}) as node:
        node.create_topic("orders", 1)
        who = str(ANONYMOUS)
        await allow(node, creation(TOPIC, "orders", WRITE, who=who))
        assert (await ask(node, "POST", PATH, {"value": "x"}))[0] == 200
        status, answer = await ask(node, "GET", PATH)
        assert (status, answer["code"]) == (403, "TOPIC_AUTHORIZATION_FAILED")
        await allow(node, creation(TOPIC, "orders", READ, who=who))
        assert offsets(await read(node)) == [0]
        await allow(
            node,
            creation(TOPIC, "orders", WRITE, permission=DENY, who=who),
            creation(TOPIC, "orders", DESCRIBE, who=who),
        )
        status, answer = await ask(node, "POST", PATH, {"value": "x"})
        assert (status, answer["code"]) == (403, "TOPIC_AUTHORIZATION_FAILED")
        assert node.replicas["orders", 0].log.log_end_offset == 1
