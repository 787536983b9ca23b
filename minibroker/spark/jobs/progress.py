"""Progress of a job: one line on a terminal that says which step runs, and how many of Spark's tasks are done.

    with progress.step("reading 3 topics"):
        rows = frame.collect()

Elsewhere than on a terminal each step is one line when it begins. Spark is asked by a thread, as the caller waits for
Spark itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

PAUSE_SECONDS = 0.3


class Progress:
    """Says what happens on stderr, or nothing at all."""

    def __init__(self, spark: Any = None, is_wanted: bool = True):
        self._tracker = _tracker(spark)
        self._is_wanted = is_wanted
        self._is_drawn = is_wanted and sys.stderr.isatty()

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        if not self._is_wanted:
            yield
            return
        if not self._is_drawn:
            print(text, file=sys.stderr, flush=True)
            yield
            return
        over = Event()
        thread = Thread(target=self._draw, args=(text, over), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _draw(self, text: str, over: Event) -> None:
        while True:
            print(f"\r\x1b[K{text}{self._tasks()}", end="", file=sys.stderr, flush=True)
            if over.wait(PAUSE_SECONDS):
                return

    def _tasks(self) -> str:
        if self._tracker is None:
            return ""
        done = total = 0
        for stage in self._tracker.getActiveStageIds():
            info = self._tracker.getStageInfo(stage)
            if info is not None:
                done, total = done + info.numCompletedTasks, total + info.numTasks
        return f": {done:,} of {total:,} tasks" if total else ""


def _tracker(spark: Any) -> Any:
    """Return who knows of Spark's tasks; sessions of Spark Connect have nobody."""
    try:
        return spark.sparkContext.statusTracker()
    except Exception:
        return None


QUIET = Progress(is_wanted=False)
