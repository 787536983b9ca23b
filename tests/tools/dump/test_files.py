"""`minibroker dump` against the text of Kafka's own tool, and what it adds to it."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from minibroker.cli import main
from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol import message
from minibroker.tools.dump.batches import Options
from minibroker.tools.dump.decoders import java_double, json_text
from minibroker.tools.dump.files import Dump
from tests import goldens

RELEASES = {"kraft39": "3.9", "kraft44": "4.4", "zk28": "2.8"}
DECODERS = {
    "__consumer_offsets-0": "offsets",
    "__transaction_state-0": "transaction-log",
    "__cluster_metadata-0": "cluster-metadata",
    "__share_group_state-0": "share-group-state",
}
SAMPLE = Path(__file__).parents[3] / "docs/sample-log"
LOG = "00000000000000000000.log"


def kafkas_text(name: str) -> list[str]:
    """Return what kafka-dump-log printed of a directory, partition by partition."""
    return gzip.decompress((goldens.GOLDEN / f"dumps/{name}.txt.gz").read_bytes()).decode().splitlines()


# A log without a batch, and an index that has only room: the tool looks for the batch of the first entry, and ends.
ROOM = re.compile(r"offset: \d+ position: 0|timestamp: 0 offset: \d+")
ENDS_KAFKAS_TOOL = "empty-0/00000000000000000000.index"


def without_room(lines: list[str], files: Mapping[str, bytes]) -> list[str]:
    """Leave out what Kafka's tool takes for entries: the room of indexes that have none."""
    kept: list[str] = []
    path = ""
    for line in lines:
        path = line.removeprefix("Dumping ") if line.startswith("Dumping ") else path
        is_room = ROOM.fullmatch(line) is not None and not any(files[path])
        if not is_room:
            kept.append(line)
        elif path.endswith(".index"):
            kept.append(f"{path} is empty.")
    return kept


def in_order(paths: list[str]) -> list[str]:
    suffixes = {".log": 0, ".index": 1, ".timeindex": 1, ".txnindex": 1, ".snapshot": 2}
    known = [path for path in paths if path[path.rfind(".") :] in suffixes]
    return sorted(known, key=lambda path: (suffixes[path[path.rfind(".") :]], path))


