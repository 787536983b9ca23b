"""Logins of the clients that Python drives: `python security.py ADAPTER`.

Cases come on the input, a JSON line each, and are done some at a time; what became of each goes to the output.
test_security.py is the other end, README.md has the words. Not here: what a client is called and how: the adapters,
such as `confluent_security.py`, each with `produce(settings, token, topic, values)`, which raises what stops it.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from group_member import say

AT_ONCE = 30  # most of them wait
PAUSE_SECONDS = 0.05


class Refused(Exception):
    """What a library says by other means than an exception."""

    def __init__(self, kind: str, text: str):
        super().__init__(text)
        self.kind = kind


def values(case: dict[str, Any]) -> Iterator[bytes]:
    """Yield values to be produced: one, and then one now and then for as long as the case says."""
    yield case["case"].encode()
    end = time.monotonic() + case["seconds"]
    while time.monotonic() < end:
        time.sleep(PAUSE_SECONDS)
        yield case["case"].encode()


def do(adapter: Any, case: dict[str, Any]) -> None:
    start = time.monotonic()
    error = text = ""
    try:
        adapter.produce(case["settings"], case["token"], case["topic"], values(case))
    except Exception as raised:
        error, text = getattr(raised, "kind", type(raised).__name__), str(raised)
    say(case=case["case"], error=error, text=text[:300], ms=round((time.monotonic() - start) * 1000))


def main(name: str) -> None:
    adapter = importlib.import_module(f"{name}_security")
    say(client=name, version=adapter.VERSION)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for line in sys.stdin:
            pool.submit(do, adapter, json.loads(line))


if __name__ == "__main__":
    main(*sys.argv[1:])
