"""Whose a checkpoint is, and how one plan of a batch is told from another."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.spark.sink.checkpoint import Checkpoint
from tests.spark.sink.test_spool import QUERY, checkpoint


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_plan_is_known_by_what_spark_has_written(scheme: str, tmp_path: Path) -> None:
    found = Checkpoint(scheme + checkpoint(tmp_path), QUERY)
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets/3").write_text('v1\n{"batchTimestampMs":1}\n')
    plan = found.plan_of(3)
    assert len(plan) == 32
    assert found.plan_of(3) == plan
    (tmp_path / "offsets/3").write_text('v1\n{"batchTimestampMs":2}\n')
    assert found.plan_of(3) not in ("", plan)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_plan_that_cannot_be_read_is_not_known(scheme: str, tmp_path: Path) -> None:
    assert Checkpoint(scheme + checkpoint(tmp_path), QUERY).plan_of(3) == ""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets/3").write_text("v1")
    assert Checkpoint(f"{scheme}{tmp_path}", "another").plan_of(3) == ""
    assert Checkpoint(f"{scheme}{tmp_path}/nowhere", QUERY).plan_of(3) == ""
    assert Checkpoint("", QUERY).plan_of(3) == ""
    (tmp_path / "metadata").write_text("[]")
    assert Checkpoint(f"{scheme}{tmp_path}", QUERY).plan_of(3) == ""
