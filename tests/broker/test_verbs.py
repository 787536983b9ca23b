"""The verbs of a broker that is alone: the same as of a cluster, by HTTP and the command line."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.verbs import OF_CLUSTERS, VERBS
from minibroker.cli import main
from minibroker.clock.steered import SteeredClock
from minibroker.cluster.verbs import VERBS as CLUSTER_VERBS
from tests.cli.running import broker_running
from tests.server.running import running

from .test_http_verbs import ask


def outside(verbs: dict[str, Any], name: str) -> list[Any]:
    return [(each.name, each.kind, each.default, each.annotation) for _, each in verbs[name].parameters()]


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_takes_what_that_of_a_cluster_takes(name: str) -> None:
    assert outside(VERBS, name) == outside(CLUSTER_VERBS, name)
    assert VERBS[name].as_json == CLUSTER_VERBS[name].as_json
    assert VERBS[name].says.endswith(".")


def test_every_verb_of_a_cluster_is_one_here_or_refused_in_words() -> None:
    assert {*VERBS, *OF_CLUSTERS} == set(CLUSTER_VERBS)
    assert not set(VERBS) & set(OF_CLUSTERS)


async def test_verbs_are_called_by_http() -> None:
    async with running() as node:
        node.create_topic("orders", 1)
        status, rows = await ask(node, "POST", "/cluster/roll", {"topic": "orders"})
        assert (status, rows[0]["topic"]) == (200, "orders")
        assert await ask(node, "POST", "/cluster/groups", {}) == (200, [])
        assert await ask(node, "POST", "/cluster/transactions", {}) == (200, [])
        assert await ask(node, "POST", "/cluster/instances", {}) == (200, [])
        wanted = {"group": "readers", "state": "Dead"}
        status, view = await ask(node, "POST", "/cluster/wait-group", wanted)
        assert (status, view["state"]) == (200, "Dead")


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/cluster/kill", {"broker": 2}, 409, "kill is for brokers of a cluster, and this one is alone"),
        ("/cluster/cut", {"a": 1, "b": 2}, 409, "minibroker serve --brokers 3"),
        ("/cluster/advanc", {"duration": "1h"}, 404, "there is no verb 'advanc': a broker has"),
        ("/cluster/advance", {}, 400, "advance needs duration"),
        ("/cluster/rate", {"factor": "fast"}, 400, "rate: factor is to be a number, not 'fast'"),
        ("/cluster/rate", {"factor": 10**400}, 400, "rate: factor is to be a number"),
        ("/cluster/rate", {"factor": 1e300}, 400, "a clock runs"),
        ("/cluster/jump", {"duration": float("nan")}, 400, "a clock shows the years"),
        ("/cluster/advance", {"duration": 1e308}, 400, "a clock shows the years"),
        ("/cluster/group", {"group": "nobody"}, 400, "nobody"),
        ("/cluster/wait-committed", {"group": "g", "topic": "t", "timeout_ms": 1}, 400, "not within"),
    ],
)
async def test_what_cannot_be_done_is_said(path: str, body: dict[str, Any], status: int, words: str) -> None:
    async with running(clock=SteeredClock()) as node:
        found, answer = await ask(node, "POST", path, body)
        assert (found, words in answer["error"]) == (status, True), answer


async def test_a_foreign_page_does_not_move_the_clock() -> None:
    clock = SteeredClock()
    async with running(clock=clock) as node:
        status, _ = await ask(node, "POST", "/cluster/freeze", {}, Origin="http://evil.example")
        assert (status, clock.is_frozen) == (403, False)


@pytest.mark.slow
def test_a_served_broker_is_moved_in_time_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with broker_running("--topic", "orders") as address:
        for words in (["freeze"], ["advance", "7d"], ["jump", "1h"], ["rate", "10"], ["thaw"]):
            assert main(["cluster", *words, "-b", address]) == 0
        assert main(["cluster", "kill", "1", "-b", address]) == 1
    assert "this one is alone" in capsys.readouterr().err
