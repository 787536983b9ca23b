"""What frames add up to is what there is to see, whatever befalls a cluster; and the page's reducer says the same."""

from __future__ import annotations

import gc
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from minibroker.client import Cluster as Client
from minibroker.client import Producer
from minibroker.client.groups import Groups
from minibroker.cluster.view_source import ClusterSource
from minibroker.view import reduce as reduce_module
from minibroker.view.reduce import reduce
from tests.cluster.virtual import Lab, in_cluster

from .law import KINDS, runs_of
from .watching import Onlooker, differences, tables_of

pytestmark = pytest.mark.outside
REDUCER = Path(reduce_module.__file__).with_name("page") / "reduce.js"
# Reads lists of [event, data], reduces each, and prints what comes of it.
SCRIPT = """
import { reduce } from %s;
let text = "";
for await (const chunk of process.stdin) text += chunk;
const states = JSON.parse(text).map((frames) =>
  frames.reduce((state, [event, data]) => (event === "state" ? data : reduce(state, data)), {}));
console.log(JSON.stringify(states));
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_frames_add_up_to_the_state_whatever_befalls_a_cluster(what: str, seed: int) -> None:
    outcome = runs_of(what).run_seed(seed)
    gc.collect()  # a run makes much garbage, and collects none
    if outcome.failure is not None:
        outcome.failure.add_note(f"again: python -m tests.view.law --what {what} {seed}")
    outcome.check()


SINGLE = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}


async def everything(lab: Lab, onlooker: Onlooker) -> list[str]:
    """Do one thing after the other; return what the onlooker has not seen of it."""
    cluster, found = lab.cluster, []

    async def then(what: object = None) -> None:
        if hasattr(what, "__await__"):
            await what  # type: ignore[misc]
        await lab.world.clock.sleep(400)
        while not onlooker.look():
            await lab.world.clock.sleep(1)
        found.extend(differences(tables_of(onlooker.state), tables_of(onlooker.truth())))

    await then(cluster.create_topic("orders", 2, replication_factor=3))
    await then(cluster.create_topic("<img src=x onerror=alert(1)>".translate({ord(each): "_" for each in "<>() ="})))
    await then(lab.send(b"a", b"b"))
    await then(cluster.alter_topic("orders", min_insync_replicas="3", retention_ms="5000"))
    await then(cluster.kill(1))
    await then(cluster.alter_topic("orders", min_insync_replicas=None))
    await then(cluster.start(1))
    await then(cluster.links.delay(1, 2, 5, jitter_ms=2))
    await then(cluster.links.cut(3, "clients"))
    await then(cluster.disks.slow(2, 1))
    await then(cluster.links.heal())
    await then(cluster.disks.heal())
    await then(cluster.move_leader("orders", 0, 2))
    await then(cluster.steps.hold("fetch"))
    await then(cluster.reassign("orders", 0, [3, 1]))
    await then(cluster.steps.release())
    await then(cluster.waits.in_sync())
    async with Client(cluster.bootstrap_servers, clock=lab.world.clock) as client:
        await then(Groups(client).alter_offsets("readers", {("orders", 0): 1}))
        await then(Groups(client).alter_offsets("others", {("orders", 0): 2}))
        async with Producer(client, transactional_id="pay-1") as producer:
            await producer.init_transactions()
            await then(producer.begin_transaction())
            await then(producer.send("orders", b"paid", partition=1))
            await then(producer.abort_transaction())
    for topic in ("__consumer_offsets", "__transaction_state"):
        leader = cluster.partition(topic, 0).leader
        await then(cluster.kill(leader, notice=False))
        await then(lab.world.clock.sleep(20_000))
        await then(cluster.start(leader))
    await then(cluster.steps.hold("fetch"))
    await then(lab.send(b"c", acks=1))
    await then(cluster.steps.step())
    await then(cluster.steps.release())
    await then(cluster.stop("controller"))
    await then(cluster.start("controller"))
    await then(cluster.pause(2))
    await then(cluster.resume(2))
    await then(cluster.delete_topic("orders"))
    return found


def test_each_verb_is_seen_and_the_pages_reducer_agrees(pytestconfig: pytest.Config) -> None:
    runs: list[Any] = []

    async def main(lab: Lab) -> None:
        onlooker = Onlooker(ClusterSource(lab.cluster, lab.cluster.disks), "sums=1&clients=1&contents=1")
        assert await everything(lab, onlooker) == []
        onlooker.feed.close()
        runs.append(onlooker)
        assert {name for event, data in onlooker.frames for name in data.get("set", ())} >= {
            *(
                "cluster",
                "brokers",
                "links",
                "disks",
                "gates",
                "totals",
                "topics",
                "cells",
                "rows",
                "logs",
                "contents",
                "sums",
            ),
        }

        logs = [row for _, data in onlooker.frames for row in data.get("set", {}).get("logs", {}).values()]
        assert any(open_transactions for *_, open_transactions in logs)

    in_cluster(main, settings=SINGLE)
    (onlooker,) = runs
    if shutil.which("node") is None:
        pytest.skip("node is not there: the page's reducer was not run")
    script = SCRIPT % json.dumps(REDUCER.as_uri())
    hostile = hostile_frames()
    told = subprocess.run(
        ["node", "--input-type=module", "-e", script],
        input=json.dumps([onlooker.frames, hostile]),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    ours = [onlooker.state, reduce(hostile[0][1], hostile[1][1])]
    assert json.loads(told.stdout) == json.loads(json.dumps(ours))


def hostile_frames() -> list[tuple[str, dict[str, Any]]]:
    """Return a state and a frame with keys that mean something to JavaScript."""
    head = {"seq": 1, "t": 2, "steady_ms": 3}
    state = {**head, "groups": {"constructor": [1], "toString": [2], "1": [3]}, "topics": {"old": [1]}}
    more = {"groups": {"__proto__": [4], "hasOwnProperty": [5], "<img src=x>": [6]}}
    return [("state", state), ("frame", {**head, "seq": 2, "anew": ["topics"], "set": more, "gone": {"groups": ["1"]}})]


@pytest.mark.parametrize("kinds", ["topic", "config", "isr leader replicas", "group members", "transaction"])
def test_the_law_bites_without_events(kinds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What marks rows is needed: without it somebody sees what is so no more."""

    async def main(lab: Lab) -> list[str]:
        onlooker = Onlooker(ClusterSource(lab.cluster, lab.cluster.disks))
        mark = onlooker.watching.updates.mark
        monkeypatch.setattr(
            onlooker.watching.updates, "mark", lambda event: None if event.kind in kinds.split() else mark(event)
        )
        found = await everything(lab, onlooker)
        onlooker.feed.close()
        return found

    assert in_cluster(main, settings=SINGLE) != []
