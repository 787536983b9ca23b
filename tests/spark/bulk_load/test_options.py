"""Options of a bulk load: what is taken, and what is said of a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.log.compression import GZIP, NONE, ZSTD
from minibroker.spark.bulk_load.options import OPTIONS, parse_load
from minibroker.spark.option_values import OptionError

DOCS = Path(__file__).parents[3] / "docs/spark-writing.md"


def test_the_documentation_has_all_options() -> None:
    table = "".join(f"| `{option.name}` | {option.default} | {option.text} |\n" for option in OPTIONS)
    assert table in DOCS.read_text(encoding="utf-8")


def test_defaults_are_those_of_the_table() -> None:
    options = parse_load({"path": "data"})
    assert (options.codec, options.level, options.topic, options.partitions) == (NONE, None, None, None)
    assert str(options.batch_bytes) == OPTIONS.rows["batchBytes"].default
    assert str(options.buffer_bytes) == OPTIONS.rows["bufferBytes"].default
    assert options.release is None
    assert OPTIONS.rows["release"].default == ""


def test_names_are_taken_in_any_case_and_settings_of_topics_by_their_prefix() -> None:
    options = parse_load(
        {"PATH": "file:///data", "batchbytes": "1000", "Codec": "ZSTD", "level": "-7", "config.Retention.ms": "-1"}
    )
    assert (options.path, options.batch_bytes, options.codec, options.level) == ("/data", 1000, ZSTD, -7)
    assert options.configs == {"retention.ms": "-1"}
    assert parse_load({"path": "x", "codec": "gzip", "level": "9"}).codec == GZIP


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "path is not set"),
        ({"path": "s3a://bucket/data"}, "segments are written to a directory of the machine, no URL"),
        ({"path": "x", "topics": "a"}, "there is no option 'topics' to write to a directory: did you mean topic?"),
        ({"path": "x", "colour": "red"}, "docs/spark-writing.md has a table of all"),
        ({"path": "x", "config.": "1"}, "there is no option 'config.'"),
        ({"path": "x", "codec": "brotli"}, "codec is 'brotli': it can be none or gzip or snappy or lz4 or zstd"),
        ({"path": "x", "codec": "lz4", "level": "99"}, "level is 99: lz4 level 99 is outside 1..17"),
        ({"path": "x", "codec": "snappy", "level": "1"}, "snappy has no compression levels"),
        ({"path": "x", "codec": "lz4", "level": "high"}, "level is 'high'"),
        ({"path": "x", "partitions": "0"}, "partitions is '0': it must be a number above 0"),
        ({"path": "x", "batchBytes": "100"}, "batches have at least 512"),
        ({"path": "x", "release": "2.8"}, "release is '2.8': it can be 3.9 or 4.0"),
    ],
)
def test_what_cannot_be_used_is_said(given: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError) as told:
        parse_load(given)
    assert text in str(told.value)