@pytest.mark.parametrize("name", goldens.LOG_DIRECTORIES)
def test_dump_of_a_real_directory_is_what_kafka_printed_line_by_line(name: str) -> None:
    files = goldens.log_files(name)
    printed: list[str] = []
    for partition in sorted({path.split("/")[0] for path in files if "/" in path}):
        options = Options(RELEASES[name.split("-")[0]], True, True, decoder=DECODERS.get(partition, ""))
        dump = Dump(options, lambda path: memoryview(files[path]))
        for path in in_order([path for path in files if path.startswith(f"{partition}/")]):
            printed += dump.lines(path)
            if path == ENDS_KAFKAS_TOOL and name == "kraft39-3-killed":
                printed.pop()  # that it is empty
                break
    assert printed == without_room(kafkas_text(name), files)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A partition of a real directory, three segments."""
    for path, data in goldens.log_files().items():
        if path.startswith("plain-0/"):
            (tmp_path / path.removeprefix("plain-0/")).write_bytes(data)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str], list[str]]:
    status = main(["dump", *map(str, arguments)])
    printed = capsys.readouterr()
    return status, printed.out.splitlines(), printed.err.splitlines()


def test_a_directory_stands_for_its_files_and_files_may_be_given_with_commas(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines, errors = run(capsys, partition, "--print-data-log", "--release", "3.9")
    text = kafkas_text("kraft39-1-before-clean")
    wanted = [line.replace("plain-0", str(partition)) for line in text]
    start = wanted.index(f"Dumping {partition}/{LOG}")
    assert (status, errors) == (0, [])
    assert lines == wanted[start : start + len(lines)]
    files = [partition / f"{base:020}.log" for base in (0, 18)]
    by_commas = run(capsys, "--files", ",".join(map(str, files)))
    assert by_commas == run(capsys, *files)
    assert [line for line in by_commas[1] if line.startswith("Dumping")] == [f"Dumping {file}" for file in files]


def test_without_deep_iteration_only_batches_are_shown(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, shallow, _ = run(capsys, partition / LOG)
    _, deep, _ = run(capsys, partition / LOG, "--deep-iteration")
    assert shallow == [line for line in deep if not line.startswith("|")]
    assert [line for line in deep if line.startswith("| offset: 17 ")] == [
        "| offset: 17 CreateTime: 1600000017000 keySize: 3 valueSize: 24 sequence: -1 headerKeys: []"
    ]
    _, bare, _ = run(capsys, partition / LOG, "--print-data-log", "--skip-record-metadata")
    assert [line for line in bare if line.startswith("|")][-1] == "| key: k17 payload: value-17................"


def test_max_bytes_ends_the_log_without_a_word(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines, _ = run(capsys, partition / LOG, "--max-bytes", 400)
    assert (status, len(lines)) == (0, 4)


def test_indexes_with_nothing_but_room_are_empty_and_what_comes_behind_is_printed(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a broker that runs has them in each active segment."""
    (partition / LOG).write_bytes(b"")
    index, times = partition / f"{0:020}.index", partition / f"{0:020}.timeindex"
    index.write_bytes(bytes(8 * 10))
    times.write_bytes(bytes(12 * 10))
    for words in ((), ("--verify-index-only",), ("--release", "3.9")):
        status, lines, errors = run(capsys, index, times, *words)
        assert (status, errors) == (0, [])
        assert lines == [f"Dumping {index}", f"{index} is empty.", f"Dumping {times}"]
    index.write_bytes(bytes(8))  # one entry, as small segments have that were closed
    assert run(capsys, index)[0] == 1


