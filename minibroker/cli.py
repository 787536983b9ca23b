"""The command `minibroker`. Each command imports what it needs when it runs, so that all of them start quickly."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

import minibroker

if TYPE_CHECKING:
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

    serve = commands.add_parser("serve", help="start the broker (not there yet)")
    serve.set_defaults(run=_serve)
    return parser


def _serve(_: argparse.Namespace) -> int:
    print("minibroker: the broker is not there yet; what works today: minibroker explain --help", file=sys.stderr)
    return USAGE


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
        colors = options.color == "always" or (
            options.color == "auto" and sys.stdout.isatty() and "NO_COLOR" not in os.environ
        )
        _print(found, colors)
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


def _print(found: Explanation, colors: bool) -> None:
    def paint(color: str, text: str) -> str:
        return f"{color}{text}{PLAIN}" if colors and text else text

    hex_width = max((len(_hex(part)) for part in found.parts), default=0)
    path_width = min(60, max((len(part.path) for part in found.parts), default=0))
    inside = ""
    for part in found.parts:
        if part.inside != inside:
            inside = part.inside
            print(paint(DIM, f"-- {inside or 'the bytes again'}"))
        place = f"{part.start:>6}-{part.end:<6}"
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
