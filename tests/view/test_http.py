"""The state and its frames over HTTP: what a browser and `curl -N` get, how many may look, and what is refused."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.broker import Node
from minibroker.broker.http_verbs import ROUTES
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol.messages.create_acls import CreateAclsRequest
from minibroker.security.acls import CLUSTER, CLUSTER_NAME, DENY, DESCRIBE
from minibroker.security.principal import ANONYMOUS
from minibroker.server.http import STREAM_UNSENT_BYTES_MAX
from minibroker.view.feed import LEASE_MS, VIEWERS_MAX
from minibroker.view.reduce import reduce
from minibroker.view.rows import CELLS, COLUMNS
from tests.broker.test_http_verbs import ask
from tests.cluster.served import served
from tests.security.test_authorizing import creation
from tests.server.running import Client, connected, running

from .watching import TABLES

pytestmark = pytest.mark.outside


class Browser:
    """An EventSource."""

    def __init__(self, client: Client):
        self.client = client
        self.state: dict[str, Any] = {}
        self.last_id = ""

    async def head(self) -> str:
        return (await self.client.reader.readuntil(b"\r\n\r\n")).decode()

    async def next(self) -> tuple[str, dict[str, Any]]:
        """Return what comes next, an event and its data."""
        block = (await self.client.reader.readuntil(b"\n\n")).decode().rstrip("\n")
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        self.last_id = fields["id"]
        data = json.loads(fields["data"])
        self.state = data if fields["event"] == "state" else reduce(self.state, data)
        return fields["event"], data

    async def until(self, table: str, key: str, row: object) -> None:
        while self.state.get(table, {}).get(key) != row:
            await self.next()


@asynccontextmanager
async def looking(
    node: Node, path: str = "/api/events", buffer_bytes: int = 0, **headers: str
) -> AsyncIterator[Browser]:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    async with connected(node, buffer_bytes=buffer_bytes) as client:
        client.send(f"GET {path} HTTP/1.1\r\nHost: localhost:9092\r\n{lines}\r\n".encode())
        yield Browser(client)


def append(node: Node, topic: str, count: int = 1) -> None:
    batch = build_batch(2, [Record(None, b"x")] * count)
    clock = node.clock
    node.replicas[topic, 0].append(batch, now_ms=clock.now_ms(), steady_ms=clock.steady_ms())


async def test_the_state_of_one_broker_has_rows() -> None:
    async with running() as node:
        node.create_topic("orders", 2)
        append(node, "orders")
        status, state = await ask(node, "GET", "/api/state?sums=1")
        assert (status, state["v"]) == (200, 1)
        assert [row[1:3] for row in state["brokers"].values()] == [["running", False]]
        assert state["cells"] == {"orders": "kk"}
        assert state["topics"]["orders"][1:] == [2, 1, False, {}]
        me = node.node_id
        assert state["rows"]["orders-0"][:6] == ["orders", 0, me, 0, [me], []]
        assert state["rows"]["orders-0"][-1] == [[me, 0, 1, 1, 1, 0, True, -1, None]]
        assert state["sums"]["orders"][:2] == [0, 1]
        assert set(state["columns"]["rows"]) >= {"leader", "isr", "elr"}
        assert len(state["columns"]["replica_states"]) == len(state["rows"]["orders-0"][-1][0])


async def test_events_begin_with_the_state_and_go_on_with_what_changes() -> None:
    async with running() as node, looking(node) as browser:
        head = await browser.head()
        assert "200 OK" in head
        assert "Content-Type: text/event-stream" in head
        assert "Content-Length" not in head
        assert (await browser.next())[0] == "state"
        node.create_topic("orders", 1)
        await browser.until("cells", "orders", "k")
        append(node, "orders")
        event, data = await browser.next()
        assert event == "frame"
        assert data["set"]["rows"]["orders-0"][-1][0][2:4] == [1, 1]
        assert [each["kind"] for each in data["said"]] == ["append", "high_watermark"]


async def test_who_comes_again_gets_what_has_changed_since() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        node.create_topic("gone", 1)
        async with looking(node) as browser:
            await browser.head()
            await browser.next()
            state, last_id = browser.state, browser.last_id
        node.change(node.controller.delete_topic(name="gone"))
        append(node, "orders", 3)
        async with looking(node, Last_Event_ID=last_id) as browser:
            browser.state = state
            await browser.head()
            event, data = await browser.next()
            assert event == "frame"
            assert data["gone"]["topics"] == ["gone"]
            assert "gone" in [each.get("topic") for each in data["said"]]
            assert browser.state["rows"]["orders-0"][-1][0][3] == 3
            assert set(browser.state["rows"]) == {"orders-0"}
        async with looking(node, f"/api/events?since={last_id}") as browser:
            browser.state = state
            await browser.head()
            assert (await browser.next())[0] == "frame"
        for unknown in ("of-another-life.3", f"{last_id.partition('.')[0]}.999999", "", "7", "x.y"):
            async with looking(node, Last_Event_ID=unknown) as browser:
                await browser.head()
                assert (await browser.next())[0] == "state", unknown


async def test_the_state_says_from_where_events_go_on() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        _, state = await ask(node, "GET", "/api/state")
        append(node, "orders")
        async with looking(node, f"/api/events?since={state['boot']}.{state['seq']}") as browser:
            browser.state = state
            await browser.head()
            assert (await browser.next())[0] == "frame"
            assert browser.state["rows"]["orders-0"][-1][0][3] == 1


async def test_nobody_pays_who_does_not_look() -> None:
    script = (
        "import sys, asyncio; from tests.broker.running import running_node\n"
        "async def main():\n"
        "    async with running_node() as node: node.create_topic('orders', 3)\n"
        "asyncio.run(main()); print([each for each in sys.modules if each.startswith('minibroker.view')])"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout == "[]\n"
    async with running() as node:
        assert not node.events.observed
        async with looking(node) as browser:
            await browser.head()
            await browser.next()
            assert node.events.observed
            assert "append" in node.events.wanted
        while node.feed.viewers:
            await asyncio.sleep(0)
        assert node.events.observed  # for who comes again
        node.feed._lease_over()
        assert not node.events.observed
        assert not node.feed.is_on


async def test_up_to_eight_may_look() -> None:
    async with running() as node, AsyncExitStack() as stack:
        for _ in range(VIEWERS_MAX):
            browser = await stack.enter_async_context(looking(node))
            await browser.head()
            await browser.next()
        status, answer = await ask(node, "GET", "/api/events")
        assert (status, answer) == (503, {"error": "8 look already: close one of them"})
        assert (await ask(node, "GET", "/api/state"))[0] == 200
        await browser.client.close()
        while len(node.feed.viewers) == VIEWERS_MAX:
            await asyncio.sleep(0)
        again = await stack.enter_async_context(looking(node))
        assert "200 OK" in await again.head()


async def test_who_does_not_read_is_kept_nothing_for_and_then_gets_what_is_so() -> None:
    async with running() as node, looking(node, buffer_bytes=4096) as browser:
        await browser.head()
        await browser.next()
        viewer = next(iter(node.feed.viewers))
        transport = viewer._sink.transport  # type: ignore[attr-defined]
        count = 0
        while not viewer._sink.is_full:
            count += 1
            node.create_topic(f"a-topic-with-a-long-name-{'x' * 200}-{count}", 1, {"retention.ms": "1000"})
            viewer._due_ms = 0  # as fast as it can be
            await node.feed._watching.frame_made()  # type: ignore[union-attr]
            assert count < 20_000
        held_bytes = transport.get_write_buffer_size()
        for _ in range(100):
            count += 1
            node.create_topic(f"t{count}", 1)
            await node.feed._watching.frame_made()  # type: ignore[union-attr]
        assert transport.get_write_buffer_size() == held_bytes < STREAM_UNSENT_BYTES_MAX + 200_000
        await browser.until("cells", f"t{count}", "k")
        assert len(browser.state["topics"]) == count


async def test_a_paused_broker_sends_no_frames() -> None:
    async with served() as cluster:
        node = cluster.nodes[1]
        async with looking(node) as browser:
            await browser.head()
            await browser.next()
            cluster.pause(1)
            viewer = next(iter(cluster.feed.viewers))
            assert viewer._sink.is_full
            cluster.create_topic("orders", 1)
            cluster.resume(1)
            await browser.until("cells", "orders", "k")


async def test_a_cluster_is_seen_from_each_of_its_brokers() -> None:
    async with served() as cluster:
        cluster.create_topic("orders", 1)
        await cluster.waits.in_sync()
        async with looking(cluster.nodes[2]) as browser:
            await browser.head()
            await browser.next()
            last_id, state = browser.last_id, browser.state
            assert [row[1] for row in state["brokers"].values()] == ["running"] * 3
            await cluster.kill(1)
            while browser.state["brokers"]["1"][1] != "killed":
                await browser.next()
        async with looking(cluster.nodes[3], Last_Event_ID=last_id) as browser:  # it was connected to the other one
            browser.state = state
            await browser.head()
            assert (await browser.next())[0] == "frame"
            assert browser.state["brokers"]["1"][1] == "killed"
            assert browser.state["cells"] == {"orders": "u"}
            cluster.links.cut(2, 3)
            await browser.until("links", "2->3", [True, 0, 0, 0, 0])
            cluster.links.heal()


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("colour=red", "there is no colour=red"),
        ("parts=orders", "as orders-0 is"),
        ("parts=orders-x", "as orders-0 is"),
        ("sums=2", "there is no sums=2"),
        ("parts=" + ",".join(["orders-0"] * 65), "up to 64 partitions"),
        ("&".join(f"groups=g{number}" for number in range(9)), "8 groups"),
        ("a", "name=value"),
    ],
)
async def test_a_query_that_makes_no_sense_is_refused_in_words(query: str, words: str) -> None:
    async with running() as node:
        for path in ("/api/state", "/api/events"):
            status, answer = await ask(node, "GET", f"{path}?{query}")
            assert (status, words in answer["error"]) == (400, True), answer
        assert not node.feed.is_on


async def test_parts_and_topics_choose_rows_and_what_is_left_out_is_counted() -> None:
    async with running() as node:
        node.create_topic("many", 100)
        node.create_topic("orders", 2)
        node.create_topic("__hidden", 1)
        _, state = await ask(node, "GET", "/api/state")
        assert (state["rows"], state["left_out"]) == ({}, {"rows": 102})
        _, state = await ask(node, "GET", "/api/state?parts=orders-1,none-0,orders-7&topics=orders,__hidden")
        assert list(state["rows"]) == ["orders-1", "orders-0", "__hidden-0"]
        _, state = await ask(node, "GET", "/api/state?topics=many")
        assert (len(state["rows"]), state["left_out"]) == (64, {"rows": 36})
        _, state = await ask(node, "GET", "/api/state?parts=all")
        assert len(state["rows"]) == 103


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("path", ["/api/state", "/api/events", "/metrics", "/faults", "/groups", "/", "/nothing"])
async def test_a_browser_that_comes_from_another_page_is_refused_on_every_path(site: str, path: str) -> None:
    async with running() as node:
        assert (await ask(node, "GET", path, Sec_Fetch_Site=site))[0] == 403
        assert (await ask(node, "GET", path, host="evil.example"))[0] == 403
        assert (await ask(node, "GET", path, Origin="http://evil.example"))[0] == 403
        assert not node.feed.is_on
        for health in ("/health", "/ready"):
            assert (await ask(node, "GET", health, Sec_Fetch_Site=site))[0] == 200


async def test_a_link_to_the_first_page_may_stand_anywhere() -> None:
    async with running() as node:
        link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
        assert (await ask(node, "GET", "/", **link))[0] == 200
        assert (await ask(node, "GET", "/api/state", **link))[0] == 403
        assert (await ask(node, "GET", "/", **{**link, "Sec_Fetch_Dest": "iframe"}))[0] == 403


async def test_who_may_not_describe_the_cluster_sees_nothing_of_it() -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    async with running({"authorizer.class.name": authorizer}) as node:
        for path in ("/api/state", "/api/events"):
            assert (await ask(node, "GET", path))[0] == 403
        assert not node.feed.is_on


async def test_who_may_describe_the_cluster_no_more_sees_nothing_more_of_it() -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    settings = {"authorizer.class.name": authorizer, "allow.everyone.if.no.acl.found": "true"}
    async with running(settings) as node, looking(node) as browser:
        await browser.head()
        await browser.next()
        denied = creation(CLUSTER, CLUSTER_NAME, DESCRIBE, permission=DENY, who=str(ANONYMOUS))
        async with connected(node) as client:
            made = await client.ask(CreateAclsRequest(creations=[denied]), 3)
        assert [each.error_code for each in made.results] == [0]
        with pytest.raises(asyncio.IncompleteReadError):
            while True:
                await browser.next()
        assert not node.feed.viewers


def test_the_page_names_every_table_path_and_letter() -> None:
    page = (Path(__file__).parents[2] / "docs/http.md").read_text("utf-8")
    assert not [name for name in TABLES if f"| `{name}` |" not in page]
    assert not [letter for letter in CELLS if f"`{letter}` " not in page]
    paths = {path.partition("/<")[0] for _, path in ROUTES}
    assert not [path for path in paths if f"{path}`" not in page and f"{path}/<" not in page]
    assert set(COLUMNS) | {"cluster", "cells", "rules", "members"} == set(TABLES)


def test_a_lease_is_longer_than_a_browser_takes_to_come_again() -> None:
    assert LEASE_MS >= 10_000
