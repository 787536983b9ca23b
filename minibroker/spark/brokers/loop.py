"""The client in plain functions: it is asyncio, and what Spark calls is not.

    run(lambda: find_something(cluster))       one call, with a loop of its own
    with asyncio.Runner() as runner: ...       several calls that share connections

What must hold: it also works where a loop runs already, as in a notebook.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Wait for what a coroutine returns."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(make())
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as executor:
        return executor.submit(lambda: asyncio.run(make())).result()
