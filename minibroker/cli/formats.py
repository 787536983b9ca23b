"""`minibroker formats`: the same records as v0, v1 and v2, in numbers or byte by byte."""

from __future__ import annotations

import sys

from minibroker.cli.connect import add_arguments as add_connection
from minibroker.cli.status import DONE, FAILED, USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from minibroker.log.records import Record
    from minibroker.tools.format_sizes import FormatSize

DESCRIPTION = (
    "The same records in the three formats of Kafka: how many bytes each takes, and which. No broker is needed."
)
EPILOG = "Without a file, a topic or records of your own: the examples that articles about the formats have."
SAMPLE_BYTES = "1MB"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIME_MS = 1_524_709_879_130  # of records that have no time of their own


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="FILE|TOPIC", help="records of your own: lines, a segment, a directory of segments"
    )
    parser.add_argument("--key", metavar="TEXT", help="of a record; without it there is none")
    parser.add_argument("--value", metavar="TEXT", help="of a record")
    parser.add_argument("--value-bytes", type=int, metavar="N", help="a value of so many bytes")
    parser.add_argument("--count", type=int, default=1, metavar="N", help="so many of that record, in one batch")
    parser.add_argument("--codec", choices=CODECS, default="none", help="compressed; older formats have no zstd")
    parser.add_argument("--sample-bytes", default=SAMPLE_BYTES, metavar="SIZE", help="of a file or topic (%(default)s)")
    parser.add_argument("--bytes", action="store_true", help="every field with its bytes, format by format")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    add_connection(parser)


def run(options: argparse.Namespace) -> int:
    from minibroker.errors import ProtocolError
    from minibroker.log.compression import CODEC_NAMES
    from minibroker.tools.format_sizes import format_sizes

    try:
        found = _records(options)
    except (OSError, ProtocolError, ValueError) as failure:
        print(f"minibroker formats: {failure}", file=sys.stderr)
        return USAGE
    if isinstance(found, int):
        return found
    codec = CODEC_NAMES.index(options.codec)
    cases = [(title, records, format_sizes(records, codec)) for title, records in found]
    if options.json:
        import json

        print(
            json.dumps([{"records": title, "sizes": [each.to_dict() for each in sizes]} for title, _, sizes in cases])
        )
    elif options.bytes:
        return _print_bytes(cases, options)
    else:
        for line in _table(cases, options.codec):
            print(line)
    return DONE


def _records(options: argparse.Namespace) -> list[tuple[str, list[Record]]] | int:
    """Return what is to be compared, each with its title; or a status."""
    from minibroker.cli.own_records import read_records, size_of
    from minibroker.log.records import Record

    if options.name is not None:
        found = read_records("formats", options.name, options, size_of(options.sample_bytes))
        if isinstance(found, int):
            return found
        if not found.records:
            raise ValueError(f"{options.name}: there is no record in it")
        some = "" if found.is_all else "the first "
        return [(f"{some}{len(found.records):,} of {options.name}", found.records)]
    examples: tuple[tuple[int, bytes | None, bytes], ...]
    if options.key is None and options.value is None and options.value_bytes is None:
        examples = ((1, b"key", b"value"), (10, None, b"value0"), (1, None, b"x" * 16384))
    else:
        if options.count < 1:
            raise ValueError("--count: at least one record")
        value = b"x" * options.value_bytes if options.value_bytes is not None else (options.value or "").encode()
        examples = ((options.count, None if options.key is None else options.key.encode(), value),)
    return [
        (_title(count, key, value), [Record(key, value, (), TIME_MS, at) for at in range(count)])
        for count, key, value in examples
    ]


def _title(count: int, key: bytes | None, value: bytes) -> str:
    key_text = "no key" if key is None else f"key of {len(key):,}"
    return f"{count:,} x {key_text}, value of {len(value):,}"


FORMAT_NAMES = ("v0", "v1", "v2")


def _table(cases: list[tuple[str, list[Record], list[FormatSize]]], codec: str) -> Iterator[str]:
    from minibroker.tools.format_sizes import smaller_from

    packed = "" if codec == "none" else f", {codec}"
    width = max(32, *(len(title) for title, _, _ in cases))
    yield f"{'records' + packed:<{width}}" + "".join(f"{name:>11}" for name in FORMAT_NAMES) + "  smallest"
    for title, records, sizes in cases:
        by_magic = {each.magic: each for each in sizes}
        least = min(sizes, key=lambda each: each.size_bytes)
        cells = [f"{by_magic[magic].size_bytes:>11,}" if magic in by_magic else f"{'-':>11}" for magic in range(3)]
        yield f"{title:<{width}}{''.join(cells)}  v{least.magic}"
        around = [f"{by_magic[magic].around_bytes:>11,}" if magic in by_magic else f"{'-':>11}" for magic in range(3)]
        yield f"{'  around ' + format(sizes[0].data_bytes, ',') + ' of data':<{width}}{''.join(around)}"
        if codec == "none" and records:
            starts = [(name, smaller_from(records[0], magic)) for magic, name in enumerate(FORMAT_NAMES[:2])]
            words = [f"than {name} from {start:,} on" for name, start in starts if start]
            if words:
                yield f"  v2 is smaller {', '.join(words)}"
    if codec == "none":
        yield ""
        yield "v0: 26 bytes around each record. v1: 34, for it has a timestamp. v2: 61 around"
        yield "a batch, and 7 or more in each record: numbers that take a byte as long as they"
        yield "are small."


def _print_bytes(cases: list[tuple[str, list[Record], list[FormatSize]]], options: argparse.Namespace) -> int:
    from minibroker.cli.explain import wants_colors
    from minibroker.cli.field_lines import print_fields
    from minibroker.tools.explain import explain

    commented: set[str] = set()
    for title, _, sizes in cases:
        for each in sizes:
            print(f"== {title}, as v{each.magic}: {each.size_bytes:,} bytes")
            found = explain(each.data, "batch")
            print_fields(found, wants_colors(options), 0, commented)
            if found.error is not None:
                return FAILED
    return DONE
