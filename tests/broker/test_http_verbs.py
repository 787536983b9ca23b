"""Steering a broker over HTTP: the verbs, what is refused, and what a page of somebody else cannot do."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import pytest

from minibroker.broker import http_verbs as control
from minibroker.broker.broker import Node
from minibroker.broker.http_calls import Call
from minibroker.server.http import BODY_BYTES_MAX
from tests.server.running import connected, running, said, settle

CRLF = "\r\n"
JSON = {"Content-Type": "application/json"}


async def ask(
    node: Node, method: str, path: str, body: Any = None, *, host: str = "localhost:9092", **headers: str
) -> tuple[int, Any]:
    """Return the status and what came as JSON; headers have _ for -."""
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = {"Host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
    if data:
        lines = {"Content-Type": "application/json", "Content-Length": str(len(data)), **lines}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
    async with connected(node) as browser:
        browser.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + data)
        answer = await browser.reader.read()
    first, _, rest = answer.partition(b"\r\n")
    text = rest.partition(b"\r\n\r\n")[2]
    return int(first.split()[1]), json.loads(text) if b"application/json" in rest else text.decode()


async def test_rules_are_set_listed_and_taken_away() -> None:
    async with running() as node:
        rule = {"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}
        wanted = {"id": 1, **rule, "matches": 0, "strikes": 0}
        assert await ask(node, "POST", "/faults", rule) == (200, wanted)
        assert await ask(node, "GET", "/faults") == (200, [wanted])
        assert await ask(node, "DELETE", "/faults/1") == (200, wanted)
        assert await ask(node, "DELETE", "/faults/1") == (404, {"error": "there is no rule 1"})
        await ask(node, "POST", "/faults", rule)
        assert await ask(node, "DELETE", "/faults") == (200, [])
        assert not node.faults.rules


async def test_toxics_have_toxiproxys_shape() -> None:
    async with running() as node:
        toxic = {"type": "latency", "name": "slow one", "stream": "upstream", "attributes": {"latency": 5}}
        wanted = {**toxic, "toxicity": 1.0, "attributes": {"latency": 5, "jitter": 0}}
        assert await ask(node, "POST", "/toxics", toxic) == (200, wanted)
        assert await ask(node, "GET", "/toxics") == (200, [wanted])
        assert await ask(node, "DELETE", "/toxics/slow%20one") == (200, wanted)
        assert (await ask(node, "DELETE", "/toxics/slow%20one"))[0] == 404
        assert await ask(node, "DELETE", "/toxics") == (200, [])


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("POST", "/faults", {"api": "Produce"}, 400, "a rule does something"),
        ("POST", "/faults", {"colour": 1}, 400, "a rule knows"),
        ("POST", "/faults", None, 400, "a rule does something"),
        ("POST", "/faults", b"{", 400, "no JSON"),
        ("POST", "/faults", b"[" * 100_000, 400, "no JSON"),
        ("POST", "/faults", b"\xff\xfe{}", 400, "no JSON"),
        ("POST", "/faults", [1], 400, "a JSON object"),
        ("POST", "/toxics", {"type": "smell"}, 400, "there is no toxic"),
        ("PUT", "/faults", {}, 405, "takes GET, POST, DELETE"),
        ("OPTIONS", "/faults", None, 405, "takes GET, POST, DELETE"),
        ("GET", "/faults/1", None, 405, "takes DELETE"),
        ("DELETE", "/faults/x", None, 404, "there is no rule x"),
        ("DELETE", "/faults/", None, 404, "there is no /faults/"),
        ("POST", "/nothing", {}, 404, "there is no /nothing"),
        ("POST", "/metrics", {}, 405, "/metrics takes GET"),
        ("POST", "/health", {}, 405, "/health takes GET"),
        ("DELETE", "/ready", None, 405, "/ready takes GET"),
    ],
)
async def test_what_is_wrong_is_said(method: str, path: str, body: Any, status: int, words: str) -> None:
    async with running() as node:
        found, answer = await ask(node, method, path, body)
        assert (found, words in answer["error"]) == (status, True), answer
        assert not node.faults.rules


async def test_whoever_asks_for_nothing_is_told_what_there_is() -> None:
    async with running() as node:
        for path, status in (("/", 200), ("/nothing", 404)):
            found, text = await ask(node, "GET", path)
            assert found == status
            assert {*text.split()} >= {"/health", "/ready", "/metrics", *(path for _, path in control.ROUTES)}


# Who may steer


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9092", "[::1]:9092", "10.1.2.3"])
async def test_addresses_and_loopback_names_may_steer(host: str) -> None:
    async with running() as node:
        assert (await ask(node, "GET", "/faults", host=host))[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:9092",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil.localhost",
        "evil",
    ],
)
@pytest.mark.parametrize(("method", "path"), [("GET", "/faults"), ("POST", "/faults"), ("DELETE", "/toxics")])
async def test_a_name_that_was_made_to_point_here_may_not(host: str, method: str, path: str) -> None:
    async with running() as node:
        status, answer = await ask(node, method, path, {"delay_ms": 1} if method == "POST" else None, host=host)
        assert (status, "not known as" in answer["error"]) == (403, True)
        assert not node.faults.rules


async def test_the_advertised_name_may() -> None:
    settings = {"advertised.listeners": "PLAINTEXT://Broker.example:9092"}
    async with running(settings) as node:
        assert (await ask(node, "GET", "/faults", host="broker.example:19092"))[0] == 200


async def test_a_host_is_needed_and_only_one() -> None:
    async with running() as node:
        assert (await ask(node, "GET", "/faults", host=""))[0] == 400
        assert (await ask(node, "GET", "/faults", host="localhost\r\nHost: localhost"))[0] == 400


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://localhost:8080", "https://localhost:9092", "http://127.0.0.1:9092"],
)
async def test_a_page_of_another_origin_may_not(origin: str) -> None:
    async with running() as node:
        status, answer = await ask(node, "POST", "/faults", {"delay_ms": 1}, Origin=origin)
        assert (status, "may not steer" in answer["error"]) == (403, True)
        assert not node.faults.rules


async def test_a_page_of_our_own_may() -> None:
    async with running() as node:
        own = {"Origin": "http://localhost:9092", "Sec_Fetch_Site": "same-origin"}
        token = {"X_Minibroker": node.feed.token}
        assert (await ask(node, "POST", "/faults", {"delay_ms": 1}, **own, **token))[0] == 200
        assert (await ask(node, "DELETE", "/faults/1", **own, **token))[0] == 200


@pytest.mark.parametrize("word", ["", "0" * 32, "ü"])
@pytest.mark.parametrize("sender", [{"Origin": "http://localhost:9092"}, {"Sec_Fetch_Site": "same-origin"}])
async def test_a_page_that_has_not_got_our_word_may_not_steer(word: str, sender: dict[str, str]) -> None:
    async with running() as node:
        for method, path, body in (("POST", "/faults", {"delay_ms": 1}), ("DELETE", "/toxics", None)):
            status, answer = await ask(node, method, path, body, X_Minibroker=word, **sender)
            assert (status, "X-Minibroker" in answer["error"]) == (403, True)
        assert not node.faults.rules
        assert (await ask(node, "GET", "/faults", **sender))[0] == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_a_body_that_a_form_could_send_is_refused(kind: str) -> None:
    async with running() as node:
        assert (await ask(node, "POST", "/faults", {"delay_ms": 1}, Content_Type=kind))[0] == 415
        assert not node.faults.rules


async def test_health_is_for_whoever_asks() -> None:
    async with running() as node:
        for path in ("/health", "/ready"):
            assert (await ask(node, "GET", path, host="broker.in.a.network", Origin="http://x.example"))[0] == 200


@pytest.mark.parametrize("host", ["localhost:9092", "10.1.2.3", "kafka", "kafka-1:9092"])
async def test_metrics_are_given_under_names_that_no_foreign_page_has(host: str) -> None:
    async with running() as node:
        assert (await ask(node, "GET", "/metrics", host=host))[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9092", "[::1]evil.example", "[::1]:evil", "a:b:c"])
async def test_metrics_are_not_given_to_foreign_pages(host: str) -> None:
    async with running() as node:
        assert (await ask(node, "GET", "/metrics", host=host))[0] in (400, 403)
        assert (await ask(node, "GET", "/metrics", host="localhost", Origin="http://evil.example"))[0] == 403


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/faults", {"self": 1}),
        ("POST", "/toxics", {"self": 1}),
        ("DELETE", "/faults/" + "1" * 5000, None),
        ("DELETE", "/faults/-1", None),
    ],
)
async def test_what_makes_no_sense_is_refused_in_words(method: str, path: str, body: dict[str, int] | None) -> None:
    async with running() as node:
        found, answer = await ask(node, method, path, body)
        assert found in (400, 404), answer
        assert "error" in answer


# Bytes


async def raw(node: Node, data: bytes) -> bytes:
    async with connected(node) as browser:
        browser.send(data)
        return await browser.reader.read()


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (f"Content-Length: {BODY_BYTES_MAX + 1}", 413),
        ("Content-Length: " + "9" * 5000, 413),
        ("Content-Length: -1", 400),
        ("Content-Length: 1\r\nContent-Length: 2", 400),
        ("Transfer-Encoding: chunked", 411),
        ("no colon", 400),
        ("Host : localhost", 400),
        ("X: " + "y" * 9000, 431),
    ],
)
async def test_a_head_that_makes_no_sense_is_refused_before_its_body(head: str, status: int) -> None:
    async with running() as node:
        answer = await raw(node, f"POST /faults HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\n".encode())
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())


@pytest.mark.parametrize(
    ("line", "header", "status"),
    [
        ("POST /faults", "Origin: http://elsewhere.example", 403),
        ("POST /faults", "Host: elsewhere.example", 403),
        ("POST /nowhere", "", 404),
        ("PUT /metrics", "", 405),
    ],
)
async def test_who_may_not_ask_is_told_before_the_body_has_come(line: str, header: str, status: int) -> None:
    async with running() as node, connected(node) as client:
        host = "" if header.startswith("Host") else "Host: localhost\r\n"
        head = f"{line} HTTP/1.1\r\n{host}{header}{header and CRLF}Content-Length: {BODY_BYTES_MAX}\r\n"
        client.send(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert (await client.reader.read()).split()[1] == b"%d" % status


async def test_bodies_that_are_not_whole_count_as_unfinished_requests() -> None:
    async with running() as node, AsyncExitStack() as stack:
        server = node.servers[0]
        server.limits.held_bytes_max = 3_000_000
        head = f"POST /faults HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY_BYTES_MAX}\r\n\r\n".encode()
        most_bytes, hold = 0, server.hold

        def held(more_bytes: int, connection: Any) -> None:
            nonlocal most_bytes
            hold(more_bytes, connection)
            most_bytes = max(most_bytes, server.held_bytes)

        server.hold = held  # type: ignore[method-assign]
        for _ in range(20):
            client = await stack.enter_async_context(connected(node))
            client.send(head + bytes(500_000))
        while len(server.connections) > 6 or server.accepted_count < 20 or most_bytes < 2_500_000:
            await asyncio.sleep(0)
        assert most_bytes <= 3_000_000
        assert any("unfinished requests hold more than" in line for line in said(node))
    await settle(node)
    assert server.held_bytes == 0


async def test_a_body_may_come_in_pieces_and_after_being_waited_for() -> None:
    body = b'{"delay_ms": 1}'
    head = (
        b"POST /faults HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json; charset=utf-8\r\n"
        b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
    )
    async with running() as node, connected(node) as browser:
        browser.send(head)
        assert await browser.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        for index in range(len(body)):
            browser.send(body[index : index + 1])
        assert (await browser.reader.read()).startswith(b"HTTP/1.1 200 OK")
        assert len(node.faults.rules) == 1


async def test_a_verb_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def echo(node: Node, call: Call) -> Any:
        await node.clock.sleep(0)
        return {"argument": call.argument, "body": dict(call.body)}

    monkeypatch.setitem(control.ROUTES, ("POST", "/echo/<word>"), lambda node, call: echo(node, call))
    async with running() as node:
        assert await ask(node, "POST", "/echo/a%2Fb", {"x": 1}) == (200, {"argument": "a/b", "body": {"x": 1}})
        assert await control.call(node, "POST", "/echo/c") == {"argument": "c", "body": {}}
