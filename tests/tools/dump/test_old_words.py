"""What older articles quote: kafka-dump-log of 0.8.2, 0.10.2 and 1.0, line by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.cli import main
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from tests.interop.kafka import Release, run

TIME_MS = 1524709879130
NAME = "00000000000000000000.log"


def log_of(format_: int, first: int = 0) -> bytes:
    """Return a log with a key and without, of several records compressed, and with a tombstone."""
    time_ms = -1 if format_ == 0 else TIME_MS
    headers = (("h", b"1"), ("i", None)) if format_ == 2 else ()
    many = [Record(b"k", b"v%d" % number, headers, time_ms, first + 2 + number) for number in range(3)]
    return b"".join(
        [
            build_batch(format_, [Record(b"key", b"value", (), time_ms, first)]),
            build_batch(format_, [Record(None, b"value", (), time_ms, first + 1)]),
            build_batch(format_, many, codec=1 + format_),
            build_batch(format_, [Record(b"k", None, (), time_ms, first + 5)]),
        ]
    )


def dumped(directory: Path, data: bytes, release: str, *flags: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    (directory / NAME).write_bytes(data)
    assert main(["dump", "--release", release, *flags, str(directory / NAME)]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == f"Dumping {directory / NAME}"
    return lines


# Quoted from articles about the message formats.
QUOTED = [
    (
        "0.8.2",
        build_batch(0, [Record(b"key", b"value", (), -1, 0)]),
        "offset: 0 position: 0 isvalid: true payloadsize: 5 magic: 0 compresscodec: NoCompressionCodec crc: 592888119 "
        "keysize: 3",
    ),
    (
        "1.0",
        build_batch(2, [Record(b"key", b"value", (), TIME_MS, 0)]),
        "baseOffset: 0 lastOffset: 0 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        "partitionLeaderEpoch: -1 isTransactional: false position: 0 CreateTime: 1524709879130 isvalid: true size: 76 "
        "magic: 2 compresscodec: NONE crc: 2857248333",
    ),
    (
        "1.0",
        b"".join(
            [
                build_batch(2, [Record(b"key", b"value", (), TIME_MS, 0)]),
                build_batch(2, [Record(None, b"value", (), TIME_MS, 1)]),
                build_batch(2, [Record(None, b"value%d" % (n - 2), (), TIME_MS, n) for n in range(2, 12)]),
            ]
        ),
        "position: 149 CreateTime: 1524709879130 isvalid: true size: 191",
    ),
]


@pytest.mark.parametrize(("release", "data", "quoted"), QUOTED)
def test_a_quoted_line_is_printed(
    release: str, data: bytes, quoted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    title, *lines = dumped(tmp_path, data, release, capsys=capsys)
    assert title == "Starting offset: 0"
    assert quoted in lines[-1]
    if len(lines) == 1:
        assert lines == [quoted]


@pytest.mark.parametrize(("release", "format_"), [("0.8.2", 1), ("0.8.2", 2), ("0.10.2", 2)])
def test_a_format_that_a_release_does_not_know_is_named(
    release: str, format_: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / NAME).write_bytes(log_of(format_))
    assert main(["dump", "--release", release, str(tmp_path / NAME)]) == 1
    assert f"Kafka {release} does not know format {format_}" in capsys.readouterr().err


def test_gaps_are_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = build_batch(0, [Record(b"a", b"b", (), -1, 0)]) + build_batch(0, [Record(b"a", b"b", (), -1, 7)])
    (tmp_path / NAME).write_bytes(data)
    assert main(["dump", "--release", "0.8.2", str(tmp_path / NAME)]) == 0
    assert "0 is followed by 7" in capsys.readouterr().err


FLAGS = [(), ("--deep-iteration",), ("--print-data-log",), ("--deep-iteration", "--print-data-log")]
TOOLS = {
    "0.8.2": (Release("kafka_2.10", "0.8.2.2"), (0,)),
    "0.10.2": (Release("kafka_2.11", "0.10.2.2"), (0, 1)),
    "1.0": (Release("kafka_2.11", "1.0.2"), (0, 1, 2)),
}


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
@pytest.mark.parametrize("release", TOOLS)
def test_kafkas_own_tool_prints_the_same(
    release: str,
    flags: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tool, formats = TOOLS[release]
    monkeypatch.chdir(tmp_path)
    names = []
    for format_ in formats:
        names.append(f"{100 * format_:020}.log")
        Path(names[-1]).write_bytes(log_of(format_, 100 * format_))
    theirs = run(tool, "kafka.tools.DumpLogSegments", "--files", ",".join(names), *flags, cwd=tmp_path)
    assert main(["dump", "--release", release, "--files", ",".join(names), *flags]) == 0
    ours = capsys.readouterr().out.splitlines()
    assert len(ours) > 2 * len(names)
    shown = theirs.stdout.splitlines()
    if "--print-data-log" in flags and "--deep-iteration" not in flags:  # compressed bytes taken for text
        ours, shown = ([line.partition(" payload: ")[0] for line in lines] for lines in (ours, shown))
        ours, shown = ([line for line in lines if "crc: " in line] for lines in (ours, shown))
    assert ours == shown
