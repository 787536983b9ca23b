"""The command `minibroker`. Each command imports what it needs when it runs, so that all of them start quickly."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

import minibroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from minibroker.explain import Explanation, Part

# Exit status, as grep and most tools have it.
FOUND, BROKEN, USAGE = 0, 1, 2


def main(arguments: list[str] | None = None) -> int:
    """Run a command, return the exit status."""
    parsed = _parser().parse_args(arguments)
    try:
        status: int = parsed.run(parsed)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read us (head, less) has seen enough. Python would complain at exit if stdout stayed broken.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FOUND
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("minibroker", description="A Kafka-compatible broker that you can look into.")
    parser.add_argument("--version", action="version", version=f"minibroker {minibroker.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    explain = commands.add_parser(
        "explain",
        help="say what bytes mean, field by field",
        description="Say what bytes mean, field by field: a request, a response, batches, an index, a checkpoint.",
        epilog="A file of a log directory is known by its name. Bytes that fit are taken for a request or for batches.",
    )
    explain.add_argument(
        "what", nargs="+", metavar="HEX|FILE", help="hexadecimal digits, a file, or - for standard input"
    )
    explain.add_argument(
        "--as",
        dest="kind",
        default="",
        metavar="KIND",
        help="request, response, batch, index, timeindex, txnindex, snapshot, the name of a checkpoint file, "
        "or the name of a message such as MetadataResponse (without header) or OffsetCommitValue",
    )
    explain.add_argument("--api", default="", help="of a response: Fetch, or 1")
    explain.add_argument("--api-version", type=int, metavar="N", help="of a response or a message")
    explain.add_argument("--json", action="store_true", help="one JSON document")
    explain.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    explain.set_defaults(run=_explain)

    _add_dump(commands)

    verify = commands.add_parser(
        "verify",
        help="check a log directory and say where it is wrong",
        description="Read everything in a log directory, or in the directory of one partition, and say what is wrong.",
    )
    verify.add_argument("directory", metavar="DIR", help="as in log.dirs, or one <topic>-<partition> in it")
    verify.add_argument("--json", action="store_true", help="one JSON document")
    verify.set_defaults(run=_verify)

    _add_serve(commands)
    return parser


def _add_dump(commands: Any) -> None:
    dump = commands.add_parser(
        "dump",
        help="print what kafka-dump-log prints of log segments, indexes and snapshots",
        description="Print what kafka-dump-log prints, with its options. A directory stands for the files in it.",
    )
    dump.add_argument("paths", nargs="*", metavar="FILE|DIRECTORY", help="files of a log directory, known by suffix")
    dump.add_argument("--files", default="", metavar="A,B", help="the same, divided by commas")
    dump.add_argument("--print-data-log", action="store_true", help="records with key and value, taken for text")
    dump.add_argument("--deep-iteration", action="store_true", help="records, not only batches")
    dump.add_argument("--skip-record-metadata", action="store_true", help="of records only key and value")
    dump.add_argument("--verify-index-only", action="store_true", help="of indexes only what is wrong")
    dump.add_argument("--index-sanity-check", action="store_true", help="what a broker checks of an index at start")
    for name in ("offsets", "transaction-log", "cluster-metadata", "share-group-state"):
        text = "records as those of __consumer_offsets" if name == "offsets" else "records of that internal topic"
        dump.add_argument(f"--{name}-decoder", dest="decoder", action="store_const", const=name, help=text)
    dump.add_argument(
        "--max-message-size", type=int, default=5 << 20, metavar="BYTES", help="index entries look so far"
    )
    dump.add_argument("--max-bytes", type=int, default=0x7FFFFFFF, metavar="BYTES", help="of each log file")
    dump.add_argument("--release", choices=("2.8", "3.9", "4.4"), default="4.4", help="whose words: default 4.4")
    dump.add_argument("--bytes", action="store_true", help="every field with its bytes instead")
    dump.add_argument("--explain-offsets", action="store_true", help="how each record comes to its offset instead")
    dump.add_argument("--format", choices=("0.7",), default="", help="with --explain-offsets, of a log without magic")
    dump.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    for name in ("value", "key"):
        dump.add_argument(f"--{name}-decoder-class", dest="java_class", nargs="?", const="?", help=argparse.SUPPRESS)
    dump.set_defaults(run=_dump)


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


def _dump(options: argparse.Namespace) -> int:
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
    try:
        wanted = LESSON_SUFFIXES if options.explain_offsets else DUMP_SUFFIXES
        files = [file for path in given for file in _files_of(path, wanted)]
        broken = (_dump_bytes if options.bytes else _dump_lesson if options.explain_offsets else _dump_lines)(
            files, options, complain
        )
    except BrokenPipeError:
        raise
    except OSError as failure:
        complain(f"minibroker dump: {failure.filename or ''}: {failure.strerror or failure}")
        return USAGE
    except (ProtocolError, KafkaError) as error:
        complain(f"minibroker dump: {error}")
        return BROKEN
    return BROKEN if broken else FOUND


def _dump_lines(files: list[str], options: argparse.Namespace, complain: Callable[[object], None]) -> bool:
    from minibroker.dump.files import Dump, Options

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
    from minibroker.dump.fields import pieces

    broken = False
    for path in files:
        print(f"Dumping {path}")
        for piece in pieces(path, _view(path)[: options.max_bytes]):
            if piece.title:
                print(piece.title)
            _print(piece.explanation, _wants_colors(options), piece.position)
            broken = broken or piece.explanation.error is not None
    return broken


def _dump_lesson(files: list[str], options: argparse.Namespace, complain: Callable[[object], None]) -> bool:
    from minibroker.dump.offsets import lesson

    for path in files:
        if path.endswith(LESSON_SUFFIXES[0]):
            for line in lesson(path, _view(path)[: options.max_bytes], options.format):
                print(line)
    return False


def _verify(options: argparse.Namespace) -> int:
    from minibroker.errors import StorageError
    from minibroker.log.storage import OsStorage
    from minibroker.log.verify import Verified, verify_directory

    if not os.path.isdir(options.directory):
        print(f"minibroker verify: {options.directory}: is no directory", file=sys.stderr)
        return USAGE

    def progress(name: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{name}", end="", file=sys.stderr, flush=True)

    verified, problems = Verified(), []
    try:
        for problem in verify_directory(OsStorage(options.directory), verified, progress):
            problem.path = f"{options.directory.rstrip('/')}/{problem.path.lstrip('/')}"
            problems.append(problem)
            if not options.json:
                progress("")
                print(problem)
    except StorageError as failure:
        print(f"minibroker verify: {failure}", file=sys.stderr)
        return USAGE
    finally:
        progress("")
    if not verified.logs:
        print(f"minibroker verify: {options.directory}: holds no logs", file=sys.stderr)
        return USAGE
    if options.json:
        import json

        shown = [{"path": one.path, "place": one.place, "reason": one.reason} for one in problems]
        print(json.dumps({**vars(verified), "problems": shown}, indent=1))
    else:
        print(f"{verified}: {_counted(len(problems), 'problem') if problems else 'no problems'}")
    return BROKEN if problems else FOUND


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _wants_colors(options: argparse.Namespace) -> bool:
    return options.color == "always" or (
        options.color == "auto" and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    )


def _add_serve(commands: Any) -> None:
    serve = commands.add_parser(
        "serve",
        help="start a broker",
        description="Start a broker. The first line on stdout is its address, printed when it answers.",
    )
    serve.add_argument("--port", type=int, metavar="N", help="port to listen on; 0 takes a free one (9092)")
    serve.add_argument("--host", metavar="ADDRESS", help="address to listen on (127.0.0.1)")
    where = serve.add_mutually_exclusive_group()
    where.add_argument("--data-dir", metavar="DIR", help="where logs are kept (./minibroker-data)")
    where.add_argument("--memory", action="store_true", help="keep nothing on disk")
    serve.add_argument(
        "-o", "--option", action="append", default=[], metavar="KEY=VALUE", help="any broker setting of Kafka"
    )
    serve.add_argument("--config", metavar="FILE", help="a server.properties file")
    serve.add_argument(
        "--topic", action="append", default=[], metavar="NAME[:PARTITIONS[:compact]]", help="make a topic at start"
    )
    serve.add_argument("--as-version", metavar="RELEASE", help="serve what that release of Kafka served: 0.8.2 to 4.4")
    serve.add_argument("--cluster-id", metavar="ID", help="of a new directory; one that is there must have it")
    serve.add_argument("--node-id", type=int, metavar="N", help="number of this broker (1)")
    serve.add_argument("--quiet", action="store_true", help="say nothing but the address")
    serve.set_defaults(run=_serve)


def _serve(options: argparse.Namespace) -> int:
    from minibroker.serve import serve

    return serve(options)


def _explain(options: argparse.Namespace) -> int:
    from minibroker.explain import explain, file_kind

    try:
        data, name = _read(" ".join(options.what))
    except (OSError, ValueError) as failure:
        print(f"minibroker explain: {failure}", file=sys.stderr)
        return USAGE
    found = explain(data, options.kind or file_kind(name), options.api, options.api_version)
    if options.json:
        import json

        error = found.error and {"error": type(found.error).__name__, "message": str(found.error)}
        print(json.dumps({"fields": [part.to_dict() for part in found.parts], "error": error}, indent=1))
    else:
        _print(found, _wants_colors(options))
    return BROKEN if found.error else FOUND


def _read(what: str) -> tuple[bytes, str]:
    """Return the bytes that the user means, and the name of the file that they come from."""
    if what == "-":
        data = sys.stdin.buffer.read()
        return _unhex(data) or data, ""
    digits = "".join(what.split())
    if os.path.exists(what):
        with open(what, "rb") as file:
            data = file.read()
        return data, os.path.basename(what)
    try:
        return bytes.fromhex(digits.removeprefix("0x")), ""
    except ValueError:
        raise ValueError(f"{what!r} is neither a file nor hexadecimal digits") from None


def _unhex(data: bytes) -> bytes | None:
    """Return what hexadecimal text stands for, or None for bytes that are no such text."""
    try:
        return bytes.fromhex("".join(data.decode("ascii").split()).removeprefix("0x"))
    except ValueError:
        return None


BYTES_SHOWN = 12  # of one field
DIM, PATH, VALUE, ERROR, PLAIN = "\x1b[2m", "\x1b[36m", "\x1b[1m", "\x1b[31m", "\x1b[0m"


def _print(found: Explanation, colors: bool, start: int = 0) -> None:
    """Print a line a field; the bytes begin at `start` of their file."""

    def paint(color: str, text: str) -> str:
        return f"{color}{text}{PLAIN}" if colors and text else text

    hex_width = max((len(_hex(part)) for part in found.parts), default=0)
    path_width = min(60, max((len(part.path) for part in found.parts), default=0))
    inside = ""
    for part in found.parts:
        if part.inside != inside:
            inside = part.inside
            print(paint(DIM, f"-- {inside or 'the bytes again'}"))
        first = 0 if part.inside else start
        place = f"{first + part.start:>6}-{first + part.end:<6}"
        line = f"{paint(DIM, place)} {_hex(part):<{hex_width}}  {paint(PATH, f'{part.path:<{path_width}}')}"
        line += f"  {paint(VALUE, _shown(part.value))}  {paint(DIM, part.type)}"
        print(line + (paint(DIM, f"  # {part.comment}") if part.comment else ""))
    if found.error:
        print(paint(ERROR, f"{type(found.error).__name__}: {found.error}"))


def _hex(part: Part) -> str:
    shown = part.data[:BYTES_SHOWN].hex(" ")
    return shown + (f" (+{len(part.data) - BYTES_SHOWN})" if len(part.data) > BYTES_SHOWN else "")


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        value = value[:40] + b"..." if len(value) > 40 else value
        return repr(value)[1:]
    if isinstance(value, str) and not value.isprintable():
        return repr(value)
    return str(value)
