"""A program: a broker of ours on a directory, as `serve` runs it, whose calls can be noted.

python -m bench.broker.profiled DIRECTORY     prints the address, then answers each line:
begin      "begun": from now on every call is noted
end        as JSON what was called: file, function, calls, seconds of its own, and of each who called it the same

What noting takes is taken off again, as far as it can be known: it is measured with functions that do nothing.
"""

from __future__ import annotations

import asyncio
import cProfile
import gc
import json
import sys
import time
from random import SystemRandom
from typing import Any

from minibroker.broker.broker import Node
from minibroker.clock import LoopClock
from minibroker.config import BrokerConfig
from minibroker.log.storage import OsStorage
from minibroker.server.loops import new_loop

EMPTY_CALLS = 200_000


class Noting:
    """Who reads stdin, and has calls noted."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self._profile = cProfile.Profile()
        self._called_s, self._calling_s = cost_of_noting()

    def read(self) -> None:
        """Do what the next line says."""
        verb = sys.stdin.readline().strip()
        if verb == "begin":
            self._profile = cProfile.Profile()
            print("begun", flush=True)
            self._profile.enable()
        elif verb == "end":
            self._profile.disable()
            print(json.dumps(self._calls()), flush=True)
        else:
            self.over.set()

    def _calls(self) -> list[list[Any]]:
        stats = stats_of(self._profile)
        made: dict[Any, int] = {}  # by who called
        for _, _, _, _, callers in stats.values():
            for caller, (count, *_) in callers.items():
                made[caller] = made.get(caller, 0) + count
        rows = []
        for function, (_, count, own_s, _, callers) in stats.items():
            own_s = max(own_s - count * self._called_s - made.get(function, 0) * self._calling_s, 0.0)
            by = [[caller[0], caller[2], times] for caller, (times, *_) in callers.items()]
            rows.append([function[0], function[2], count, own_s, by])
        return rows


def stats_of(profile: cProfile.Profile) -> dict[Any, Any]:
    profile.create_stats()
    found: dict[Any, Any] = profile.stats
    return found


def empty() -> None:
    """Do nothing."""


def calls_empty() -> None:
    for _ in range(EMPTY_CALLS):
        empty()


def cost_of_noting() -> tuple[float, float]:
    """Return the seconds that noting a call adds to who is called, and to who calls."""
    start = time.perf_counter()
    calls_empty()
    plain_s = time.perf_counter() - start
    profile = cProfile.Profile()
    profile.runcall(calls_empty)
    own_s = {name: row[2] for (_, _, name), row in stats_of(profile).items()}
    # What a call itself takes is left with both.
    called_s = own_s["empty"] - plain_s / 2
    calling_s = own_s["calls_empty"] - plain_s / 2
    return max(called_s, 0.0) / EMPTY_CALLS, max(calling_s, 0.0) / EMPTY_CALLS


async def main(directory: str) -> None:
    config = BrokerConfig.from_sources({"listeners": "PLAINTEXT://127.0.0.1:0"})
    node = Node(config, OsStorage(directory), clock=LoopClock(), chance=SystemRandom(), log_dir=directory)
    await node.start()
    noting = Noting()
    gc.freeze()  # as `minibroker serve` does
    gc.set_threshold(20_000, 20, 50)
    print(node.bootstrap_servers, flush=True)
    asyncio.get_running_loop().add_reader(sys.stdin, noting.read)
    await noting.over.wait()
    await node.stop()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main(sys.argv[1]))
