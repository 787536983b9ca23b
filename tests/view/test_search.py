"""Searches and tails: what they find, what they say that they left out, and that they end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from minibroker.broker.broker import Node
from minibroker.log.build import build_batch
from minibroker.log.compression import CODEC_NAMES, ZSTD
from minibroker.log.records import Record
from minibroker.security.acls import DENY, READ, TOPIC
from minibroker.security.principal import ANONYMOUS
from minibroker.view.filters import BadFilter, Filter, JsonTest
from minibroker.view.sliced_stream import READERS_MAX
from tests.broker.test_http_topics import AUTHORIZER, allow
from tests.broker.test_http_verbs import ask
from tests.cluster.served import served
from tests.security.test_authorizing import creation
from tests.server.running import Client, connected, running
from tests.view.logs import START_MS, flip, plant, records, transaction

pytestmark = pytest.mark.outside


class Stream:
    """What a browser gets of a search or a tail."""

    def __init__(self, client: Client):
        self.client = client

    async def next(self) -> tuple[str, Any]:
        while True:
            block = (await self.client.reader.readuntil(b"\n\n")).decode().rstrip("\n")
            if not block.startswith(":"):
                fields = dict(line.split(": ", 1) for line in block.split("\n"))
                return fields["event"], json.loads(fields["data"])

    async def until(self, event: str) -> Any:
        while True:
            found, data = await self.next()
            if found == event:
                return data

    async def all(self) -> list[tuple[str, Any]]:
        found = []
        try:
            while True:
                found.append(await self.next())
        except asyncio.IncompleteReadError as end:
            assert not end.partial
        return found


@asynccontextmanager
async def stream(node: Node, path: str, buffer_bytes: int = 0) -> AsyncIterator[Stream]:
    async with connected(node, buffer_bytes=buffer_bytes) as client:
        client.send(f"GET /api/topics/{path} HTTP/1.1\r\nHost: localhost:9092\r\n\r\n".encode())
        head = (await client.reader.readuntil(b"\r\n\r\n")).decode()
        assert "200 OK" in head, head + (await client.reader.read()).decode()
        assert "Content-Type: text/event-stream" in head
        yield Stream(client)


async def search(node: Node, query: str) -> tuple[list[int], dict[str, Any]]:
    """Return the offsets of hits, and what is said at the end."""
    async with stream(node, f"orders/search?{query}") as found:
        events = await found.all()
    assert events[-1][0] == "end"
    return [data["offset"] for event, data in events if event == "hit"], events[-1][1]


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", range(len(CODEC_NAMES)))
async def test_what_fits_is_found_in_every_format_and_codec(magic: int, codec: int) -> None:
    if magic < 2 and codec == ZSTD:
        pytest.skip("zstd came with format 2")
    async with running() as node:
        node.create_topic("orders", 1)
        for start in range(0, 300, 100):
            rows = [
                Record(f"k{at % 7}".encode(), f'{{"user": {{"id": {at}}}}}'.encode(), (), START_MS + at, at)
                for at in range(start, start + 100)
            ]
            plant(node, "orders", build_batch(magic, rows, codec=codec))
        hits, end = await search(node, "text=%22id%22: 123".replace(" ", "%20"))
        assert (hits, end["why"], end["records"], end["left"]) == ([123], "all", 300, 0)
        hits, end = await search(node, "path=$.user.id%20%3E%3D%20298")
        assert hits == [298, 299]
        hits, _ = await search(node, "key=k3&path=$.user.id%20%3C%2020")
        assert hits == [3, 10, 17]
        hits, _ = await search(node, "key=k3&newest=10")
        assert hits == [290, 297]
        hits, _ = await search(node, "key_hex=6b33&offset=280")
        assert hits == [283, 290, 297]
        hits, end = await search(node, "text=nothing%20like%20that")
        assert (hits, end["why"], end["records"]) == ([], "all", 300)


async def test_headers_are_found_by_name_and_value() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        rows = [
            Record(None, b"", (("trace", b"a"),), START_MS, 0),
            Record(None, b"", (("other", b"trace"),), START_MS, 1),
            Record(None, b"", (("trace", None), ("trace", b"b=c")), START_MS, 2),
        ]
        plant(node, "orders", build_batch(2, rows))
        assert (await search(node, "header=trace"))[0] == [0, 2]
        assert (await search(node, "header=trace=b%3Dc"))[0] == [2]
        assert (await search(node, "header=trace="))[0] == []


async def test_what_could_not_be_looked_at_is_counted() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        long = json.dumps({"id": 7, "x": "y" * 70_000}).encode()
        plant(node, "orders", build_batch(2, records(0, b"no json with id", b'{"id": 7}', None, long)))
        hits, end = await search(node, "path=$.id%3D%3D7")
        assert hits == [1]
        assert end["unread"] == {"no JSON": 1, "null": 1, "too long": 1}


async def test_a_name_that_json_writes_in_another_way_is_found() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        values = b'{"\\u0069d": 7}', '{"größe": 7}'.encode(), b'{"gr\\u00f6\\u00dfe": 7}', b'{"other": 7}'
        plant(node, "orders", *(build_batch(2, records(at, value)) for at, value in enumerate(values)))
        assert (await search(node, "path=$.id%3D%3D7"))[0] == [0]
        assert (await search(node, "path=$.gr%C3%B6%C3%9Fe%3D%3D7"))[0] == [1, 2]


async def test_a_search_ends_at_its_limit_and_says_from_where_to_go_on() -> None:
    async with running() as node:
        node.create_topic("orders", 2)
        for number in range(2):
            for start in range(0, 1000, 100):
                plant(node, "orders", build_batch(2, records(start, *[b"x"] * 100)), partition=number)
        async with stream(node, "orders/search?text=x&limit=20") as found:
            events = await found.all()
        assert [event for event, _ in events] == ["hit"] * 20 + ["end"]
        end = events[-1][1]
        assert (end["why"], end["hits"]) == ("limit", 20)
        first, second = end["partitions"]
        assert (first["from"], first["end"], second["from"], second["position"]) == (0, 1000, 0, 0)
        assert 0 < first["position"] <= 1000
        assert end["left"] == 2000 - first["position"]


async def test_read_committed_finds_nothing_that_was_aborted() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        plant(
            node,
            "orders",
            *transaction(0, 7, [b"x"], commit=True),
            *transaction(2, 8, [b"x"], commit=False),
            *transaction(4, 9, [b"x"], commit=None),
        )
        assert (await search(node, "text=x"))[0] == [0, 2, 4]
        hits, end = await search(node, "text=x&isolation=read_committed")
        assert (hits, end["partitions"][0]["end"]) == ([0], 4)


async def test_damage_is_told_and_passed_over() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        batches = [build_batch(2, records(at, b"value"), codec=1) for at in range(4)]
        replica = plant(node, "orders", *batches)
        flip(node, replica, len(batches[0]) + 63)  # gzip's first bytes
        hits, end = await search(node, "text=value")
        assert (hits, end["why"]) == ([0, 2, 3], "all")
        assert [each["offset"] for each in end["partitions"][0]["damaged"]] == [1]
        flip(node, replica, 2 * len(batches[0]) + 8)
        hits, end = await search(node, "text=value")
        assert (hits, end["why"]) == ([0], "damaged")
        assert end["partitions"][0]["error"]


async def test_what_is_deleted_before_it_is_read_is_counted() -> None:
    async with running() as node:
        node.create_topic("orders", 1, {"segment.bytes": "1048576"})
        batches = [build_batch(2, records(start, *[b"x" * 9000] * 100)) for start in range(0, 1000, 100)]
        replica = plant(node, "orders", *batches)
        async with stream(node, "orders/search?text=never") as found:
            replica.log.advance_log_start(700)
            end = await found.until("end")
        (part,) = end["partitions"]
        assert part["deleted"] + end["records"] == 1000
        assert part["deleted"] > 0


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "something is to be looked for"),
        ("key=a&key_hex=00", "is enough"),
        ("key_hex=0", "is not hex"),
        ("path=user.id", "begins with $"),
        ("path=$.", "a name behind it"),
        ("path=$[x]", "brackets"),
        ("path=$[-1]", "brackets"),
        ("path=$[true]", "brackets"),
        ("path=$['a'", "brackets"),
        ("path=$.a%3D%3Dopen", "a text needs quotes"),
        ("path=$.a%3D%3D" + "[" * 900, "a text needs quotes"),
        ("path=$.a%20like%20x", "does not compare"),
        ("path=$" + ".a" * 21, "up to 20 steps"),
        ("text=" + "x" * 1001, "up to 1000"),
        ("text=x&limit=501", "limit"),
        ("text=x&seconds=0", "seconds"),
        ("text=x&offset=5&newest=3", "not both"),
        ("text=x&offset=99&partition=0", "not within"),
        ("text=x&offset=1", "needs one of them"),
        ("text=x&partition=9", "0 to 1"),
    ],
)
async def test_a_search_that_makes_no_sense_is_refused_in_words(query: str, words: str) -> None:
    async with running() as node:
        node.create_topic("orders", 2)
        status, answer = await ask(node, "GET", f"/api/topics/orders/search?{query}")
        assert (status in (400, 404), words in answer["error"]) == (True, True), answer
        assert not node.feed.readers


@pytest.mark.parametrize(
    ("text", "value", "holds"),
    [
        ("$", 7, True),
        ("$ == 7", 7, True),
        ("$.a.b[1] == null", {"a": {"b": [1, None]}}, True),
        ("$.a.b[2] == null", {"a": {"b": [1, None]}}, False),
        ("$['a b'].c != 1", {"a b": {"c": 2}}, True),
        ('$["a]b"] == 1', {"a]b": 1}, False),
        ("$.a != 1", {}, False),
        ("$.a == true", {"a": 1}, False),
        ("$.a == 1", {"a": True}, False),
        ("$.a != 1", {"a": True}, True),
        ("$.a < 2", {"a": 1.5}, True),
        ("$.a < 2", {"a": "1"}, False),
        ("$.a < 2", {"a": True}, False),
        ('$.a >= "b"', {"a": "c"}, True),
        ("$.a == [1]", {"a": [1]}, True),
        ("$.a", {"a": None}, True),
    ],
)
def test_a_path_into_json_is_compared_as_json_is(text: str, value: object, holds: bool) -> None:
    if "a]b" in text:
        with pytest.raises(BadFilter):
            JsonTest(text)
        return
    assert JsonTest(text).holds(value) is holds


def test_a_batch_without_what_is_needed_is_not_looked_into() -> None:
    assert not Filter(text="x").may_be_in(b"abc")
    assert Filter(text="x").may_be_in(b"axc")
    assert not Filter(path="$.id").may_be_in(b'{"ID": 1}')
    assert Filter(path="$.id").may_be_in(b'{"\\u0069d": 1}')
    assert Filter(path="$[0]").may_be_in(b"")
    assert not Filter(key=b"k", header="h=v").may_be_in(b"k")
    assert Filter(key=b"").may_be_in(b"")


async def test_up_to_four_may_search_and_who_goes_makes_room() -> None:
    async with running() as node, AsyncExitStack() as stack:
        node.create_topic("orders", 1)
        for _ in range(READERS_MAX):
            tail = await stack.enter_async_context(stream(node, "orders/tail"))
            await tail.until("begin")
        status, answer = await ask(node, "GET", "/api/topics/orders/search?text=x")
        assert (status, "4 searches" in answer["error"]) == (503, True)
        await tail.client.close()
        while len(node.feed.readers) == READERS_MAX:
            await asyncio.sleep(0)
        async with stream(node, "orders/tail") as again:
            await again.until("begin")


async def test_a_search_that_nobody_reads_waits_and_ends_with_its_connection() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        for start in range(0, 400, 100):
            plant(node, "orders", build_batch(2, records(start, *[b"x" * 4096] * 100)))
        async with stream(node, "orders/search?text=x&limit=500", buffer_bytes=4096) as found:
            (reader,) = node.feed.readers
            while not reader._connection.is_full:  # type: ignore[attr-defined]
                await asyncio.sleep(0)
            held_bytes = reader._connection.transport.get_write_buffer_size()  # type: ignore[attr-defined]
            assert held_bytes < 1 << 20
            await found.client.close()
        while node.feed.readers:
            await asyncio.sleep(0)


async def test_a_search_ends_with_its_topic_and_with_the_right_to_read() -> None:
    async with running({**AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}) as node:
        for name in ("orders", "other"):
            node.create_topic(name, 1)
        async with stream(node, "orders/tail") as found, stream(node, "other/tail") as other:
            await found.until("begin")
            await other.until("begin")
            await allow(node, creation(TOPIC, "other", READ, permission=DENY, who=str(ANONYMOUS)))
            assert (await other.until("end"))["why"] == "gone"
            node.change(node.controller.delete_topic(name="orders"))
            node.create_topic("orders", 1)
            plant(node, "orders", build_batch(2, records(0, b"of another topic")))
            assert [event for event, _ in await found.all()] == ["end"]


async def test_a_tail_shows_what_comes_and_says_what_it_has_left_out() -> None:
    async with running() as node:
        node.create_topic("orders", 2)
        plant(node, "orders", build_batch(2, records(0, b"before")))
        async with stream(node, "orders/tail") as found:
            assert await found.until("begin") == {"partitions": {"0": 1, "1": 0}}
            plant(node, "orders", build_batch(2, records(1, b"one", b"two")))
            data = await found.until("records")
            assert [row["value"]["text"] for row in data["records"]] == ["one", "two"]
            assert (data["left_out"], data["positions"]) == ({}, {"0": 3, "1": 0})
            plant(node, "orders", build_batch(2, records(3, *(b"%d" % at for at in range(1000)))))
            shown, left_out = 0, 0
            while shown + left_out < 1000:
                data = await found.until("records")
                shown += len(data["records"])
                left_out += data["left_out"]["sampled"]
                assert data["records"][-1]["value"]["text"] == "999"
            assert shown + left_out == 1000
            assert shown <= 50


async def test_a_tail_with_a_filter_finds_each_that_fits() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        async with stream(node, "orders/tail?path=$.id%3D%3D7") as found:
            await found.until("begin")
            rows = [f'{{"id": {at % 1000}}}'.encode() for at in range(2000)]
            plant(node, "orders", build_batch(2, records(0, *rows)))
            data = await found.until("records")
            assert [row["offset"] for row in data["records"]] == [7, 1007]
            assert data["left_out"] == {}


async def test_a_tail_goes_on_with_another_leader() -> None:
    async with served() as cluster:
        cluster.create_topic("orders", 1, replication_factor=3)
        await cluster.waits.in_sync()
        leader = await cluster.waits.leader("orders", 0)
        node = cluster.nodes[next(broker for broker in (1, 2, 3) if broker != leader)]
        async with stream(node, "orders/tail") as found:
            await found.until("begin")
            await ask(node, "POST", "/api/topics/orders/records", {"value": "one"})
            assert (await found.until("records"))["records"][0]["value"]["text"] == "one"
            await cluster.kill(leader)
            await cluster.waits.leader("orders", 0, other_than=leader)
            status, answer = await ask(node, "POST", "/api/topics/orders/records", {"value": "two"})
            assert status == 200, answer
            assert (await found.until("records"))["records"][0]["value"]["text"] == "two"


async def test_a_broker_that_stops_ends_its_streams() -> None:
    async with running() as node, AsyncExitStack() as stack:
        node.create_topic("orders", 1)
        for start in range(0, 5000, 100):
            plant(node, "orders", build_batch(2, records(start, *[b"x" * 1000] * 100)))
        tail = await stack.enter_async_context(stream(node, "orders/tail"))
        await tail.until("begin")
        found = await stack.enter_async_context(stream(node, "orders/search?text=never"))
        await node.stop()
        assert await tail.all() == []
        assert "end" not in [event for event, _ in await found.all()]
        assert not node.feed.readers


async def test_the_same_checks_stand_before_streams() -> None:
    async with running(AUTHORIZER) as node:
        node.create_topic("orders", 1)
        for path in ("search?text=x", "tail"):
            status, answer = await ask(node, "GET", f"/api/topics/orders/{path}")
            assert (status, answer["code"]) == (403, "TOPIC_AUTHORIZATION_FAILED")
            assert (await ask(node, "GET", f"/api/topics/orders/{path}", Sec_Fetch_Site="cross-site"))[0] == 403
            assert (await ask(node, "GET", f"/api/topics/orders/{path}", host="evil.example"))[0] == 403
        assert not node.feed.readers
