"""What a job says in the end, for people and for scripts; and what its command says of words that it does not know."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import wraps
from pathlib import Path

import pytest

from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.spark.jobs import JOBS, job_module
from minibroker.spark.jobs.arguments import source_options
from minibroker.spark.jobs.command import main, parser_of, reason_of
from minibroker.spark.jobs.export import ended
from minibroker.spark.jobs.progress import Progress
from minibroker.spark.jobs.summary import Summary, Table
from minibroker.spark.jobs.tasks import TaskFailed
from minibroker.spark.option_values import OptionError
from tests.spark.logs import START_MS, open_at

FOUND = Summary(
    "export",
    {"records": 1_234_567, "seconds": 3.14159, "new files": None, "whole": True},
    [Table("topics", ["topic", "records"], [["orders", 1_234_000], ["payments", 567]]), Table("empty", ["a"], [])],
    notes=["written to lake"],
)


def test_text_lines_up() -> None:
    assert FOUND.as_text() == "\n".join(
        [
            "records    1,234,567",
            "seconds    3.14",
            "new files  -",
            "whole      yes",
            "",
            "topics",
            "  topic       records",
            "  orders    1,234,000",
            "  payments        567",
            "",
            "written to lake",
        ]
    )


def test_json_has_the_same() -> None:
    found = json.loads(FOUND.as_json())
    assert found["job"] == "export"
    assert found["records"] == 1_234_567
    assert found["whole"] is True
    assert found["topics"] == [{"topic": "orders", "records": 1_234_000}, {"topic": "payments", "records": 567}]
    assert found["empty"] == []
    assert found["problems"] == []


def test_problems_are_the_exit_status() -> None:
    assert FOUND.status == 0
    broken = Summary("verify", {}, problems=["orders-0: a batch is broken"])
    assert broken.status == 1
    assert broken.as_text() == "problem: orders-0: a batch is broken"


@pytest.mark.parametrize("name", JOBS)
def test_every_job_is_there_and_explains_itself(name: str) -> None:
    module = job_module(name)
    assert callable(module.run)
    told = parser_of(name).format_help()
    assert ";;" not in told  # a sentence and what is said of all such options, joined
    assert module.DESCRIPTION.split()[0] in told
    assert "--json" in told
    assert "--master" in told


def test_without_a_job_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    told = capsys.readouterr().out
    assert all(f"  {name}" in told for name in JOBS)
    assert main(["--help"]) == 0


def test_a_job_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exprot"]) == 2
    assert "there is no job 'exprot'" in capsys.readouterr().err


def test_a_job_that_was_one_names_what_does_it_now(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compact", "--path", "data", "--to", "compacted"]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert "minibroker compact" in told


def test_a_setting_without_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--path", "data", "--conf", "spark.x"]) == 2
    assert "write it as NAME=VALUE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("export --path data lake --format delta --max-records 5", {"table_format": "delta", "offsets_max": 5}),
        ("rewrite --path data --to new --format 1 --only", {"target": "new", "magic": 1, "only": True}),
    ],
)
def test_words_reach_the_job(words: str, told: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    name, *rest = words.split()
    module, seen = job_module(name), {}

    @wraps(getattr(module, name))
    def job(*given: object, **more: object) -> Summary:
        seen.update(more)
        return FOUND

    monkeypatch.setattr(module, name, job)
    assert module.run(None, parser_of(name).parse_args(rest), Progress(is_wanted=False)) is FOUND
    assert told.items() <= seen.items()


@pytest.mark.parametrize("mode", ["batches", "Quarantine"])
def test_rows_that_are_no_records_are_refused(mode: str) -> None:
    options = parser_of("export").parse_args(["--path", "data", "lake", "--option", f"Mode={mode}"])
    with pytest.raises(OptionError, match=f"mode={mode.lower()}: a job reads records; it can be fail or skip"):
        source_options(options)
    told = {"path": "data", "subscribe": "orders", "Mode": mode}
    for name, given in (("profile", {}), ("codecs", {}), ("export", {"target": "lake"}), ("slice", {"asked": None})):
        job = getattr(job_module(name), "cut" if name == "slice" else name)
        with pytest.raises(OptionError, match=f"mode={mode.lower()}: a job reads records"):
            job(None, source=told, **given)


def test_what_planning_cannot_read_is_said_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = open_at(tmp_path, "orders-0")
    for offset in range(3):
        log.append_as_follower(build_batch(2, [Record(None, b"x", (), START_MS)], base_offset=offset), now_ms=0)
    log.close()
    segment = tmp_path / "orders-0" / f"{0:020}.log"
    data = bytearray(segment.read_bytes())
    data[16] = 9  # no such format
    segment.write_bytes(data)
    monkeypatch.setattr("minibroker.spark.session.open_session", lambda *_, **__: None)
    monkeypatch.setattr("minibroker.spark.packing.check_workers", lambda _: None)
    assert main(["profile", "--path", str(tmp_path), "--starting-timestamp", str(START_MS), "--quiet"]) == 1
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith(f"minibroker spark profile: orders-0: cannot look for the time {START_MS} in {segment}, ")


def spark_error(text: str) -> Exception:
    error: Exception = type("PythonException", (Exception,), {"__module__": "pyspark.errors.exceptions.captured"})(text)
    return error


def test_of_a_task_that_failed_only_its_reason_is_said() -> None:
    told = """Job aborted due to stage failure
  File "minibroker/spark/files/rows.py", line 200, in _broken
