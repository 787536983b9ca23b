"""`import` in Spark: which columns become what, and that records arrive in topics and log directories."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from minibroker import Broker
from minibroker.spark.jobs.loading_files import format_of
from minibroker.spark.option_values import OptionError
from tests.spark.session import Session

LOADS = "tests.spark.jobs.loads"
DAY_MS = 86_400_000
START = 1_704_067_200_000  # 2024 begins


def imported(spark: Session, *words: object) -> Any:
    told = spark.call(f"{LOADS}:imported", words=[str(word) for word in words])
    assert "error" not in told, told["error"]
    return told


def refused(spark: Session, *words: object) -> str:
    return str(spark.call(f"{LOADS}:imported", words=[str(word) for word in words])["error"])


def rows(spark: Session, path: object, topic: str = "orders,users") -> Sequence[Any]:
    """Return topic, partition, offset, key, value, time in ms and headers of records in a log directory."""
    found = spark.rows("minibroker", path=path, subscribe=topic, includeHeaders="true")
    shown = [
        (topic, partition, offset, key and bytes.fromhex(key), value and bytes.fromhex(value), time // 1000, headers)
        for key, value, topic, partition, offset, time, _, headers in found
    ]
    return sorted(shown)


@pytest.fixture(scope="module")
def files(spark: Session, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    spark.call(f"{LOADS}:files", folder=str(folder))
    return folder


@pytest.mark.slow
@pytest.mark.interop
def test_columns_become_keys_values_times_topics_and_partitions(spark: Session, files: Path, tmp_path: Path) -> None:
    told = imported(
        spark, files / "rows.parquet", "--key", "id", "--timestamp", "at", "--topic-column", "kind",
        "--partition-column", "place", "--to-path", tmp_path, "--partitions", 2, "--compression", "lz4",
    )  # fmt: skip
    assert told["records"] == 3
    found = rows(spark, tmp_path)
    assert [(row[:2], row[3], row[5]) for row in found] == [
        (("orders", 0), b"1", START),
        (("orders", 1), b"3", START + 2 * DAY_MS),
        (("users", 1), b"2", START + DAY_MS),
    ]
    assert json.loads(found[1][4]) == {
        "id": 3, "name": None, "more": {"x": 3, "y": "z"}, "at": "2024-01-03T05:30:00.000+05:30", "kind": "orders",
        "place": 1,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.interop
def test_a_column_is_the_value_as_it_is_or_as_json(spark: Session, files: Path, tmp_path: Path) -> None:
    imported(spark, files / "rows.parquet", "--value", "more", "-t", "orders", "--to-path", tmp_path / "nested")
    values = [row[4] for row in rows(spark, tmp_path / "nested", "orders")]
    assert values == [b'{"x":1}', None, b'{"x":3,"y":"z"}']
    imported(
        spark, files / "rows.csv", "--value", "name", "--timestamp", "ms", "-t", "orders",
        "--to-path", tmp_path / "csv", "--read-option", "inferSchema=true",
    )  # fmt: skip
    found = rows(spark, tmp_path / "csv", "orders")
    assert [(row[4], row[5]) for row in found] == [(b"a", START), (b"b", START + DAY_MS), (None, START + 2 * DAY_MS)]


@pytest.mark.slow
@pytest.mark.interop
def test_records_come_to_a_broker_and_out_of_it(spark: Session, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(b'{"id":7,"at":"2024-01-01T00:00:00Z"}\n{"id":8}\n'))
    with Broker(topics=["orders:2"]) as broker:
        words = ("-t", "orders", "--to-bootstrap-server", broker.bootstrap_servers, "--compression", "zstd")
        told = imported(spark, tmp_path / "rows.jsonl.gz", "--key", "id", "--timestamp", "at", *words)
        assert (told["records"], told["bytes of keys and values"]) == (2, 1 + 36 + 1 + 8)
        records = sorted((record.key, record.value, record.timestamp) for record in broker.records("orders"))
        assert records[0] == (b"7", b'{"id":7,"at":"2024-01-01T00:00:00Z"}', START)  # as the lines stand
        assert records[1][:2] == (b"8", b'{"id":8}')
        lake = {"servers": broker.bootstrap_servers, "target": str(tmp_path / "lake")}
        assert spark.call("tests.spark.jobs.lakes:exported", **lake)["records"] == 2
        imported(spark, "--generate", "records=3,seed=1", *words)
        assert spark.call("tests.spark.jobs.lakes:exported", **lake)["records"] == 3
        offsets = spark.call("tests.spark.jobs.lakes:rows", target=lake["target"], columns="partition,offset")
        expected = [[record.partition, record.offset] for record in broker.records("orders")]
        assert sorted(offsets) == sorted(expected)
        assert len(expected) == 5
        told = refused(spark, tmp_path / "rows.jsonl.gz", "--partitions", 2, *words)
        assert "--partitions is for --to-path" in told


TIME = "2024-01-01T00:00:00Z"
BROKEN = {  # the first line is whole, the second torn, and the time of the third is none
    "rows.jsonl": f'{{"id":"1","at":"{TIME}"}}\n{{"id":"2","at"\n{{"id":"3","at":"soon"}}\n',
    "rows.csv": f"id,at\n1,{TIME}\n2\n3,soon\n",
    "rows.records": f'{{"key":"1","payload":"{TIME}","ts":{START}}}\n{{"key":\n{{"key":"3","ts":"soon"}}\n',
}


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_read_ends_the_job_or_is_counted(spark: Session, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(BROKEN[name])
    is_records = name == "rows.records"
    columns = ("--format", "records") if is_records else ("--key", "id", "--timestamp", "at")
    words = (tmp_path / name, "-t", "orders", *columns)
    told = refused(spark, *words, "--to-path", tmp_path / "fail")
    assert told.startswith("a line cannot be read: ") or told == "at is no timestamp: soon"
    assert not (tmp_path / "fail" / "orders-0").exists()

    told = imported(spark, *words, "--to-path", tmp_path / "drop", "--read-option", "mode=DROPMALFORMED")
    assert (told["records"], told["dropped"]) == (1, 2)
    assert told["problems"][0].startswith("2 records were left out, as this one: a line cannot be read: ")
    (row,) = rows(spark, tmp_path / "drop", "orders")
    assert (row[3], row[5]) == (b"1", START)

    told = imported(spark, *words, "--to-path", tmp_path / "keep", "--read-option", "mode=permissive")
    assert (told["records"], told["not parsed"], len(told["problems"])) == (3, 2, 1)
    lines = BROKEN[name].splitlines()[-2:]
    values = [row[4].decode() for row in rows(spark, tmp_path / "keep", "orders")]
    assert values[1] == lines[0], "as it stands"
    assert json.loads(values[2]) == {"id": "3", "at": "soon"} if not is_records else values[2] == lines[1]


@pytest.mark.slow
@pytest.mark.interop
def test_a_line_is_broken_by_columns_that_nobody_asks_for(spark: Session, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\nx,1\ny\n")
    words = (tmp_path / "rows.csv", "-t", "orders", "--value", "a", "--to-path", tmp_path / "data")
    assert refused(spark, *words) == "a line cannot be read: y"
    assert imported(spark, *words, "--read-option", "mode=DROPMALFORMED")["dropped"] == 1
    (tmp_path / "none.jsonl").write_text("")
    told = imported(spark, tmp_path / "none.jsonl", "-t", "orders", "--to-path", tmp_path / "none")
    assert (told["records"], told["not parsed"]) == (0, 0)


@pytest.mark.slow
@pytest.mark.interop
def test_a_line_of_json_is_one_value(spark: Session, tmp_path: Path) -> None:
    broken = [
        '{"id":1}x', '{"id":1}{"id":2}', '{"id":1},{"id":2}', '{"id":1}]x', '{"id":1}}', '{"id":1} // x', "null", "[1]",
        "\u00a0", '{"id"',
    ]  # fmt: skip
    whole = ['{"id":1}', ' {"id":2.5}\t', '{"id":12345678901234567890, "a": [{}]}']
    (tmp_path / "rows.jsonl").write_text("\n".join([*broken, "", " \t ", *whole]))
    words = (tmp_path / "rows.jsonl", "-t", "orders", "--key", "id")
    told = imported(spark, *words, "--to-path", tmp_path / "keep", "--read-option", "mode=PERMISSIVE")
    assert (told["records"], told["not parsed"]) == (len(broken) + len(whole), len(broken))
    told = imported(spark, *words, "--to-path", tmp_path / "drop", "--read-option", "mode=DROPMALFORMED")
    assert told["dropped"] == len(broken)
    found = rows(spark, tmp_path / "drop", "orders")
    assert [row[3] for row in found] == [b"1", b"2.5", b"12345678901234567890"], "a number is as it stands"
    assert [row[4].decode() for row in found] == whole


@pytest.mark.slow
@pytest.mark.interop
def test_files_with_other_columns_are_read_by_name_or_refused(spark: Session, tmp_path: Path) -> None:
    """Whatever a second file has, no value comes under a name that is not its own, and none is lost."""
    spark.call(
        f"{LOADS}:written",
        files={
            f"{kind}/{name}": query
            for kind in ("parquet", "orc")
            for name, query in (
                ("more/a", "select 1 as id, 'a' as name"), ("more/b", "select 'x' as extra, 'b' as name, 2 as id"),
                ("type/a", "select 1 as id"), ("type/b", "select 'x' as id"),
            )
        },
        folder=str(tmp_path),
    )  # fmt: skip
    for kind in ("parquet", "orc"):
        words = ("--format", kind, "-t", "orders", "--key", "id", "--to-path", tmp_path / f"data-{kind}")
        imported(spark, tmp_path / kind / "more" / "a", tmp_path / kind / "more" / "b", *words)
        found = [json.loads(row[4]) for row in rows(spark, tmp_path / f"data-{kind}", "orders")]
        assert sorted(found, key=lambda row: row["id"]) == [
            {"id": 1, "name": "a", "extra": None}, {"id": 2, "name": "b", "extra": "x"},
        ]  # fmt: skip
        told = refused(spark, tmp_path / kind / "type" / "a", tmp_path / kind / "type" / "b", *words)
        assert told.startswith("Failed merging schemas: ")
    for second, told in (
        ("name,id\nb,2\n", "CSV header does not conform to the schema. Header: "),
        ("id,name,extra\n2,b,x\n", "Number of column in CSV header is not equal to number of fields in the schema: "),
        ("id\n2\n", "Number of column in CSV header is not equal to number of fields in the schema: "),
    ):
        (tmp_path / "a.csv").write_text("id,name\n1,a\n")
        (tmp_path / "b.csv").write_text(second)
        files = (tmp_path / "a.csv", tmp_path / "b.csv")
        assert told in refused(spark, *files, "-t", "orders", "--to-path", tmp_path / "data"), second
    assert not (tmp_path / "data" / "orders-0").exists()


@pytest.mark.slow
@pytest.mark.interop
def test_columns_of_csv_without_names(spark: Session, tmp_path: Path) -> None:
    to = ("-t", "orders", "--to-path", tmp_path / "data")
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(",name\n1,a\n")
    assert imported(spark, tmp_path / "a.csv", "--key", "_c0", *to)["records"] == 1
    assert "column 1 has no name in the first line" in refused(spark, tmp_path / "a.csv", tmp_path / "b.csv", *to)
    alike = ("--read-option", "enforceSchema=true")
    assert imported(spark, tmp_path / "a.csv", tmp_path / "b.csv", *alike, *to)["records"] == 2
    assert imported(spark, tmp_path / "a.csv", "--read-option", "header=false", *to)["records"] == 2
    (tmp_path / "b.csv").write_text("")
    assert "there is no first line with names of columns" in refused(spark, tmp_path / "b.csv", *to)
    (tmp_path / "b.csv").write_text("id,id\n1,2\n")
    assert "Header: id, id" in refused(spark, tmp_path / "b.csv", *to)


@pytest.mark.slow
@pytest.mark.interop
def test_odd_files_are_refused_with_a_sentence(spark: Session, tmp_path: Path) -> None:
    spark.call(
        f"{LOADS}:written",
        files={"whole": "select 1 as id", "ours": "select 'x' as `__minibroker_broken`"},
        folder=str(tmp_path),
    )
    (tmp_path / "whole" / "part-2.parquet").write_bytes(b"garbage")
    (tmp_path / "twins.jsonl").write_text('{"id":1,"ID":2}\n')
    (tmp_path / "odd.jsonl").write_text('{"at":9223372036854775807,"p":1.7}\n')
    for words, told in (
        (("whole", "--format", "parquet"), "part-2.parquet is not a Parquet file"),
        (("ours", "--format", "parquet"), "there is a column __minibroker_broken, and that is a name of ours"),
        (("twins.jsonl",), "The column `id` already exists"),
        (("odd.jsonl", "--timestamp", "at"), "at is no timestamp: 9223372036854775807"),
        (("odd.jsonl", "--partition-column", "p"), "p is no partition: 1.7"),
    ):
        file, *others = words
        found = refused(spark, tmp_path / file, *others, "-t", "orders", "--to-path", tmp_path / "data")
        assert told in found, words
        assert "\n" not in found
    assert not (tmp_path / "data" / "orders-0").exists()


ODD_RECORDS = [
    b'{"payload":"\xff"}', b'{"partition":"x"}', b'{"partition":1.5}', b'{"partition":2147483648}', b'{"offset":true}',
    b'{"ts":9223372036854775807}', b'{"topic":5}', b'{"topic":"\\ud800"}', b'{"headers":["a"]}',
    b'{"headers":["\\ud800","x"]}', b"[]", b"5", b'{"key":{"base64":"!"}}',
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.interop
def test_lines_that_are_no_records_are_kept_as_they_stand(spark: Session, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"\n".join([*ODD_RECORDS, b" \t", b'{"payload":"whole","ts":null}']))
    words = (tmp_path / "lines", "--format", "records", "-t", "orders", "--to-path", tmp_path / "data")
    assert refused(spark, *words).startswith("a line cannot be read: ")
    told = imported(spark, *words, "--read-option", "mode=PERMISSIVE")
    assert (told["records"], told["not parsed"]) == (len(ODD_RECORDS) + 1, len(ODD_RECORDS))
    assert [row[4] for row in rows(spark, tmp_path / "data", "orders")] == [*ODD_RECORDS, b"whole"]


@pytest.mark.slow
@pytest.mark.interop
def test_what_is_whole_has_no_problems(spark: Session, files: Path, tmp_path: Path) -> None:
    told = imported(spark, files / "rows.csv", "-t", "orders", "--to-path", tmp_path)
    assert (told["not parsed"], told["problems"]) == (0, [])
    to = ("-t", "orders", "--to-path", tmp_path)
    assert "read-option mode is 'any'" in refused(spark, files / "rows.csv", *to, "--read-option", "mode=any")
    told = refused(spark, files / "rows.csv", *to, "--read-option", "ignoreCorruptFiles=true")
    assert "files would be left out" in told


@pytest.mark.slow
@pytest.mark.interop
def test_an_export_comes_back_as_it_was(spark: Session, tmp_path: Path) -> None:
    lines = [
        {"topic": "orders", "partition": partition, "offset": offset, "ts": START + offset, "key": f"k{offset}",
         "payload": {"base64": "/w=="}, "headers": ["h", None]}
        for partition, offset in ((0, 0), (0, 1), (1, 0))
    ]  # fmt: skip
    (tmp_path / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = imported(
        spark, tmp_path / "lines", "--format", "records", "--topic-column", "topic", "--partition-column", "partition",
        "--to-path", tmp_path / "data", "--partitions", 2,
    )  # fmt: skip
    assert told["records"] == 3
    spark.call(
        "tests.spark.jobs.lakes:exported", path=str(tmp_path / "data"), target=str(tmp_path / "lake"), offsets_max=2
    )
    spark.call("tests.spark.jobs.lakes:exported", path=str(tmp_path / "data"), target=str(tmp_path / "lake"))
    told = imported(
        spark, tmp_path / "lake", "--partition-column", "partition", "--to-path", tmp_path / "again", "--partitions", 2
    )
    assert told["records"] == 3
    assert rows(spark, tmp_path / "again", "orders") == rows(spark, tmp_path / "data", "orders")
    assert rows(spark, tmp_path / "again", "orders")[0] == (
        "orders", 0, 0, b"k0", b"\xff", START, [["h", None]],
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.interop
def test_topics_that_are_made_have_the_partitions_that_their_records_name(spark: Session, tmp_path: Path) -> None:
    lines = [
        {"topic": topic, "partition": partition, "offset": 0, "ts": START, "key": "k", "payload": "v"}
        for topic, partition in (("orders", 0), ("orders", 4), ("users", 1))
    ]
    (tmp_path / "lines").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = (tmp_path / "lines", "--format", "records", "--topic-column", "topic", "--partition-column", "partition")
    assert imported(spark, *words, "--to-path", tmp_path / "data")["records"] == 3
    assert [row[:2] for row in rows(spark, tmp_path / "data")] == [("orders", 0), ("orders", 4), ("users", 1)]
    with Broker(data_dir=tmp_path / "data") as broker:
        assert len(broker.records("orders")) == 2
        assert [len(list(tmp_path.glob(f"data/{topic}-*"))) for topic in ("orders", "users")] == [5, 2]
    told = refused(spark, *words, "--to-path", tmp_path / "few", "--partitions", 4)
    assert told.startswith("partition 4: topic orders has 4, counted from 0: one that is made in a directory gets ")
    assert "--partitions" in told


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.parametrize(("logs", "topics"), [(20, 1), (30, 4)])
def test_a_task_writes_one_partition_in_its_order(spark: Session, logs: int, topics: int) -> None:
    assert spark.call(f"{LOADS}:works", logs=logs, topics=topics) == [[1, 20, True]] * (logs * topics)


@pytest.mark.slow
@pytest.mark.interop
def test_records_by_a_rule_are_the_same_on_any_number_of_tasks(spark: Session, tmp_path: Path) -> None:
    rule = "records=34000,keys=500,skew=1,size=uniform:80:120,late=0.1:1000"
    one = spark.call(f"{LOADS}:generated", rule=rule, tasks=1)
    three = spark.call(f"{LOADS}:generated", rule=rule, tasks=3)
    assert one[:2] == three[:2]
    assert one[1:] == [34_000, 1]
    assert three[2] == 3
    told = imported(spark, "--generate", rule, "-t", "orders", "--to-path", tmp_path, "--partitions", 3)
    assert told["records"] == 34_000
    assert len(told["partitions"]) == 3


@pytest.mark.slow
@pytest.mark.interop
def test_a_broker_keeps_old_records_of_topics_that_a_job_made(spark: Session, tmp_path: Path) -> None:
    rule = ("--generate", "records=10", "--to-path", tmp_path)
    for words in (("--to-option", "config.retention.ms=60000"), ()):
        told = imported(spark, *rule, "-t", "users", *words)
        (note,) = told["notes"]
        assert re.fullmatch(r"users: of (\d) loaded segments \1 are older than its retention.ms: .*", note)
        assert told["problems"] == []
    kept = "topics made here keep their records: retention.ms=-1"
    assert imported(spark, *rule, "-t", "orders")["notes"] == [kept]
    assert imported(spark, *rule, "-t", "orders")["notes"] == [], "nothing was made"
    with Broker(data_dir=tmp_path) as broker:
        broker.retention_now()
        assert len(broker.records("orders")) == 20
        assert broker.records("users") == []


@pytest.mark.slow
@pytest.mark.interop
def test_what_makes_no_sense_is_refused(spark: Session, files: Path, tmp_path: Path) -> None:
    path = files / "rows.parquet"
    to = ("--to-path", tmp_path)
    for words, told in (
        ((path, "-t", "orders"), "say where records go: --to-path DIR, or --to-bootstrap-server"),
        (("-t", "orders", *to), "say what to write: files, or --generate"),
        ((path, *to), "say where the records go: --topic NAME"),
        ((path, "-t", "a", "--topic-column", "kind", *to), "--topic and --topic-column are both there"),
        ((path, "-t", "a", "--key", "ID2", *to), "--key ID2: there is no such column, only id, name"),
        ((path, "-t", "a", "--timestamp", "more", *to), "--timestamp more: the column is struct"),
        (("--generate", "records=1", *to), "--generate needs --topic NAME"),
        (("--generate", "records=1", "-t", "a", "--key", "k", *to), "has its columns already"),
        ((tmp_path / "none.csv", "-t", "a", *to), "Path does not exist"),
        (("lake.orders", "--format", "iceberg", "-t", "a", *to), "`lake`.`orders` cannot be found"),
        (("lake/orders", "--format", "delta", "-t", "a", *to), "Failed to find the data source: delta"),
        (("a", "b", "--format", "delta", "-t", "a", *to), "--format delta: name one table, not a, b"),
    ):
        assert told in refused(spark, *words), words


@pytest.mark.parametrize(
    ("paths", "name"),
    [
        (["a/b.json"], "json"),
        (["a/b.jsonl.gz", "c.ndjson"], "json"),
        (["b.csv.zst"], "csv"),
        (["folder", "lake/topic=orders/"], "parquet"),
        (["notes.txt"], "text"),
    ],
)
def test_names_tell_formats(paths: list[str], name: str) -> None:
    assert format_of(paths) == name


@pytest.mark.parametrize("paths", [["a.xyz"], ["a.csv", "b.json"]])
def test_names_that_tell_no_format_are_refused(paths: list[str]) -> None:
    with pytest.raises(OptionError, match="say it with --format"):
        format_of(paths)
