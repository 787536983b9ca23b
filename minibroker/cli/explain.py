"""`minibroker explain`: what bytes mean, field by field; and how such fields are printed."""

from __future__ import annotations

import os
import sys

from minibroker.cli.status import DONE, FAILED, USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from minibroker.tools.explain import Explanation, Part

DESCRIPTION = "Say what bytes mean, field by field: a request, a response, batches, an index, a checkpoint."
EPILOG = "A file of a log directory is known by its name. Bytes that fit are taken for a request or for batches."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="+", metavar="HEX|FILE", help="hexadecimal digits, a file, or - for standard input"
    )
    parser.add_argument(
        "--as",
        dest="kind",
        default="",
        metavar="KIND",
        help="request, response, batch, index, timeindex, txnindex, snapshot, the name of a checkpoint file, "
        "or the name of a message such as MetadataResponse (without header) or OffsetCommitValue",
    )
    parser.add_argument("--api", default="", help="of a response: Fetch, or 1")
    parser.add_argument("--api-version", type=int, metavar="N", help="of a response or a message")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")


def run(options: argparse.Namespace) -> int:
    from minibroker.tools.explain import explain, file_kind

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
        print_fields(found, wants_colors(options))
    return FAILED if found.error else DONE


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


def print_fields(found: Explanation, colors: bool, start: int = 0) -> None:
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


def wants_colors(options: argparse.Namespace) -> bool:
    return options.color == "always" or (
        options.color == "auto" and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    )
