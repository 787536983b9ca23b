"""A real Kafka opens directories that bulk loads have written, serves them, and finds nothing wrong with the files."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from minibroker import Broker
from minibroker.log.records import Record
from tests.interop import broker, kafka
from tests.interop.broker import running
from tests.interop.test_kafka_reads_our_logs import complaints
from tests.interop.test_kafka_shares_our_directory import consumed, described
from tests.spark.loading import NOW_MS, Load, batch_of, loaded, rows_of

# kafka-python reads its own files in a way that Python has deprecated.
pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

FOREVER = {"config__retention.ms": "-1"}


def records_of(chance: Random, count: int) -> list[Record]:
    return [
        Record(
            chance.choice([None, b"k%d" % (number % 17)]),
            chance.choice([b"", b"v%d" % number, b"same" * 50]),
            (("trace", b"%d" % number),) if number % 3 else (),
            NOW_MS + number,
        )
        for number in range(count)
    ]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory that was loaded three times: two topics of all codecs, many segments, several tasks."""
    root, chance = tmp_path / "data", Random(5)
    small = {"batchBytes": 1500, "segmentBytes": 9000, "indexIntervalBytes": 500}
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        records = records_of(chance, 700)
        topics = pa.array([chance.choice(["orders", "un.dotted"]) for _ in records])
        tasks = [
            [batch_of(records[begin : begin + 250], topic=topics[begin : begin + 250])] for begin in range(0, 700, 250)
        ]
        told = {"partitions": 3, **FOREVER} if not number else {}
        loaded(root, tasks, codec=codec, **small, **told)
    return root


def without_headers(root: Path, directory: str) -> list[tuple[int, bytes, bytes]]:
    return [(offset, key or b"", value or b"") for offset, _, key, value, _ in rows_of(root, directory)]


def test_kafka_serves_what_was_loaded_and_a_load_adds_to_what_kafka_left(root: Path, tmp_path: Path) -> None:
    partitions = [(topic, number) for topic in ("orders", "un.dotted") for number in range(3)]
    rows = {key: without_headers(root, f"{key[0]}-{key[1]}") for key in partitions}
    assert sum(map(len, rows.values())) == 3500
    # What a load leaves that never ended must not be in Kafka's way either.
    load = Load(root).begin()
    load.task([batch_of(records_of(Random(1), 50), topic=pa.array(["orders", "others"] * 25))])
    load.unlock()
    assert list(root.glob("others-0.*-delete"))
    assert list(root.glob("orders-0/*.deleted"))
    with running(root, tmp_path / "kafka") as theirs:
        assert consumed(theirs.address, partitions) == rows
        _, counts, configs = described(theirs.address)
        assert counts == {"orders": 3, "un.dotted": 3}
        assert configs == {name: {"retention.ms": "-1"} for name in counts}
        theirs.stop()
    assert "stray" not in theirs.text.lower().replace("stray=", "")
    assert not list(root.glob("orders-*/*load-*"))
    more = [Record(b"k%d" % number, b"behind Kafka", (), NOW_MS) for number in range(90)]
    done = loaded(root, [[batch_of(more)]], topic="orders")
    assert {each.partition: each.first_offset for each in done} == {
        number: len(rows["orders", number]) for number in range(3)
    }
    rows = {key: without_headers(root, f"{key[0]}-{key[1]}") for key in partitions}
    assert sum(map(len, rows.values())) == 3590
    with running(root, tmp_path / "kafka") as theirs:
        assert consumed(theirs.address, partitions) == rows
        theirs.stop()


def test_our_broker_serves_what_was_loaded(root: Path) -> None:
    partitions = [(topic, number) for topic in ("orders", "un.dotted") for number in range(3)]
    rows = {key: without_headers(root, f"{key[0]}-{key[1]}") for key in partitions}
    with Broker(data_dir=root) as ours:
        assert consumed(ours.bootstrap_servers, partitions) == rows
    assert sum(map(len, rows.values())) == 3500


@pytest.mark.parametrize("named", [{}, {"release": "3.9"}], ids=["no release named", "3.9 named"])
def test_kafka_of_an_older_release_serves_a_directory(named: dict[str, str], tmp_path: Path) -> None:
    root, records = tmp_path / "data", records_of(Random(2), 300)
    loaded(root, [[batch_of(records)]], topic="orders", codec="lz4", segmentBytes=5000, batchBytes=900, **named)
    # What logs is in the archive of a release, not in its jars; that of the newer one fits.
    logging = [jar for jar in broker.class_path().split(os.pathsep) if "log4j" in Path(jar).name]
    jars = os.pathsep.join([kafka.class_path(kafka.DUMPS[0]), *logging])
    with running(root, tmp_path / "kafka", jars=jars) as theirs:
        assert consumed(theirs.address, [("orders", 0)]) == {("orders", 0): without_headers(root, "orders-0")}
        theirs.stop()


@pytest.mark.parametrize("release", kafka.DUMPS, ids=lambda release: release.version)
@pytest.mark.parametrize("flag", ["--print-data-log", "--index-sanity-check"])
def test_kafkas_dump_tool_finds_nothing_wrong(release: kafka.Release, flag: str, root: Path) -> None:
    files = sorted(path for path in root.glob("*-[0-9]/*") if path.suffix in (".log", ".index", ".timeindex"))
    files = [path for path in files if not path.parent.name.startswith("__")]
    assert len(files) > 60
    names = ",".join(path.relative_to(root).as_posix() for path in files)
    told = kafka.run(release, release.dump_class, "--files", names, flag, cwd=root)
    assert (told.returncode, complaints(told.stderr)) == (0, [])
    if flag == "--index-sanity-check":
        sane = [line for line in told.stdout.splitlines() if line.endswith(("passed sanity check.", "empty."))]
        assert len(sane) == sum(path.suffix != ".log" for path in files)
    else:
        assert sum(line.startswith("|") for line in told.stdout.splitlines()) == 3500
