"""The verbs of a cluster by name: from JSON, over HTTP, and from the command line."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.verb import FORMS
from minibroker.cli import main as cli_main
from minibroker.cli.cluster import usage
from minibroker.client.control import Refusal, ask
from minibroker.clock import LoopClock
from minibroker.cluster.cluster import Cluster
from minibroker.cluster.control import call, call_through
from minibroker.cluster.verbs import VERBS
from minibroker.errors import KafkaError

from .served import served
from .virtual import TOPIC, Lab, in_cluster

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("kil", {"broker": 1}, "there is no verb 'kil': there are kill, stop, start"),
    ("kill", {}, "kill needs broker"),
    ("kill", {"broker": "two"}, "kill: broker is to be a broker such as 1, controller or clients, not 'two'"),
    ("kill", {"broker": 9}, "there is no broker 9: there are controller, 1, 2, 3"),
    ("kill", {"broker": 1, "fast": True}, "kill takes broker, lossy, torn_bytes, notice, not fast"),
    ("kill", {"broker": 1, "lossy": "perhaps"}, "kill: lossy is to be true or false, not 'perhaps'"),
    ("resume", {"broker": 1}, "broker 1 is running; it would have to be paused"),
    ("split", {"groups": "1,2"}, "split: groups is to be a list"),
    ("step", {}, "no step waits; held are nothing: hold something first"),
    ("freeze", {}, "the clock of this cluster cannot be moved"),
    ("elect", {"topic": "no-such"}, "No such topic as no-such"),
    ("slow-disk", {"broker": 1, "ms": True}, "slow-disk: ms is to be a number, not True"),
    ("split", {"groups": ["x"]}, "split: groups is to be brokers with commas such as 1,2 or 3,controller, not 'x'"),
    ("split", {"groups": [[1]]}, "split: groups is to be brokers with commas such as 1,2 or 3,controller, not [1]"),
    ("wait-isr", {"topic": "t", "brokers": ["x"]}, "wait-isr: brokers is to be a whole number, not 'x'"),
    ("advance", {"duration": []}, "advance: duration is to be a number or text, not []"),
]


@pytest.mark.parametrize(("verb", "arguments", "reason"), WRONG, ids=lambda each: each if isinstance(each, str) else "")
def test_what_cannot_be_done_is_refused_with_a_reason(verb: str, arguments: dict[str, Any], reason: str) -> None:
    async def main(lab: Lab) -> None:
        with pytest.raises(KafkaError) as caught:
            await call(lab.cluster, verb, arguments)
        assert reason in caught.value.message
        assert set(lab.cluster.states.values()) == {"running"}

    in_cluster(main)


def test_words_are_taken_for_what_they_say() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        await call(cluster, "wait-in-sync", {})
        await call(cluster, "kill", {"broker": "2", "lossy": "true"})
        assert await call(cluster, "wait-isr", {"topic": TOPIC, "partition": "0", "brokers": ["1", "3"]}) == [1, 3]
        await call(cluster, "start", {"broker": 2})
        await call(cluster, "wait-in-sync", {"timeout_ms": 30_000})
        await call(cluster, "split", {"groups": ["1,2", "3,controller"]})
        assert cluster.network.link(2, 3).is_cut
        assert not cluster.network.link(1, 2).is_cut
        await call(cluster, "heal", {})
        assert await call(cluster, "hold", {"kinds": ["fetch"]}) == ["fetch"]
        await call(cluster, "release", {})
        await call(cluster, "reassign", {"topic": TOPIC, "partition": 0, "replicas": [3]})
        await call(cluster, "wait-leader", {"topic": TOPIC, "broker": 3})
        state = await call(cluster, "state", {})
        assert json.loads(json.dumps(state)) == state
        assert state["partitions"][0]["replicas"] == [
            {
                "broker": 3,
                "in_sync": True,
                "leads": True,
                "leader_epoch": state["partitions"][0]["leader_epoch"],
                "log_start": 0,
                "high_watermark": 0,
                "log_end": 0,
            }
        ]

    in_cluster(main)


def test_every_verb_says_what_it_does() -> None:
    assert all(verb.says.endswith(".") for verb in VERBS.values())


def test_the_help_is_for_who_types_into_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli_main(["cluster"]) == 0
    pythons = re.compile(r"[`(]|\bNone\b|\b\w+_\w+|\b[A-Z]\w+[A-Z]\w+\b")  # names, calls, values, classes of Python
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 * len(VERBS)
    for typed, says in zip(lines[::2], lines[1::2], strict=True):
        assert not pythons.search(says.replace("SIGSTOP", "")), says
        assert set(re.findall(r"--[a-z-]+", says)) <= set(re.findall(r"--[a-z-]+", typed)), says
    assert "    Cut every link from one group to another: 1,2 3,controller." in lines
    assert any("--sessions: heartbeats go on" in line for line in lines)


def test_what_is_taken_is_said_without_names_of_python() -> None:
    for verb in VERBS.values():
        for _, outside in verb.parameters():
            kinds = [kind.strip() for kind in str(outside.annotation).split("|")]
            words = [FORMS[kind][0] for kind in kinds if kind != "None"]
            assert words, verb.name
            assert not any(re.search(r"[\[\]_]|\b(int|str|bool|float)\b|NodeId", each) for each in words), verb.name


def test_the_docs_have_every_verb_as_it_is_typed() -> None:
    page = (Path(__file__).parent.parent.parent / "docs/cluster.md").read_text(encoding="utf-8")
    assert [usage(name) for name in VERBS] == page.split("```text\n")[1].split("\n```")[0].splitlines()


async def post(cluster: Cluster, at: int, verb: str, **body: Any) -> Any:
    port = cluster.nodes[at].servers[0].port
    return await ask("127.0.0.1", port, "POST", f"/cluster/{verb}", body, clock=LoopClock())


@pytest.mark.asyncio
async def test_any_broker_takes_the_verbs_over_http() -> None:
    async with served() as cluster:
        cluster.create_topic(TOPIC, 1)
        await post(cluster, 3, "wait-in-sync")
        await post(cluster, 3, "kill", broker=1)
        assert await post(cluster, 2, "wait-leader", topic=TOPIC, other_than=1) == 2
        with pytest.raises(Refusal, match="broker 1 is killed; it would have to be running or paused"):
            await post(cluster, 2, "kill", broker=1)
        await post(cluster, 2, "start", broker=1)
        await post(cluster, 2, "freeze")
        before_ms = cluster.clock.now_ms()
        await post(cluster, 2, "advance", duration="5s")
        assert cluster.clock.now_ms() == before_ms + 5000
        await post(cluster, 2, "thaw")
        port = cluster.nodes[1].servers[0].port
        state = await ask("127.0.0.1", port, "GET", "/cluster", clock=LoopClock())
        assert state["brokers"] == {"controller": "running", "1": "running", "2": "running", "3": "running"}


def test_a_start_that_nobody_waits_for_may_be_killed() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        await cluster.kill(3)
        cluster.pause("controller")  # so that no start comes to its end
        asked = asyncio.ensure_future(call_through(cluster, 1, "start", {"broker": 3}))
        await lab.world.clock.sleep(100)
        assert cluster.states[3] == "starting"
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await cluster.kill(3)
        await lab.world.clock.sleep(100)
        gc.collect()  # tells the loop of exceptions that nobody has looked at
        cluster.resume("controller")

    in_cluster(main)


def test_who_waits_hears_that_a_start_was_killed() -> None:
    async def main(lab: Lab) -> None:
        await lab.cluster.kill(3)
        lab.cluster.pause("controller")
        asked = asyncio.ensure_future(call_through(lab.cluster, 1, "start", {"broker": 3}))
        await lab.world.clock.sleep(100)
        await lab.cluster.kill(3)
        with pytest.raises(KafkaError, match="broker 3 was killed before it had started"):
            await asked
        lab.cluster.resume("controller")

    in_cluster(main)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_the_command_line_asks_whoever_answers() -> None:
    async def command(*words: str) -> tuple[int | None, str, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "minibroker", "cluster", *words, "-b", cluster.bootstrap_servers),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, complaints = await process.communicate()
        return process.returncode, out.decode(), complaints.decode()

    async with served() as cluster:
        cluster.create_topic(TOPIC, 1)
        assert await command("kill", "1", "--lossy") == (0, "", "")
        await cluster.waits.leader(TOPIC, other_than=1)
        assert cluster.states[1] == "killed"
        assert await command("wait-isr", TOPIC, "0", "2", "3") == (0, "2\n3\n", "")
        status, out, _ = await command("state")
        assert status == 0
        assert "orders-0  leader 2" in out
        assert "b1  behind  not running" in out
        status, out, _ = await command("retention", TOPIC)
        assert status == 0
        assert {json.loads(row)["topic"] for row in out.splitlines()} == {TOPIC}
        status, _, complaint = await command("resume", "2")
        assert status == 1
        assert "broker 2 is running; it would have to be paused" in complaint
        status, _, complaint = await command("kill", "1", "2")
        assert status == 2
        assert "kill has no use for 2: kill BROKER" in complaint
