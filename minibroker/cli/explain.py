"""`minibroker explain`: what bytes mean, field by field."""

from __future__ import annotations

import os
import sys

from minibroker.cli.status import DONE, FAILED, USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

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
    parser.add_argument("--stored-as", metavar="HEX|FILE", help="compare with this, which a broker has made of it")
    parser.add_argument(
        "--append-at", type=int, metavar="OFFSET", help="compare with what a leader makes of it whose log ends there"
    )
    parser.add_argument("--leader-epoch", type=int, default=0, metavar="N", help="with --append-at: of that leader")
    parser.add_argument(
        "--topic-format", type=int, choices=(0, 1, 2), help="the format of its topic; default: the same"
    )
    parser.add_argument("--topic-codec", default="producer", metavar="NAME", help="compression.type of its topic")
    parser.add_argument("--append-time", type=int, metavar="MS", help="LogAppendTime, and when that is")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")


def run(options: argparse.Namespace) -> int:
    from minibroker.cli.field_lines import print_fields
    from minibroker.tools.explain import explain, file_kind

    try:
        data, name = _read(" ".join(options.what))
    except (OSError, ValueError) as failure:
        print(f"minibroker explain: {failure}", file=sys.stderr)
        return USAGE
    if options.stored_as is not None or options.append_at is not None:
        return _compare(data, options)
    found = explain(data, options.kind or file_kind(name), options.api, options.api_version)
    if options.json:
        import json

        error = found.error and {"error": type(found.error).__name__, "message": str(found.error)}
        print(json.dumps({"fields": [part.to_dict() for part in found.parts], "error": error}, indent=1))
    else:
        print_fields(found, wants_colors(options))
    return FAILED if found.error else DONE


def _compare(data: bytes, options: argparse.Namespace) -> int:
    """Print what a broker has changed, or would change, of what a producer sent: batches, or a whole request."""
    from minibroker.cli.field_lines import comparison_lines, output_width
    from minibroker.errors import KafkaError, ProtocolError
    from minibroker.tools.appended import append, compare, sent_records

    try:
        sent = sent_records(data)
        if options.stored_as is not None:
            stored, _ = _read(options.stored_as)
        else:
            stored = append(
                sent,
                next_offset=options.append_at,
                leader_epoch=options.leader_epoch,
                now_ms=options.append_time or 0,
                message_format=sent[16] if options.topic_format is None else options.topic_format,
                compression_type=options.topic_codec,
                append_time=options.append_time is not None,
            ).data
        found = compare(sent, stored)
    except (OSError, ValueError) as failure:
        print(f"minibroker explain: {failure}", file=sys.stderr)
        return USAGE
    except (ProtocolError, KafkaError) as error:
        print(f"minibroker explain: {error}", file=sys.stderr)
        return FAILED
    if options.json:
        import json

        print(json.dumps(found.to_dict(), indent=1))
    else:
        for line in comparison_lines(found, wants_colors(options), output_width()):
            print(line)
    return DONE


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


def wants_colors(options: argparse.Namespace) -> bool:
    return options.color == "always" or (
        options.color == "auto" and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    )
