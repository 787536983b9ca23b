"""`minibroker codecs`: what compression does to one's own records, in each format, and who pays for it."""

from __future__ import annotations

import sys

from minibroker.cli.connect import add_arguments as add_connection
from minibroker.cli.status import DONE, FAILED, USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from minibroker.tools.codec_sizes import CodecRow

DESCRIPTION = (
    "Compress your own records with every codec, in the three formats: how small they get, and who pays for it."
)
EPILOG = "Batches are cut as a producer does that is never kept waiting: --batch-bytes is its batch.size."
SAMPLE_BYTES = "1MB"
BATCH_BYTES = "16384"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="FILE|TOPIC", help="a file of lines, a segment, a directory of segments, or a topic"
    )
    parser.add_argument("--batch-bytes", default=BATCH_BYTES, metavar="SIZE", help="of a batch (%(default)s)")
    parser.add_argument("--sample-bytes", default=SAMPLE_BYTES, metavar="SIZE", help="read so much (%(default)s)")
    parser.add_argument("--all-levels", action="store_true", help="not only lowest, default and highest: 50 rows")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each row")
    add_connection(parser)


def run(options: argparse.Namespace) -> int:
    from minibroker.cli.own_records import read_records, size_of
    from minibroker.cli.progress import Progress
    from minibroker.clock import LoopClock, thread_ms
    from minibroker.errors import ProtocolError
    from minibroker.tools.codec_sizes import ALL, FEW, in_batches, measured
    from minibroker.tools.format_sizes import data_bytes_of

    try:
        batch_bytes = size_of(options.batch_bytes)
        found = read_records("codecs", options.name, options, size_of(options.sample_bytes))
    except (OSError, ProtocolError, ValueError) as failure:
        print(f"minibroker codecs: {failure}", file=sys.stderr)
        return USAGE
    if isinstance(found, int):
        return found
    if not found.records or not (data_bytes := sum(map(data_bytes_of, found.records))):
        print(f"minibroker codecs: {options.name}: there is no record in it", file=sys.stderr)
        return FAILED
    if not options.json:
        count, cut = len(found.records), len(in_batches(found.records, batch_bytes))
        some = "" if found.is_all else "the first "
        print(f"{some}{count:,} records, {data_bytes:,} bytes of data, in {cut:,} batches of {batch_bytes:,}")
        for line in _heads():
            print(line, flush=True)
    with Progress(LoopClock(), "measured") as progress:
        settings = ALL if options.all_levels else FEW
        for row in measured(
            found.records, batch_bytes=batch_bytes, settings=settings, cpu_ms=thread_ms, tell=progress.add
        ):
            progress.clear()
            print(_json(row) if options.json else _line(row, data_bytes), flush=True)
    if not options.json:
        for line in _words():
            print(line)
    return DONE


def _heads() -> Iterator[str]:
    yield f"{'':<10}{'CPU, ms a MB':>16}" + "".join(f"{name:>18}" for name in ("v0", "v1", "v2"))
    yield f"{'codec':<10}{'pack':>8}{'unpack':>8}" + f"{'ratio':>10}{'append':>8}" * 3


def _line(row: CodecRow, data_bytes: int) -> str:
    a_mb = 1e6 / data_bytes
    line = f"{row.name:<10}{_shown(row.pack_ms * a_mb)}{_shown(row.unpack_ms * a_mb)}"
    for magic in range(3):
        each = row.formats.get(magic)
        line += f"{each.ratio:>10.2f}{_shown(each.append_ms * a_mb)}" if each else f"{'-':>10}{'-':>8}"
    return line


def _shown(milliseconds: float) -> str:
    return f"{milliseconds:>8.1f}" if milliseconds < 1000 else f"{milliseconds:>8.0f}"


def _words() -> Iterator[str]:
    yield ""
    yield "pack: a producer of v2; unpack: each consumer. ratio: data to the bytes of it."
    yield "append: the leader, which has to unpack what is of v0 and to pack it again."
    yield "zstd came with v2. lz4:9, the default, is a faster compressor than lz4:8 is."


def _json(row: CodecRow) -> str:
    import json

    return json.dumps(row.to_dict())
