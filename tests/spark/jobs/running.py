"""Jobs of ours in the session of the tests: what they return, as JSON has it."""

from __future__ import annotations

from typing import Any

from minibroker.spark.jobs import codecs as codecs_job
from minibroker.spark.jobs import profile as profile_job
from minibroker.spark.jobs.summary import Summary


class StandingClock:
    """One that tells always the same time."""

    def __init__(self, now_ms: int):
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms


def _shown(summary: Summary) -> dict[str, Any]:
    return {"json": summary.as_json(), "text": summary.as_text(), "status": summary.status}


def profile(spark: Any, *, now_ms: int, **told: Any) -> dict[str, Any]:
    clock: Any = StandingClock(now_ms)
    scheduler = spark.sparkContext._jsc.sc().taskScheduler()
    first_task = scheduler.nextTaskId()
    shown = _shown(profile_job.profile(spark, clock=clock, **told))
    return shown | {"tasks": scheduler.nextTaskId() - first_task}


def codecs(spark: Any, *, source: dict[str, str], html: str, codec: str, batch_bytes: list[int]) -> dict[str, Any]:
    settings = codecs_job.settings_of(codec)
    summary = codecs_job.codecs(
        spark, source=source, html=html, settings=settings, batch_bytes=batch_bytes, sample_bytes=200_000, seconds=0.02
    )
    return _shown(summary)
