"""Topics by HTTP: the same on a broker and on a cluster, with the rules, limits and words of Kafka's own requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from minibroker.broker import http_verbs
from minibroker.broker.broker import Node
from minibroker.security.acls import CLUSTER, CLUSTER_NAME, CREATE, DELETE, DENY, DESCRIBE, DESCRIBE_CONFIGS, TOPIC
from minibroker.security.principal import ANONYMOUS
from tests.cluster.served import served
from tests.security.test_authorizing import creation
from tests.server.running import connected, running

from .test_http_verbs import ask

pytestmark = pytest.mark.outside

AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}


@asynccontextmanager
async def some_node(kind: str) -> AsyncIterator[Node]:
    """One broker that is alone, or one of three that is not the first to be asked."""
    if kind == "broker":
        async with running() as node:
            yield node
    else:
        async with served() as cluster:
            yield cluster.nodes[2]


async def allow(node: Node, *rules: Any) -> None:
    """Add rules, as an administrator does who may."""
    from minibroker.protocol.messages.create_acls import CreateAclsRequest

    async with connected(node) as client:
        made = await client.ask(CreateAclsRequest(creations=list(rules)), 3)
    assert {each.error_code for each in made.results} == {0}, made


@pytest.mark.parametrize("kind", ["broker", "cluster"])
async def test_a_topic_is_made_listed_shown_and_deleted(kind: str) -> None:
    async with some_node(kind) as node:
        replicas = 1 if kind == "broker" else 3
        wish = {"name": "orders", "partitions": 3, "replicas": replicas, "config": {"retention.ms": 60000}}
        status, made = await ask(node, "POST", "/api/topics", wish)
        assert (status, made) == (
            200,
            {
                "name": "orders",
                "partitions": 3,
                "replicas": replicas,
                "validate_only": False,
                "id": made["id"],
                "config": {"retention.ms": "60000"},
            },
        )
        status, found = await ask(node, "GET", "/api/topics")
        assert (status, [topic["name"] for topic in found["topics"]], found["left_out"]) == (200, ["orders"], 0)
        row = found["topics"][0]
        assert (row["id"], row["partitions"], row["replicas"], row["is_internal"]) == (made["id"], 3, replicas, False)
        assert row["config"] == {"retention.ms": "60000"}
        assert sum(row["cells"].values()) == 3
        status, shown = await ask(node, "GET", "/api/topics/orders")
        assert [partition["partition"] for partition in shown["partition_rows"]] == [0, 1, 2]
        assert {len(partition["replicas"]) for partition in shown["partition_rows"]} == {replicas}
        by_name = {setting["name"]: setting for setting in shown["settings"]}
        assert by_name["retention.ms"]["value"] == "60000"
        assert by_name["retention.ms"]["from"] == "topic"
        assert by_name["cleanup.policy"]["from"] == "default"
        assert by_name["cleanup.policy"]["doc"]
        assert await ask(node, "DELETE", "/api/topics/orders") == (200, {"name": "orders", "id": made["id"]})
        status, found = await ask(node, "GET", "/api/topics/orders")
        assert (status, found["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")


async def test_a_topic_may_only_be_tried() -> None:
    async with running() as node:
        status, made = await ask(node, "POST", "/api/topics", {"name": "t", "partitions": 2, "validate_only": True})
        assert (status, made["partitions"], made["validate_only"]) == (200, 2, True)
        assert not node.image.topics


@pytest.mark.parametrize(
    ("body", "status", "code", "words"),
    [
        ({}, 400, "INVALID_TOPIC_EXCEPTION", "empty"),
        ({"name": "a/b"}, 400, "INVALID_TOPIC_EXCEPTION", "a/b"),
        ({"name": ".."}, 400, "INVALID_TOPIC_EXCEPTION", ".."),
        ({"name": "x" * 250}, 400, "INVALID_TOPIC_EXCEPTION", "249"),
        ({"name": "t", "partitions": 0}, 400, "INVALID_PARTITIONS", "non-positive"),
        ({"name": "t", "partitions": 10**30}, 400, "POLICY_VIOLATION", "Excessively"),
        ({"name": "t", "replicas": 2}, 400, "INVALID_REPLICATION_FACTOR", "2"),
        ({"name": "t", "replicas": -(10**30)}, 400, "INVALID_REPLICATION_FACTOR", ""),
        ({"name": "t", "config": {"retention.ms": "never"}}, 400, "INVALID_CONFIG", "retention.ms"),
        ({"name": "t", "config": {"colour": "red"}}, 400, "INVALID_CONFIG", "colour"),
        ({"name": "there"}, 409, "TOPIC_ALREADY_EXISTS", "already exists"),
        ({"name": 7}, 400, None, "name is the name of a topic"),
        ({"name": "t", "partitions": "3"}, 400, None, "partitions is a number"),
        ({"name": "t", "partitions": True}, 400, None, "partitions is a number"),
        ({"name": "t", "config": ["a"]}, 400, None, "config is an object"),
        ({"name": "t", "colour": 1}, 400, None, "there is no 'colour'"),
    ],
)
async def test_a_topic_that_cannot_be_made_is_refused_in_kafkas_words(
    body: dict[str, Any], status: int, code: str | None, words: str
) -> None:
    async with running() as node:
        node.create_topic("there", 1)
        found, answer = await ask(node, "POST", "/api/topics", body)
        assert (found, answer.get("code"), words in answer["error"]) == (status, code, True), answer
        assert list(node.image.topics) == ["there"]


async def test_paths_and_queries_that_make_no_sense_are_refused() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        for method, path, status in (
            ("GET", "/api/topics?limit=0", 400),
            ("GET", "/api/topics?limit=1001", 400),
            ("GET", f"/api/topics?limit={'9' * 400}", 400),
            ("GET", "/api/topics?limit=%FF", 400),
            ("GET", "/api/topics?limit=1&limit=2", 400),
            ("GET", "/api/topics?colour=red", 400),
            ("GET", "/api/topics/none", 404),
            ("GET", f"/api/topics/{'x' * 4000}", 404),
            ("GET", "/api/topics/%00", 404),
            ("GET", "/api/topics/..%2f..%2fetc", 404),
            ("GET", "/api/topics/orders?x=1", 400),
            ("DELETE", "/api/topics/none", 404),
            ("PUT", "/api/topics/orders", 405),
            ("GET", "/api/topics/orders/", 404),
            ("GET", "/api/topics/", 404),
            ("GET", "/api/topicsandmore", 404),
        ):
            found, answer = await ask(node, method, path)
            assert found == status, (path, found, answer)
            assert answer if isinstance(answer, str) else answer["error"], path


async def test_a_list_of_topics_is_cut_and_goes_on() -> None:
    async with running() as node:
        for name in ("a1", "a2", "b1", "b2", "b3", "__consumer_offsets"):
            node.create_topic(name, 1)
        _, found = await ask(node, "GET", "/api/topics?contains=b&limit=2")
        assert ([topic["name"] for topic in found["topics"]], found["left_out"]) == (["b1", "b2"], 1)
        _, found = await ask(node, "GET", "/api/topics?after=b2")
        assert [topic["name"] for topic in found["topics"]] == ["b3"]
        _, found = await ask(node, "GET", "/api/topics?internal=1&contains=__")
        assert [topic["name"] for topic in found["topics"]] == ["__consumer_offsets"]


async def test_a_program_asks_by_the_same_paths() -> None:
    async with running() as node:
        await http_verbs.call(node, "POST", "/api/topics", {"name": "orders"})
        found = await http_verbs.call(node, "GET", "/api/topics?contains=ord")
        assert [topic["name"] for topic in found["topics"]] == ["orders"]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_page_of_somebody_else_gets_and_does_nothing(site: str) -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        for method, path, body in (
            ("GET", "/api/topics", None),
            ("GET", "/api/topics/orders", None),
            ("POST", "/api/topics", {"name": "mine"}),
            ("DELETE", "/api/topics/orders", None),
        ):
            assert (await ask(node, method, path, body, Sec_Fetch_Site=site))[0] == 403
            assert (await ask(node, method, path, body, host="evil.example"))[0] == 403
            assert (await ask(node, method, path, body, Origin="http://evil.example"))[0] == 403
        form = {"Content_Type": "text/plain", "Content_Length": "15"}
        async with connected(node) as browser:
            head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in form.items())
            browser.send(f'POST /api/topics HTTP/1.1\r\nHost: localhost\r\n{head}\r\n{{"name":"mine1"}}'.encode())
            assert b" 415 " in await browser.reader.readline()
        assert list(node.image.topics) == ["orders"]


async def test_our_own_page_changes_topics_with_its_word_and_only_with_it() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        ours = {"Origin": "http://localhost:9092", "Sec_Fetch_Site": "same-origin"}
        changes = (
            ("POST", "/api/topics", {"name": "made"}),
            ("POST", "/api/topics/orders/records", {"value": "x"}),
            ("DELETE", "/api/topics/orders", None),
        )
        for method, path, body in changes:
            assert (await ask(node, method, path, body, **ours))[0] == 403
            assert (await ask(node, method, path, body, **ours, X_Minibroker="guessed"))[0] == 403
        for method, path, body in changes:
            assert (await ask(node, method, path, body, **ours, X_Minibroker=node.feed.token))[0] == 200
        assert list(node.image.topics) == ["made"]


async def test_what_others_wrote_is_not_for_a_browser_to_guess_or_to_keep() -> None:
    async with running() as node, connected(node) as browser:
        browser.send(b"GET /api/topics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = (await browser.reader.readuntil(b"\r\n\r\n")).decode()
        assert "X-Content-Type-Options: nosniff" in head
        assert "Cache-Control: no-store" in head


async def test_rules_for_topics_are_asked_and_those_of_the_cluster_are_not() -> None:
    async with running({**AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}) as node:
        node.create_topic("mine", 1)
        node.create_topic("theirs", 1)
        who = str(ANONYMOUS)
        await allow(
            node,
            *(
                creation(TOPIC, "theirs", operation, permission=DENY, who=who)
                for operation in (DESCRIBE, DELETE, DESCRIBE_CONFIGS)
            ),
            creation(TOPIC, "mine", DESCRIBE_CONFIGS, permission=DENY, who=who),
            creation(TOPIC, "mine", DESCRIBE, who=who),
            creation(CLUSTER, CLUSTER_NAME, DELETE, permission=DENY, who=who),  # who may do that may delete all topics
        )
        _, found = await ask(node, "GET", "/api/topics")
        assert [topic["name"] for topic in found["topics"]] == ["mine"]
        _, shown = await ask(node, "GET", "/api/topics/mine")
        assert (shown["settings"], shown["why_no_settings"]) == (None, "Topic authorization failed.")
        for method in ("GET", "DELETE"):
            status, answer = await ask(node, method, "/api/topics/theirs")
            assert (status, answer["code"]) == (403, "TOPIC_AUTHORIZATION_FAILED"), (method, answer)
        assert "theirs" in node.image.topics


async def test_whoever_may_not_create_topics_creates_none() -> None:
    async with running(AUTHORIZER) as node:
        status, answer = await ask(node, "POST", "/api/topics", {"name": "t"})
        assert (status, answer["code"]) == (403, "TOPIC_AUTHORIZATION_FAILED"), answer
        assert not node.image.topics
        assert (await ask(node, "GET", "/api/topics")) == (200, {"topics": [], "left_out": 0})


async def test_rules_hold_for_the_address_that_somebody_comes_from() -> None:
    async with running({**AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}) as node:
        who = str(ANONYMOUS)
        rules = [creation(TOPIC, "t", CREATE, who=who), creation(TOPIC, "t", CREATE, permission=DENY, who=who)]
        rules[0].host, rules[1].host = "127.0.0.1", "10.0.0.1"
        await allow(node, *rules)
        assert (await ask(node, "POST", "/api/topics", {"name": "t"}))[0] == 200


async def test_nothing_of_it_is_imported_before_somebody_asks() -> None:
    import subprocess
    import sys

    script = (
        "import sys, asyncio; from tests.broker.running import running_node\n"
        "async def main():\n"
        "    async with running_node() as node: node.create_topic('orders', 3)\n"
        "asyncio.run(main())\n"
        "print([each for each in sys.modules if each.startswith(('minibroker.broker.http', 'minibroker.view'))])"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout == "[]\n"
