"""The table of batches, of files and of brokers: what Kafka reads in its own logs, and what is wrong with others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from minibroker import Broker
from minibroker.cli import main
from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.compression import GZIP
from minibroker.log.records import Record
from minibroker.spark.columns.batch_rows import BATCHES_SCHEMA
from minibroker.spark.options import Options, parse
from minibroker.spark.reading import plan, reader_of
from tests.goldens import LOG_DIRECTORIES, log_meaning
from tests.spark.logs import START_MS, asked, every_batch, golden_directory, open_at, written
from tests.spark.served import adopt, served
from tests.spark.session import Session, started

pytestmark = pytest.mark.filterwarnings("ignore:minibroker.Broker")

SEGMENT = "orders-0/00000000000000000000.log"
KAFKAS_TYPES = {"NoTimestampType": None, "CreateTime": 0, "LogAppendTime": 1}


def table(options: Options) -> list[dict[str, Any]]:
    found = []
    for task in plan(options):
        reader = reader_of(task, options)
        for batch in reader.batches():
            batch.validate(full=True)
            found += batch.to_pylist()
        assert reader.left_out == []
    return found


def by_wire(broker: Broker, topic: str = "orders", **options: str) -> Options:
    told = {"kafka.bootstrap.servers": broker.bootstrap_servers, "mode": "batches", "subscribe": topic}
    return parse(told | {name.replace("_", "."): value for name, value in options.items()})


def ms(time: datetime | None) -> int:
    return -1 if time is None else round(time.timestamp() * 1000)


@pytest.mark.parametrize("bytes_max", [700, 1 << 27])
@pytest.mark.parametrize("name", LOG_DIRECTORIES)
def test_the_headers_are_those_that_kafka_reads(name: str, bytes_max: int, tmp_path: Path) -> None:
    root = golden_directory(tmp_path, name)
    for partition, meaning in log_meaning(name)["partitions"].items():
        topic, _, number = partition.rpartition("-")
        where: dict[str, Any] = {"assign": json.dumps({topic: [int(number)]}), "maxBytesPerPartition": bytes_max}
        rows = table(asked(root, mode="batches", endOfLog="logEnd", kafka_isolation_level="read_committed", **where))
        start = 17 if partition == "trimmed-0" else 0
        wanted = [each for segment in meaning["segments"] for each in segment["batches"]]
        wanted = [each for each in wanted if start <= each["lastOffset"] < meaning["lastStableOffset"]]
        assert len(rows) == len(wanted)
        for row, each in zip(rows, wanted, strict=True):
            is_wrapper = each["magic"] < 2 and each["codec"] != "none"
            assert row["baseOffset"] == (None if is_wrapper else each["baseOffset"])
            assert row["records"] == (None if is_wrapper else len(each["records"]))
            assert row["timestampType"] == KAFKAS_TYPES[each["timestampType"]]
            assert ms(row["maxTimestamp"]) == each["maxTimestamp"]
            told = {"lastOffset": "lastOffset", "format": "magic", "codec": "codec", "sizeBytes": "size", "crc": "crc"}
            assert {column: row[column] for column in told} == {column: each[told[column]] for column in told}
            assert (row["error"] is None) is each["valid"]
            data = Path(row["file"]).read_bytes()[row["position"] :][:17]
            assert (len(data), data[16]) == (17, each["magic"])


def test_brokers_show_the_batches_of_their_files(tmp_path: Path) -> None:
    logs = golden_directory(tmp_path / "golden", "zk28-1-before-clean")
    names = ["mixed-0", "v0-codecs-0", "v1-codecs-0", "v2-codecs-0"]
    adopt(tmp_path / "root", {name: logs / name for name in names})
    with served(tmp_path / "root") as broker:
        for name in names:
            topic = name.removesuffix("-0")
            wanted = table(asked(tmp_path / "root", topic, mode="batches", endOfLog="logEnd"))
            for told in ({}, {"kafka.max.partition.fetch.bytes": "300", "maxRecordsPerPartition": "7"}):
                rows = table(by_wire(broker, topic, **told))
                address = {"file": broker.bootstrap_servers, "position": None}
                assert rows == [each | address for each in wanted]
            assert len(wanted) > 5


def test_all_says_what_dump_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Transactions of each end, whoever may see them; one that has not ended; a marker that was cleaned."""
    log = open_at(tmp_path, segment_bytes=1 << 20)
    for producer, ends in ((7, "commit"), (8, "abort"), (9, "cleaned"), (10, "")):
        batch = build_batch(
            *(2, [Record(None, b"x", (), START_MS, 0), Record(None, b"y", (), -1, 1)]),
            producer_id=producer,
            producer_epoch=3,
            base_sequence=5,
            partition_leader_epoch=4,
            transactional=True,
        )
        log.append_as_follower(moved(batch, log.log_end_offset), now_ms=START_MS)
        if ends:
            marker = build_transaction_marker(
                commit=ends == "commit",
                offset=log.log_end_offset,
                timestamp=START_MS,
                producer_id=producer,
                producer_epoch=3,
                coordinator_epoch=1,
            )
            if ends == "cleaned":
                kept = {"base_offset": log.log_end_offset, "last_offset": log.log_end_offset, "max_timestamp": START_MS}
                marker = build_batch(2, [], producer_id=9, producer_epoch=3, transactional=True, control=True, **kept)
            log.append_as_follower(marker, now_ms=START_MS)
    log.close()
    spoil(tmp_path, 6, 70, 1)
    assert main(["dump", str(tmp_path / SEGMENT)]) == 1  # one checksum is wrong
    lines = [line.split(" ") for line in capsys.readouterr().out.splitlines() if line.startswith("baseOffset: ")]
    wanted = [{name.rstrip(":"): value for name, value in zip(line[::2], line[1::2])} for line in lines]
    rows = table(asked(tmp_path, mode="batches", endOfLog="logEnd"))
    told = {
        **{name: name for name in ("baseOffset", "lastOffset", "producerId", "producerEpoch", "baseSequence", "crc")},
        "records": "count",
        "leaderEpoch": "partitionLeaderEpoch",
        "sizeBytes": "size",
        "codec": "compresscodec",
        "position": "position",
        "isTransactional": "isTransactional",
        "isControl": "isControl",
        "format": "magic",
    }
    assert len(rows) == len(wanted) == 7
    for row, each in zip(rows, wanted, strict=True):
        assert {name: str(row[name]).lower() for name in told} == {name: each[told[name]] for name in told}
        assert ms(row["maxTimestamp"]) == int(each["CreateTime"])
        assert (row["error"] is None) is (each["isvalid"] == "true")
    assert [row["control"] for row in rows] == [None, "commit", None, "abort", None, None, None]
    assert [row["isControl"] for row in rows] == [False, True, False, True, False, True, False]
    assert [row["baseOffset"] for row in rows if row["error"]] == [6]