def test_wrong_indexes_are_reported_in_kafkas_words(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index, times = partition / f"{0:020}.index", partition / f"{0:020}.timeindex"
    index.write_bytes(struct.pack(">iiii", 9, 324, 15, 650))
    first = 1600000008000
    times.write_bytes(struct.pack(">qiqiqiqi", first + 3, 8, first + 6000, 15, first + 9000, 17, first + 3, 8))
    status, lines, errors = run(capsys, index, times)
    assert status == 1
    assert lines[1:3] == ["offset: 9 position: 324", "offset: 15 position: 650"]
    # Word for word what kafka-tools 4.3.0 says about the same bytes.
    expected = [
        f"Mismatches in :{index}",
        "  Index offset: 15, log offset: 14",
        "  Index offset: 9, log offset: 8",
        f"Found timestamp mismatch in :{times}",
        "  Index timestamp: 1600000008003, log timestamp: 1600000008000",
        "  Index timestamp: 1600000008003, log timestamp: 1600000008000",
        f"Found out of order timestamp in :{times}",
        "  Index timestamp: 1600000008003, Previously indexed timestamp: 1600000017000",
        f"The following indexed offsets are not found in :{times}",
        "Indexed offset: 15, found log offset: 17",
    ]
    assert errors == expected
    assert run(capsys, index, times, "--verify-index-only") == (1, [f"Dumping {index}", f"Dumping {times}"], expected)
    status, _, errors = run(capsys, times, "--release", "3.9")
    assert "The following indexed offsets are not found in the log." in errors


def test_sanity_check_is_that_of_a_starting_broker(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index, times = partition / f"{0:020}.index", partition / f"{0:020}.timeindex"
    status, lines, _ = run(capsys, index, times, "--index-sanity-check")
    assert (status, lines[1], lines[3]) == (0, f"{index} passed sanity check.", f"{times} passed sanity check.")
    times.write_bytes(times.read_bytes() + bytes(12))
    status, lines, errors = run(capsys, times, "--index-sanity-check")
    assert (status, lines) == (1, [f"Dumping {times}"])
    assert "has non-zero size but the last timestamp is 0 which is less than the first timestamp" in errors[0]
    index.write_bytes(index.read_bytes()[:-1])
    status, _, errors = run(capsys, index, "--index-sanity-check")
    assert status == 1
    assert "is corrupt, found 15 bytes which is neither positive nor a multiple of 8" in errors[0]


@pytest.mark.parametrize(
    ("change", "printed", "error"),
    [
        (lambda data: data[:-5], f"Found 160 invalid bytes at the end of {LOG}", "no whole batch at byte 815"),
        (lambda data: data + bytes(10), f"Found 10 invalid bytes at the end of {LOG}", "no whole batch at byte 980"),
        (
            lambda data: data + bytes(50),
            "",
            f"Found record size 0 smaller than minimum record overhead (14) in file {LOG}",
        ),
        (lambda data: data[:-1] + b"?", "isvalid: false", "the checksum of the batch at byte 815 is wrong"),
    ],
)
def test_broken_logs_end_with_kafkas_words_and_status_1(
    change: object, printed: str, error: str, partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = partition / LOG
    log.write_bytes(change(log.read_bytes()))  # type: ignore[operator]
    status, lines, errors = run(capsys, log)
    assert status == 1
    assert lines[-1].endswith(printed)
    assert len(errors) == 1
    assert error in errors[0]


@pytest.mark.parametrize("damage", range(162))
def test_any_broken_byte_is_a_message_and_no_traceback(
    damage: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bytearray(goldens.log_files()[f"plain-0/{LOG}"][:162])
    data[damage] ^= 0xFF
    log = tmp_path / LOG
    log.write_bytes(data)
    # Base offset, size and leader epoch stand outside the checksum.
    for flags in ([], ["--print-data-log"], ["--bytes"], ["--explain-offsets"], ["--cluster-metadata-decoder"]):
        status, _, errors = run(capsys, log, *flags)
        assert status == 1 or damage < 16 or flags[:1] in (["--bytes"], ["--explain-offsets"])
        assert all("Traceback" not in line for line in errors)


def test_corrupt_producer_snapshots_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = goldens.log_files()["txn-0/00000000000000000004.snapshot"]
    path = tmp_path / "00000000000000000004.snapshot"
    for content, words in [
        (snapshot[:-1] + b"z", "Snapshot is corrupt (CRC is no longer valid). Stored crc: 1164118273. Computed crc: "),
        (b"\0\2" + snapshot[2:], "Snapshot failed schema validation: Snapshot contained an unknown file version 2"),
        (snapshot[:-9], "Snapshot failed schema validation: "),
    ]:
        path.write_bytes(content)
        status, lines, errors = run(capsys, path)
        assert (status, lines) == (1, [f"Dumping {path}"])
        assert errors[0].startswith(words)


def test_gaps_are_reported_and_are_no_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "00000000000000000005.log"
    log.write_bytes(build_batch(2, [Record(b"k", b"v", (), 1, offset) for offset in (5, 7, 8, 12)], base_offset=5))
    status, _, errors = run(capsys, log, "--deep-iteration")
    assert (status, errors) == (
        0,
        [f"Non-consecutive offsets in {log}", "  5 is followed by 7", "  8 is followed by 12"],
    )
    _, _, older = run(capsys, log, "--deep-iteration", "--release", "3.9")
    assert older[1:] == errors[:0:-1]


def test_what_cannot_be_dumped_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "No such file" in run(capsys, tmp_path / "x.properties")[2][0]
    (tmp_path / "x.properties").write_text("")
    assert run(capsys, tmp_path / "x.properties")[2] == [f"Ignoring unknown file {tmp_path}/x.properties"]
    assert run(capsys)[0] == 2
    status, lines, errors = run(capsys, tmp_path / LOG)
    assert (status, lines) == (2, [])
    assert "No such file" in errors[0]
    assert "Java" in run(capsys, tmp_path, "--value-decoder-class", "a.B")[2][0]
    (tmp_path / "nonsense.log").write_bytes(b"")
    assert run(capsys, tmp_path)[0] == 1


@pytest.mark.outside
def test_a_reader_that_goes_away_is_no_error(partition: Path) -> None:
    import subprocess
    import sys

    command = [sys.executable, "-m", "minibroker", "dump", "--bytes", *[str(partition)] * 40]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def stored(name: str, variant: str = "full") -> bytes:
    """Return a golden stored record with the bytes in front of it."""
    found = next(case for case in goldens.wire("records") if (case["name"], case["variant"]) == (name, variant))
    return bytes.fromhex(found.get("storedPrefix", "") + found["hex"])


def decoded(tmp_path: Path, capsys: pytest.CaptureFixture[str], decoder: str, *records: Record) -> list[str]:
    log = tmp_path / LOG
    log.write_bytes(build_batch(2, [record._replace(offset=number) for number, record in enumerate(records)]))
    return [line for line in run(capsys, log, f"--{decoder}-decoder")[1] if line.startswith("|")]


def stored_records(decoder: str) -> list[tuple[bytes | None, bytes]]:
    """Return all records of a kind in the order of the golden file, each value with each variant of its key."""
    cases = [case for case in goldens.wire("records") if case["name"] not in NEWER_THAN_THE_TOOL]
    pairs: list[tuple[bytes | None, bytes]] = []
    for case in cases:
        home = message(case["name"]).__module__.rpartition(".")[2]
        value = bytes.fromhex(case.get("storedPrefix", "") + case["hex"])
        if home not in MODULES[decoder]:
            continue
        if case["name"].endswith("Record"):
            pairs.append((None, value))
        elif case["name"].endswith("Value") and "storedPrefix" in case:
            key = case["name"].removesuffix("Value") + "Key"
            keys = [other for other in cases if other["name"] == key and "storedPrefix" in other]
            pairs += [(bytes.fromhex(other["storedPrefix"] + other["hex"]), value) for other in keys]
    return pairs


NEWER_THAN_THE_TOOL = ("StreamsGroupMetadataValue", "UnregisterControllerRecord")  # of 4.4; the text is that of 4.3
MODULES = {
    "offsets": ("group_offsets", "consumer_groups", "share_groups", "streams_groups"),
    "transaction-log": ("transactions",),
    "cluster-metadata": ("brokers", "cluster", "security", "topics"),
    "share-group-state": ("share_state",),
}


@pytest.mark.parametrize("decoder", sorted(MODULES))
def test_every_version_of_every_stored_record_is_shown_as_kafka_shows_it(
    decoder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / LOG
    log.write_bytes(stored_log(decoder))
    _, lines, _ = run(capsys, log, f"--{decoder}-decoder")
    text = json.loads(gzip.decompress((goldens.GOLDEN / "dumps/records.json.gz").read_bytes()))
    assert lines[1:] == text[decoder]


def stored_log(decoder: str) -> bytes:
    pairs = enumerate(stored_records(decoder))
    return b"".join(build_batch(2, [Record(key, value, (), 1, number)]) for number, (key, value) in pairs)


def test_records_that_cannot_be_read_do_not_end_the_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key, value = stored("OffsetCommitKey"), stored("OffsetCommitValue")
    records = [Record(b"\0\x63a", b""), Record(b"\0", b""), Record(key, value[:-1]), Record(key, None)]
    lines = [line.split("headerKeys: [] ")[1] for line in decoded(tmp_path, capsys, "offsets", *records)]
    assert lines[0] == "key: Unknown record type 99 at offset 0, skipping."
    assert lines[1] == "key: Error at offset 1, skipping. Could not read version from key's buffer."
    assert lines[2].startswith("key: Error at offset 2, skipping. Could not read record with version ")
    assert lines[3].endswith(" payload: <DELETE>")
    metadata = [Record(None, b"\x02\0\0"), Record(None, b"\x01\x7f\0"), Record(None, b"\x01\x02\0"), Record(None, b"")]
    lines = [line.split("payload: ")[1] for line in decoded(tmp_path, capsys, "cluster-metadata", *metadata)]
    assert lines[0].endswith("due to unknown frame version 2(only frame version 1 is supported)")
    assert lines[1].endswith("UnsupportedVersionException: Unknown metadata id 127")
    assert lines[2] == "Error at 2, skipping. Failed to deserialize record with type 2"
    assert lines[3].startswith("Error at 3, skipping. ")


def test_json_is_that_of_jackson() -> None:
    text = json_text({"a": 'q"\\/\x01\x1f\n\x7fé\U0001f600\\u00ab', "b": [True, None, 1]})
    assert text == '{"a":"q\\"\\\\/\\u0001\\u001F\\n\x7fé\U0001f600\\\\u00ab","b":[true,null,1]}'


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (3.25, "3.25"),
        (1e6, "1000000.0"),
        (1e7, "1.0E7"),
        (123456789.0, "1.23456789E8"),
        (0.001, "0.001"),
        (-0.00012, "-1.2E-4"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_numbers_are_written_as_java_does(number: float, text: str) -> None:
    assert java_double(number) == text


def test_a_null_struct_in_a_tag_is_read_and_written_as_kafka_does() -> None:
    log = goldens.log_files("kraft44-1")[f"__consumer_offsets-0/{LOG}"]
    value = next(record.value for batch in batches(log) for record in batch.records() if record.offset == 12)
    cls = message("ConsumerGroupMemberMetadataValue")
    member = cls.decode(value[2:], 0)
    assert member.classic_member_metadata is None  # type: ignore[attr-defined]
    assert member.encode(0) == value[2:]


def test_bytes_shows_every_byte_of_a_file_at_its_place(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in sorted(partition.iterdir()):
        if path.suffix not in (".log", ".index", ".timeindex", ".snapshot"):
            continue
        status, lines, _ = run(capsys, path, "--bytes")
        places = [match.groups() for line in lines if (match := re.match(r" *(\d+)-(\d+) ", line))]
        ends = [0, *(int(end) for _, end in places)]
        assert max(map(len, lines[1:]), default=0) <= 80
        assert status == 0
        assert [int(start) for start, _ in places] == ends[:-1]
        assert ends[-1] == path.stat().st_size


def test_a_large_index_is_numbered_through(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = tmp_path / f"{0:020}.index"
    index.write_bytes(b"".join(struct.pack(">ii", number + 1, number) for number in range(1000)) + bytes(80_000))
    _, lines, _ = run(capsys, index, "--bytes")
    (place,) = [number for number, line in enumerate(lines) if line.lstrip().startswith("7996-8000")]
    assert (lines[place - 2], lines[place].split()[-2:]) == ("entry[999]", ["position", "999"])


def test_offsets_are_explained_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    status, lines, _ = run(capsys, SAMPLE / "0.7", str(SAMPLE / "orders-0"), "--explain-offsets")
    rows = [line.split() for line in lines]
    assert status == 0
    assert [row[-1] for row in rows if row and row[0] in ("absolute", "relative", "delta")] == list("12456789")
    assert ["relative", "1", "6", "-", "2", "+", "1", "5"] in rows
    assert ["delta", "2", "7", "+", "2", "9"] in rows
    assert ["22", "16", "0.7", "size", "12", "368", "+", "22", "390"] in rows
    for name in ("0.7", "v0", "v1", "v2"):
        assert sum(line.startswith(f"{name}: ") for line in lines) == 1


def test_a_log_of_07_is_known_by_its_bytes_or_by_being_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "00000000000000000368.log"
    shutil.copy(SAMPLE / "0.7/00000000000000000368.kafka", log)
    known = run(capsys, log, "--explain-offsets")
    assert known[0] == 0
    assert known == run(capsys, log, "--explain-offsets", "--format", "0.7")
    status, _, errors = run(capsys, SAMPLE / f"orders-0/{LOG}", "--explain-offsets", "--format", "0.7")
    assert status == 1
    assert "MessageV07" in errors[0]