minibroker.spark.files.rows.CorruptBatch: orders-0, offsets 3 to 4, byte 9 of data/0.log: checksum
\tat org.apache.spark.api.python.BasePythonRunner"""
    assert reason_of(spark_error(told)) == "orders-0, offsets 3 to 4, byte 9 of data/0.log: checksum"
    assert reason_of(spark_error("the JVM has no memory left")) is None
    assert reason_of(ValueError("minibroker.x: no")) is None


OF_FILES = {  # as Spark 4.1 says it, and what is left of it
    """An error occurred while calling o75.collectToPython.
: o.a.s.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///b.csv.  SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(QueryExecutionErrors.scala:904)
\t... 1 more
Caused by: org.apache.spark.SparkIllegalArgumentException: CSV header does not conform to the schema.
 Header: name, id
 Schema: id, name
Expected: id but found: name
CSV file: file:///b.csv
\tat org.apache.spark.sql.catalyst.csv.CSVHeaderChecker.$anonfun$checkHeaderColumnNames$7(CSVHeaderChecker.scala:83)
\t... 1 more
""": (
        "Encountered error while reading file file:///b.csv. CSV header does not conform to the schema. "
        "Header: name, id Schema: id, name Expected: id but found: name CSV file: file:///b.csv"
    ),
    """Job aborted due to stage failure
Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:/b.
\tat org.apache.spark.sql.execution.datasources.FileScanRDD
Caused by: java.lang.RuntimeException: java.io.IOException: could not read page
\tat org.apache.parquet
Caused by: java.io.IOException: FAILED_TO_UNCOMPRESS(5)
\tat org.xerial
""": "Encountered error while reading file file:/b. FAILED_TO_UNCOMPRESS(5)",
    """[CANNOT_MERGE_SCHEMAS] Failed merging schemas:
Initial schema:
"STRUCT<id: BIGINT>"
Schema that cannot be merged with the initial schema:
"STRUCT<id: STRING>". SQLSTATE: 42KD9
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.failedMergingSchemaError
""": (
        'Failed merging schemas: Initial schema: "STRUCT<id: BIGINT>" '
        'Schema that cannot be merged with the initial schema: "STRUCT<id: STRING>".'
    ),
    """[STREAM_FAILED] Query [id = 0] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred
Traceback (most recent call last):
  File "minibroker/spark/jobs/export_files.py", line 315, in write
    size_bytes = file.close()
OSError: [Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device

\tat org.apache.spark.api.python.BasePythonRunner
""": "[Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device",
    """Job aborted
Caused by: java.io.IOException: No space left on device
\tat java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)
""": "No space left on device",
}  # fmt: skip


@pytest.mark.parametrize("told", OF_FILES)
def test_of_a_file_or_disk_that_cannot_be_used_the_cause_is_said(told: str) -> None:
    assert reason_of(spark_error(told)) == OF_FILES[told]


def test_what_the_system_refuses_to_the_driver_is_said() -> None:
    assert reason_of(PermissionError(13, "Permission denied", "lake")) == "[Errno 13] Permission denied: 'lake'"
    assert reason_of(FileNotFoundError(2, "No such file or directory", "x")) is None, "that would be a bug of ours"


LATE = spark_error("[STREAM_FAILED] Query [id = 0] terminated with exception: Python worker failed to connect back.")


class Query:
    """A stream of Spark that ends in one way."""

    def __init__(self, error: Exception | None):
        self.error, self.is_stopped = error, False

    def awaitTermination(self) -> None:
        if self.error:
            raise self.error

    def stop(self) -> None:
        self.is_stopped = True


def test_a_stream_whose_worker_came_too_late_is_started_again() -> None:
    queries = [Query(LATE), Query(LATE), Query(None)]
    starts = iter(queries)
    assert ended(lambda: next(starts), list) is queries[-1]
    assert all(query.is_stopped for query in queries)


@pytest.mark.parametrize(
    ("queries", "notes", "left"),
    [
        ([Query(LATE)] * 4, [], 1),  # it stays as busy
        ([Query(LATE)] * 2, ["planned"], 1),  # what was begun is the next run's, which makes it good first
        ([Query(spark_error("minibroker.x.Broken: late"))] * 2, [], 1),
    ],
)
def test_a_stream_is_not_started_again_for_ever(queries: list[Query], notes: list[str], left: int) -> None:
    starts = iter(queries)
    with pytest.raises(TaskFailed, match=r"did not start in the time that Spark gives it|late"):
        ended(lambda: next(starts), lambda: notes)
    assert len(list(starts)) == left


def test_progress_elsewhere_than_on_a_terminal_is_a_line_for_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress().step("planning"):
        pass
    with Progress(is_wanted=False).step("reading"):
        pass
    assert capsys.readouterr().err == "planning\n"


WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
from minibroker.spark.jobs.command import JOBS, main
for name in JOBS:
    try:
        status = main([name, "--help"])
    except SystemExit as end:
        status = end.code
    print(name, "ended with", status)
"""


def test_without_the_extra_each_job_helps_or_says_what_is_missing() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_NUMPY], capture_output=True, text=True, check=True)
    ended = dict(re.findall(r"^(\w+) ended with (\d)$", done.stdout, re.MULTILINE))
    assert ended.keys() == JOBS.keys()
    assert {*ended.values()} == {"0", "2"}
    advice = "numpy is not installed, which the jobs of Spark need: pip install 'minibroker[spark]'"
    assert done.stderr.splitlines() == [
        f"minibroker spark {name}: {advice}" for name, status in ended.items() if status == "2"
    ]
