"""What real Kafka answers to clients that log in: conversations.py and token_steps.py of tests/security.

    python -m tests.interop.sasl_answers        writes tests/golden/sasl-answers.json (Java and Maven, half a minute)

The directory is one of ours, so its users of SCRAM are those that we have written.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

from minibroker.broker.broker import Node
from minibroker.clock import LoopClock
from minibroker.config import BrokerConfig
from minibroker.log.storage import OsStorage
from minibroker.security.users import Users
from tests.goldens import GOLDEN
from tests.interop import broker, kafka
from tests.security import token_steps
from tests.security.conversations import CONVERSATIONS, PASSWORDS, cases, play, settings

RELEASES = {"3.9": kafka.Release("kafka_2.13", "3.9.2"), "4.4": None}
SECONDS_MAX = 200
NAME = "sasl_plaintext"
TOKENS = "delegation tokens"


async def make_directory(directory: Path) -> None:
    """Have a broker of ours write users of SCRAM into a new directory."""
    config = BrokerConfig.from_sources({"listeners": "SASL_PLAINTEXT://127.0.0.1:0", **settings(NAME)})
    clock = LoopClock()
    node = Node(config, OsStorage(str(directory)), clock=clock, chance=Random(1), users=Users(PASSWORDS))
    await node.start()
    await node.stop()


def settings_of(directory: Path, port: int, controller_port: int) -> str:
    """Return the properties of a broker of Kafka on a directory."""
    lines = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(directory),
        **settings(NAME),
        **token_steps.SETTINGS,
    }
    return "\n".join(f"{name}={value}" for name, value in lines.items())


def answers(jars: str, work: Path) -> dict[str, Any]:
    asyncio.run(make_directory(work / "data"))
    port, controller_port = broker.free_ports(2)
    properties = settings_of(work / "data", port, controller_port)
    with broker.launched(properties, work / "work", port, jars, SECONDS_MAX) as running:
        wait_until_open(running, port)
        found = {name: asyncio.run(play("127.0.0.1", port, each)) for name, each in cases()}
        return {**found, TOKENS: token_steps.play_tokens(port, lambda: time.sleep(0.3))}


def wait_until_open(running: broker.Broker, port: int) -> None:
    """Return when users of SCRAM can come in: 3.9 says nothing where there is no logging of its own."""
    assert running.process.stdout
    Thread(target=running.said.extend, args=(running.process.stdout,), daemon=True).start()  # a full pipe stops it
    for _ in range(300):
        with contextlib.suppress(OSError):
            if asyncio.run(play("127.0.0.1", port, CONVERSATIONS["scram, 256"]))[-1] != "closed":
                return
        time.sleep(0.2)
        assert running.process.poll() is None, "Kafka did not start"
    raise TimeoutError("nobody can log in")


def main() -> int:
    found = {}
    for name, release in RELEASES.items():
        with tempfile.TemporaryDirectory() as work:
            jars = kafka.class_path(release) if release is not None else broker.class_path()
            found[name] = answers(jars, Path(work))
    differing = [name for name, heard in found["4.4"].items() if found["3.9"][name] != heard]
    assert not differing, f"the releases think differently of {differing}"
    lines = [f"{json.dumps(name)}: {json.dumps(heard)}" for name, heard in found["4.4"].items()]
    (GOLDEN / "sasl-answers.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(lines)} conversations")
    return 0


if __name__ == "__main__":
    sys.exit(main())
