"""A broker on memory that says how much processor time its loop gave to one callback at most: a program of its own.

Each line on stdin begins a new count and is answered with the one before, as JSON. Time on the processor, and not what
a clock says, for the machine has other things to do.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from random import Random
from typing import Any

from minibroker.broker.broker import Node
from minibroker.clock import LoopClock
from minibroker.config import BrokerConfig
from minibroker.log.memory_storage import MemoryStorage

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
WIDE = ("wide", 1000)  # a topic with many partitions

longest = [0, ""]
run = asyncio.events.Handle._run


def measured(handle: asyncio.Handle) -> None:
    begun = time.thread_time_ns()
    run(handle)
    took = time.thread_time_ns() - begun
    if took > longest[0]:  # type: ignore[operator]
        longest[:] = took, getattr(handle._callback, "__qualname__", "") if handle._callback else ""  # type: ignore[attr-defined]


async def main() -> None:
    settings = dict(word.split("=", 1) for word in sys.argv[1:])
    clock = LoopClock()
    node = Node(
        BrokerConfig.from_sources({"listeners": "PLAINTEXT://127.0.0.1:0", **settings}, {}, None),
        MemoryStorage(clock.now_ms),
        clock=clock,
        chance=Random(5),
    )
    await node.start()
    for letter in LETTERS:
        node.create_topic(letter, 1)
    node.create_topic(*WIDE)
    gc.freeze()  # as `minibroker serve` does
    print(node.servers[0].port, flush=True)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def told() -> None:
        line = sys.stdin.readline()
        answer: dict[str, Any] = {"longest_ms": longest[0] / 1e6, "callback": longest[1]}  # type: ignore[operator]
        longest[:] = 0, ""
        print(json.dumps(answer), flush=True)
        if not line:
            ended.set()

    loop.add_reader(sys.stdin.fileno(), told)
    await ended.wait()
    await node.stop()


if __name__ == "__main__":
    asyncio.events.Handle._run = measured  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(main())
