"""The examples of docs/http.md, done as they stand there, one after the other; and the fields that it names."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.broker import Node
from tests.server.running import connected, running
from tests.view.test_search import Stream

from .test_http_verbs import ask

pytestmark = pytest.mark.outside

PAGE = (Path(__file__).parents[2] / "docs/http.md").read_text("utf-8")


def examples() -> list[list[str]]:
    """Return the words of each line with curl."""
    blocks = re.findall(r"```\n(curl.*?)```", PAGE, re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.replace("\\\n", " ").strip().splitlines()]


async def run(node: Node, words: list[str]) -> tuple[int, Any]:
    """Do what curl would."""
    headers, data, path, is_stream = {}, None, "", False
    rest = iter(words[1:])
    for word in rest:
        if word == "-H":
            name, _, value = next(rest).partition(": ")
            headers[name.replace("-", "_")] = value
        elif word == "-d":
            data = next(rest).encode()
        elif word == "-N":
            is_stream = True
        else:
            path = word.removeprefix("localhost:9092")
    if not is_stream:
        return await ask(node, "POST" if data else "GET", path, data, **headers)
    async with connected(node) as client:
        client.send(f"GET {path} HTTP/1.1\r\nHost: localhost:9092\r\n\r\n".encode())
        head = (await client.reader.readuntil(b"\r\n\r\n")).decode()
        return int(head.split()[1]), (await Stream(client).next())


async def test_the_examples_run_in_the_order_in_which_they_stand() -> None:
    assert len(examples()) >= 14
    async with running() as node:
        node.create_topic("before", 1)
        for words in examples():
            status, answer = await run(node, words)
            assert status == 200, (words, answer)
            assert answer


async def test_every_field_of_an_answer_is_named_on_the_page() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        await ask(node, "POST", "/api/topics/orders/records", {"key": "k", "value": {"a": 1}, "headers": {"h": "v"}})
        asked = {
            "Topics": ["/api/topics", "/api/topics/orders"],
            "Records": ["/api/topics/orders/records"],
            "The log of a replica": [
                "/api/log/orders/0",
                "/api/log/orders/0?segment=0",
                "/api/log/orders/0/lookup?offset=0",
                "/api/log/orders/0/bytes?offset=0&compare=1",
            ],
        }
        for title, paths in asked.items():
            for path in paths:
                _, answer = await ask(node, "GET", path)
                missing = [name for name in names_of(answer) if f"`{name}`" not in PAGE]
                assert not missing, (title, path, missing)


# Names that say themselves, and those that are data.
PLAIN = {"topic", "partition", "name", "order", "records", "doc", "error", "leader", "text", "read_bytes", "base"}
PLAIN |= {"sentence", "entries", "entry_offset", "batches", "offset", "timestamp", "epoch", "step", "value", "k"}
PLAIN |= {"sent_bytes", "stored_bytes", "in_place", "bytes_changed", "crc_made_again", "bytes", "data_bytes"}
PLAIN |= {"around_bytes", "registry", "json", "number", "to", "from", "format", "codec", "segments", "not", "topics"}


def names_of(answer: Any) -> set[str]:
    if isinstance(answer, list):
        return set().union(*map(names_of, answer)) if answer else set()
    if not isinstance(answer, dict):
        return set()
    return set(answer).union(*map(names_of, answer.values())) - PLAIN


def test_the_examples_are_json_where_they_have_a_body() -> None:
    for words in examples():
        if "-d" in words:
            assert json.loads(words[words.index("-d") + 1])
