"""`minibroker formats` and `codecs`: one's own records in three formats, without a JVM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minibroker.cli import main
from minibroker.cli.own_records import size_of
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from tests.cli.running import broker_running


def printed(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> list[str]:
    assert main([*words]) == status
    lines = capsys.readouterr().out.splitlines()
    assert not [line for line in lines if len(line) > 80]
    return lines


def test_formats_prints_the_examples_of_articles(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [line.split() for line in printed(capsys, "formats")]
    numbers = [row[-4:] for row in rows if row and row[-1] in ("v0", "v1", "v2") and row[0].isdecimal()]
    assert numbers == [
        ["34", "42", "76", "v0"],
        ["320", "400", "191", "v2"],
        ["16,410", "16,418", "16,456", "v0"],
    ]


def test_formats_compares_a_record_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("formats", "--key", "k", "--value-bytes", "100", "--count", "3", "--json")
    (case,) = json.loads("".join(printed_json(capsys, *words)))
    assert [each["bytes"] for each in case["sizes"]] == [3 * 127, 3 * 135, 61 + 3 * 110]
    lines = printed(capsys, "formats", "--value", "a" * 200, "--codec", "zstd")
    assert next(row.split()[-4:-2] for row in lines if row.startswith("1 x")) == ["-", "-"]


def printed_json(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words]) == 0
    return capsys.readouterr().out


def test_formats_shows_the_bytes_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "formats", "--key", "key", "--value", "value", "--bytes")
    assert [line for line in lines if line.startswith("==")] == [
        f"== 1 x key of 3, value of 5, as v{magic}: {size} bytes" for magic, size in enumerate((34, 42, 76))
    ]
    assert sum("'value'" in line for line in lines) == 3


def test_lines_of_a_file_and_records_of_segments_are_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, segment = tmp_path / "access.log", tmp_path / "t-0" / "00000000000000000000.log"
    lines.write_bytes(b"value0\n" * 10)
    segment.parent.mkdir()
    segment.write_bytes(build_batch(1, [Record(None, b"value0")] * 10, codec=1))
    for path in (lines, segment, segment.parent):
        (case,) = json.loads(printed_json(capsys, "formats", "--json", str(path)))
        assert [each["bytes"] for each in case["sizes"]] == [320, 400, 191]


def test_codecs_measures_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a line like the others\n" * 400)
    lines = printed(capsys, "codecs", str(path), "--batch-bytes", "2KiB")
    assert lines[0] == "400 records, 8,800 bytes of data, in 6 batches of 2,048"
    names = [line.split()[0] for line in lines[3:14]]
    levels = {"gzip": (1, 6, 9), "lz4": (1, 9, 17), "zstd": (1, 3, 19)}
    of = {codec: [f"{codec}:{level}" for level in each] for codec, each in levels.items()}
    assert names == ["none", *of["gzip"], "snappy", *of["lz4"], *of["zstd"]]
    (short,) = printed(capsys, "codecs", str(path), "--sample-bytes", "1KB")[:1]
    assert short.startswith("the first 45 records, 990 bytes")
    rows = [json.loads(line) for line in printed_json(capsys, "codecs", "--json", str(path)).splitlines()]
    assert [len(row["formats"]) for row in rows] == [3] * 8 + [1] * 3


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        (["codecs", "{empty}"], 1, "there is no record in it"),
        (["formats", "{empty}"], 2, "there is no record in it"),
        (["codecs", "{empty}", "--batch-bytes", "many"], 2, "'many' is no size"),
        (["codecs", "{empty}/there"], 2, "there"),
        (["formats", "--value", "a", "--count", "0"], 2, "at least one record"),
        (["codecs", "nothing", "-b", "127.0.0.1:1"], 1, "nobody answers"),
    ],
)
def test_what_is_wrong_is_said(
    words: list[str], status: int, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    assert main([word.format(empty=empty) for word in words]) == status
    assert reason in capsys.readouterr().err


def test_sizes_are_read_with_their_units() -> None:
    assert [size_of(text) for text in ("16384", "16KiB", "4MB", "1k")] == [16384, 16384, 4_000_000, 1000]


@pytest.mark.outside
def test_records_of_a_topic_are_taken(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    values = tmp_path / "values"
    values.write_bytes(b"value0\n" * 10)
    with broker_running("--topic", "orders") as address:
        assert main(["produce", "-q", "-b", address, "-t", "orders", "-l", str(values)]) == 0
        (case,) = json.loads(printed_json(capsys, "formats", "--json", "-b", address, "orders"))
        assert [each["bytes"] for each in case["sizes"]] == [320, 400, 191]
        assert main(["codecs", "-b", address, "nonsense"]) == 1
        assert "is neither a file nor a topic" in capsys.readouterr().err
