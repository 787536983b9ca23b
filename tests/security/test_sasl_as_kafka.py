"""Clients that log in, right and wrong, get real Kafka's answers; where ours are others, it is on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from minibroker.broker.broker import Node
from minibroker.clock import LoopClock
from minibroker.config import BrokerConfig
from minibroker.log.memory_storage import MemoryStorage
from minibroker.security.users import Users
from tests import goldens
from tests.security import token_steps
from tests.security.conversations import CONVERSATIONS, OUR_WAY, PASSWORDS, cases, play, settings
from tests.server.running import Said

CREDENTIALS = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
CHALLENGE = {"error": 0, "message": "", "token": "r=+,s=?,i=4096", "lifetime": 0}
FAILED = {"error": 58, "message": CREDENTIALS, "token": "", "lifetime": 0}


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    clock = LoopClock()
    listeners = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", **settings("sasl_plaintext"), **token_steps.SETTINGS}
    node = Node(
        BrokerConfig.from_sources(listeners),
        MemoryStorage(clock.now_ms),
        clock=clock,
        chance=Random(7),
        reporter=Said(),
        users=Users(PASSWORDS),
    )
    await node.start()
    yield node
    await node.stop()


async def heard(node: Node, name: str) -> list[Any]:
    return await play("127.0.0.1", node.servers[0].port, dict(cases())[name])


async def test_logins_are_answered_as_by_kafka(node: Node) -> None:
    assert set(goldens.sasl_answers()) == {*dict(cases()), "delegation tokens"}
    different = {
        name: (ours, goldens.sasl_answers()[name])
        for name in CONVERSATIONS
        if (ours := await heard(node, name)) != goldens.sasl_answers()[name]
    }
    assert not different, "\n".join(
        f"{name}\n  ours  {ours}\n  Kafka {kafkas}" for name, (ours, kafkas) in different.items()
    )


async def test_delegation_tokens_are_answered_as_by_kafka(node: Node) -> None:
    port = node.servers[0].port
    ours = await asyncio.get_running_loop().run_in_executor(None, token_steps.play_tokens, port)
    assert ours == goldens.sasl_answers()["delegation tokens"]


OURS = {
    "scram, unknown user": [CHALLENGE, FAILED, "closed"],
    "scram, no such token": [CHALLENGE, FAILED, "closed"],
    "scram, more before the nonce": [CHALLENGE, FAILED, "closed"],
    "scram, channel binding of another header": [CHALLENGE, FAILED, "closed"],
    "scram, a short proof": [CHALLENGE, FAILED, "closed"],
    "scram, an empty proof": [CHALLENGE, FAILED, "closed"],
    "scram, an extension that must be understood": [FAILED, "closed"],
    "oauth, another scheme": [{**FAILED, "message": CREDENTIALS.replace("SCRAM-SHA-256", "OAUTHBEARER")}, "closed"],
}


@pytest.mark.parametrize("name", OUR_WAY)
async def test_where_scram_is_stricter_than_kafka_or_tells_less(node: Node, name: str) -> None:
    _, *ours = await heard(node, name)
    assert ours == OURS[name]
