"""`minibroker dump`: what kafka-dump-log prints, with its options."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator

from minibroker.cli.explain import wants_colors
from minibroker.cli.status import DONE, FAILED, USAGE

DESCRIPTION = "Print what kafka-dump-log prints, with its options. A directory stands for the files in it."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="FILE|DIRECTORY", help="files of a log directory, known by suffix")
    parser.add_argument("--files", default="", metavar="A,B", help="the same, divided by commas")
    parser.add_argument("--print-data-log", action="store_true", help="records with key and value, taken for text")
    parser.add_argument("--deep-iteration", action="store_true", help="records, not only batches")
    parser.add_argument("--skip-record-metadata", action="store_true", help="of records only key and value")
    parser.add_argument("--verify-index-only", action="store_true", help="of indexes only what is wrong")
    parser.add_argument("--index-sanity-check", action="store_true", help="what a broker checks of an index at start")
    for name in ("offsets", "transaction-log", "cluster-metadata", "share-group-state"):
        text = "records as those of __consumer_offsets" if name == "offsets" else "records of that internal topic"
        parser.add_argument(f"--{name}-decoder", dest="decoder", action="store_const", const=name, help=text)
    parser.add_argument(
        "--max-message-size", type=int, default=5 << 20, metavar="BYTES", help="index entries look so far"
    )
    parser.add_argument("--max-bytes", type=int, default=0x7FFFFFFF, metavar="BYTES", help="of each log file")
    releases = ("0.8.2", "0.10.2", "1.0", "2.8", "3.9", "4.4")
    parser.add_argument("--release", choices=releases, default="4.4", help="whose words: default 4.4")
    parser.add_argument("--bytes", action="store_true", help="every field with its bytes instead")
    parser.add_argument(
        "--sent", action="store_true", help="what the producer sent, and what the broker changed, instead"
    )
    parser.add_argument("--explain-offsets", action="store_true", help="how each record comes to its offset instead")
    parser.add_argument("--format", choices=("0.7",), default="", help="with --explain-offsets, of a log without magic")
    parser.add_argument("--compare", action="store_true", help="two states of a log, BEFORE and AFTER it was cleaned")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    for name in ("value", "key"):
        parser.add_argument(f"--{name}-decoder-class", dest="java_class", nargs="?", const="?", help=argparse.SUPPRESS)


# Of a directory, in this order: logs, metadata snapshots, indexes, producer snapshots.
DUMP_SUFFIXES = ((".log",), (".checkpoint",), (".index", ".timeindex", ".txnindex"), (".snapshot",))
LESSON_SUFFIXES = ((".kafka", ".log", ".checkpoint"),)


def _files_of(path: str, wanted: tuple[tuple[str, ...], ...]) -> Iterator[str]:
    """Yield a file, or those of a directory that are wanted, then those in its directories."""
    if not os.path.isdir(path):
        yield path
        return
    names = sorted(os.listdir(path))
    for suffixes in wanted:
        yield from (os.path.join(path, name) for name in names if name.endswith(suffixes))
    for name in names:
        if os.path.isdir(os.path.join(path, name)):
            yield from _files_of(os.path.join(path, name), wanted)


def _view(path: str) -> memoryview:
    """Return the bytes of a file without reading them: a segment may be larger than what we want to hold."""
    import mmap

    with open(path, "rb") as file:
        # An empty file cannot be mapped.
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if os.stat(path).st_size else b"")


def run(options: argparse.Namespace) -> int:
    from minibroker.errors import KafkaError, ProtocolError

    def complain(text: object) -> None:
        sys.stdout.flush()
        print(text, file=sys.stderr)

    given = [*options.paths, *(path for path in options.files.split(",") if path)]
    if options.java_class:
        complain("minibroker dump: decoders that are Java classes cannot run here; without one, text is printed")
        return USAGE
    if not given:
        complain("minibroker dump: which files? Name them, or their directory")
        return USAGE
    if options.decoder and options.release < "2.8":
        complain(f"minibroker dump: --{options.decoder}-decoder has the words of 2.8 and later")
        return USAGE
    if options.compare and len(given) != 2:
        complain("minibroker dump: --compare takes two: the log BEFORE it was cleaned, and AFTER")
        return USAGE
    try:
        if options.compare:
            return _dump_comparison(given[0], given[1], options, complain)
        for path in given:
            os.stat(path)  # says of what is not there that it is not
        wanted = LESSON_SUFFIXES if options.explain_offsets else DUMP_SUFFIXES
        files = [file for path in given for file in _files_of(path, wanted)]
        dump = _dump_lines
        if options.bytes or options.sent:
            dump = _dump_bytes if options.bytes else _dump_sent
        elif options.explain_offsets:
            dump = _dump_lesson
        broken = dump(files, options, complain)
    except BrokenPipeError:
        raise
    except OSError as failure:
        complain(f"minibroker dump: {failure.filename or ''}: {failure.strerror or failure}")
        return USAGE
    except (ProtocolError, KafkaError) as error:
        complain(f"minibroker dump: {error}")
        return FAILED
    return FAILED if broken else DONE


def _dump_lines(files: list[str], options: argparse.Namespace, complain: Callable[[object], None]) -> bool:
    from minibroker.tools.dump.batches import Options
    from minibroker.tools.dump.files import Dump

    dump = Dump(
        Options(
            release=options.release,
            contents=options.print_data_log or options.decoder is not None,
            deep=options.deep_iteration,
            metadata=not options.skip_record_metadata,
            decoder=options.decoder or "",
            verify_only=options.verify_index_only,
            sanity_only=options.index_sanity_check,
            message_bytes_max=options.max_message_size,
            bytes_max=options.max_bytes,
        ),
        _view,
    )
    try:
        for path in files:
            for line in dump.lines(path):
                print(line)
    finally:
        for text in dump.complaints():
            complain(text)
    return dump.is_broken


def _dump_bytes(files: list[str], options: argparse.Namespace, complain: Callable[[object], None]) -> bool:
    from textwrap import wrap

    from minibroker.cli.field_lines import output_width, print_fields
    from minibroker.tools.dump.fields import pieces

    broken = False
    commented: set[str] = set()
    for path in files:
        print(f"Dumping {path}")
        for piece in pieces(path, _view(path)[: options.max_bytes]):
            for line in wrap(piece.title, output_width(), break_long_words=False, break_on_hyphens=False):
                print(line)
            print_fields(piece.explanation, wants_colors(options), piece.position, commented)
            broken = broken or piece.explanation.error is not None
    return broken


def _dump_sent(files: list[str], options: argparse.Namespace, complain: Callable[[object], None]) -> bool:
    """Print for each batch of the logs what a producer sent, and what the broker has changed of it."""
    from minibroker.cli.field_lines import comparison_lines, output_width
    from minibroker.errors import ProtocolError
    from minibroker.tools.appended import NotKnown, as_sent, compare
    from minibroker.tools.dump.batches import file_batches

    broken, width = False, output_width()
    for path in (path for path in files if path.endswith(DUMP_SUFFIXES[0])):
        print(f"Dumping {path}")
        for number, batch in enumerate(file_batches(_view(path)[: options.max_bytes], path)):
            stored = bytes(batch.view)
            print(f"batch[{number}] at {batch.position}, v{batch.magic}")
            try:
                found = compare(as_sent(stored), stored)
            except NotKnown as unknown:
                print(f"not known any more: {unknown}")
                continue
            except ProtocolError as error:
                complain(f"minibroker dump: {path}: batch[{number}]: {error}")
                broken = True
                continue
            for line in comparison_lines(found, wants_colors(options), width, batch.position, number):
                print(line)
    return broken


def _dump_lesson(files: list[str], options: argparse.Namespace, complain: Callable[[object], None]) -> bool:
    from minibroker.tools.dump.offsets import lesson

    for path in files:
        if path.endswith(LESSON_SUFFIXES[0]):
            for line in lesson(path, _view(path)[: options.max_bytes], options.format):
                print(line)
    return False


def _dump_comparison(before: str, after: str, options: argparse.Namespace, complain: Callable[[object], None]) -> int:
    """Print what became of each partition; the status says whether cleaning can have done it."""
    from minibroker.tools.dump.changes import Side
    from minibroker.tools.dump.comparison import Comparison, Totals

    earlier, later = _partitions(before), _partitions(after)
    for path, found in ((before, earlier), (after, later)):
        if not found:
            complain(f"minibroker dump: {path}: holds no logs")
            return USAGE
    if len(earlier) == len(later) == 1:  # whatever their directories are called
        later = dict(zip(earlier, later.values()))
    names, totals = sorted({*earlier, *later}), Totals()
    complaints: list[str] = []
    for name in names:
        old, new = (Side(logs.get(name, []), _view, is_whole=os.path.isdir(before)) for logs in (earlier, later))
        comparison = Comparison(name, old, new, _cleaned_end(later.get(name, [])))
        for line in comparison.lines(deep=options.deep_iteration, contents=options.print_data_log):
            print(line)
        totals.include(comparison.totals)
        complaints += comparison.complaints()
    if len(names) > 1:
        print(f"{len(names)} partitions: {totals}")
    for complaint in complaints:
        complain(complaint)
    return FAILED if complaints else DONE


def _partitions(path: str) -> dict[str, list[str]]:
    """Return the segments of each partition: of a log directory, of the directory of one, or a single file."""
    from minibroker.log.directory import split_name

    os.stat(path)  # says of what is not there that it is not
    if not os.path.isdir(path):
        return {os.path.basename(path): [path]}
    if logs := _logs_in(path):
        return {os.path.basename(os.path.abspath(path)): logs}
    return {name: logs for name in os.listdir(path) if split_name(name) and (logs := _logs_in(f"{path}/{name}"))}


def _logs_in(directory: str) -> list[str]:
    return [os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(".log")]


def _cleaned_end(logs: list[str]) -> int | None:
    """Return where the cleaner ended, if the checkpoint of the log directory knows the partition."""
    from minibroker.log.checkpoints import CLEANER_OFFSETS, parse_offsets
    from minibroker.log.directory import split_name

    partition = os.path.dirname(os.path.abspath(logs[0])) if logs else ""
    path = os.path.join(os.path.dirname(partition), CLEANER_OFFSETS)
    name = split_name(os.path.basename(partition))
    if name is None or not os.path.exists(path):
        return None
    return parse_offsets(bytes(_view(path)), path).get(name)
