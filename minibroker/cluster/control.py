"""Calling the verbs of a cluster by name, as HTTP and the command line do: POST /cluster/kill {"broker": 2}.

What must hold: what ends the broker that is asked is done when it has answered.
Not here: which verbs there are (verbs.py), and what fits them (broker/verb.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from minibroker.broker.verb import carry_out
from minibroker.clock import LoopClock
from minibroker.cluster.cluster import Cluster
from minibroker.cluster.nodes import RUNNING
from minibroker.cluster.verbs import VERBS
from minibroker.errors import Error, KafkaError

SILENCING = ("kill", "stop", "pause", "isolate")
LOOKING = ("wait-",)  # how verbs begin that do nothing but wait: for whoever has gone they need not
ANSWER_MS = 20  # so long an answer takes to leave
_calls: dict[asyncio.Task[Any], None] = {}  # that came through a port and go on, whatever becomes of the connection


async def call(cluster: Cluster, name: str, arguments: Mapping[str, Any]) -> Any:
    """Do what a verb says with arguments by name; KafkaError says why not."""
    verb = VERBS.get(name)
    if verb is None:
        raise KafkaError(Error.INVALID_REQUEST, f"there is no verb {name!r}: there are {', '.join(VERBS)}")
    return await carry_out(verb, cluster, arguments)


async def call_through(cluster: Cluster, broker_id: int, verb: str, arguments: Mapping[str, Any]) -> Any:
    """Do what somebody asks for through a broker's port, whatever becomes of the connection meanwhile.

    What ends or stops that very broker is done when it has been answered: it could not be afterwards.
    """
    if verb.startswith(LOOKING):
        return await call(cluster, verb, arguments)
    silences = verb in SILENCING and str(arguments.get("broker")) == str(broker_id)
    if silences:
        cluster.check(broker_id, RUNNING)

    async def later() -> Any:
        await LoopClock().sleep(ANSWER_MS if silences else 0)
        try:
            return await call(cluster, verb, arguments)
        except KafkaError as refusal:
            return refusal  # who asked may have hung up, and then nobody hears of it

    task = asyncio.get_running_loop().create_task(later())
    _calls[task] = None
    task.add_done_callback(lambda done: _calls.pop(done, None))
    result = None if silences else await asyncio.shield(task)
    if isinstance(result, KafkaError):
        raise result
    return result