def moved(batch: bytes, offset: int) -> bytes:
    return offset.to_bytes(8, "big") + batch[8:]


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[Path]:
    written(tmp_path, 100, segment_bytes=1 << 20)
    yield tmp_path


def spoil(root: Path, offset: int, byte: int, value: int) -> int:
    """Change a byte of the batch at an offset; return where the batch is."""
    data = bytearray((root / SEGMENT).read_bytes())
    (position,) = (batch.position for batch in every_batch(root / "orders-0") if batch.base_offset == offset)
    data[position + byte] ^= value
    (root / SEGMENT).write_bytes(data)
    return position


@pytest.mark.parametrize(
    ("byte", "value", "error"),
    [
        (60, 9, "is not the checksum of the bytes"),
        (7, 64, "a batch with the offsets 94 to 94 cannot be here"),
        (20, 1, "is not the checksum of the bytes"),
    ],
)
def test_what_is_wrong_is_told_in_the_row(byte: int, value: int, error: str, broken: Path) -> None:
    position = spoil(broken, 30, byte, value)
    rows = table(asked(broken, mode="batches", endingOffsets=100))
    assert len(rows) == 100
    assert [row["position"] for row in rows if row["error"]] == [position]
    (row,) = [row for row in rows if row["error"]]
    assert error in row["error"]
    options = asked(broken, mode="batches", endingOffsets=100)
    options.columns = ["lastOffset", "position"]
    (batch,) = (batch for task in plan(options) for batch in reader_of(task, options).batches())
    assert batch.schema.names == ["lastOffset", "position"]
    assert len(batch) == 100


def test_where_no_batch_can_be_found_a_row_says_so(broken: Path) -> None:
    position = spoil(broken, 30, 8, 0x7F)
    rows = table(asked(broken, mode="batches", endingOffsets=100))
    (row,) = [row for row in rows if row["error"]]
    assert (row["position"], row["baseOffset"], row["sizeBytes"]) == (position, None, None)
    assert {row["lastOffset"] for row in rows} >= {*range(30), *range(40, 100)}


def test_what_is_half_written_behind_the_end_is_none(broken: Path) -> None:
    whole = table(asked(broken, mode="batches", endOfLog="logEnd"))
    with open(broken / SEGMENT, "ab") as file:
        file.write(build_batch(2, [Record(None, b"x" * 500)], base_offset=100)[:300])
    assert table(asked(broken, mode="batches", endOfLog="logEnd")) == whole
    assert len(whole) == 100


def test_a_wrapper_that_says_0_belongs_where_its_records_do(tmp_path: Path) -> None:
    wrapper = bytearray(build_batch(1, [Record(None, b"x", (), START_MS, at) for at in (0, 1)], codec=GZIP))
    wrapper[:8] = bytes(8)
    log = open_at(tmp_path, segment_bytes=1 << 20)
    log.close()
    (tmp_path / SEGMENT).write_bytes(wrapper + build_batch(1, [Record(None, b"x", (), START_MS, 2)]))
    rows = table(asked(tmp_path, mode="batches", endOfLog="logEnd"))
    assert [(row["baseOffset"], row["lastOffset"], row["error"]) for row in rows] == [(None, 1, None), (2, 2, None)]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with started(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.mark.interop
@pytest.mark.slow
def test_spark_shows_the_table(spark: Session, broken: Path) -> None:
    position = spoil(broken, 30, 60, 9)
    told: dict[str, Any] = {"mode": "batches", "endOfLog": "logEnd", "subscribe": "orders", "path": broken}
    where = "error is not null and partition = 0 and topic = 'orders' and timestampType is not null"
    (row,) = spark.rows("minibroker", where=where, **told)
    assert [name for name, _ in spark.columns] == BATCHES_SCHEMA.names
    kinds = dict(spark.columns)
    assert (kinds["crc"], kinds["isControl"], kinds["maxTimestamp"]) == ("bigint", "boolean", "timestamp")
    assert row[BATCHES_SCHEMA.names.index("position")] == position
    assert len(spark.rows("minibroker", schema="lastOffset bigint", **told)) == 100
    options = {name: str(value) for name, value in told.items()} | {"startingOffsets": "earliest"}
    schema = "position bigint, error string"
    stream = {"source": "minibroker", "options": options, "schema": schema, "checkpoint": f"{broken}/checkpoint"}
    ((*rows,),) = spark.call("tests.spark.streaming:available", **stream)["batches"]
    assert len(rows) == 100
    assert [at for at, error in rows if error] == [position]
