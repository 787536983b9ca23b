"""Arguments that several jobs share: which topics to read and where they are, and where records are to go.

    add_source_arguments(parser); source_options(options) -> {"path": "data", "subscribe": "orders", ...}
    add_target_arguments(parser); target_options(options) -> {"kafka.bootstrap.servers": "localhost:9092"}

What comes out are options of the data source (minibroker/spark/options.py), which checks them: here is only what makes
no sense on a command line.
"""

from __future__ import annotations

from minibroker.spark.option_values import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Let a job take what names topics; `source_options` reads it."""
    source = parser.add_argument_group("what to read", "log directories without a broker, or topics of brokers")
    source.add_argument(
        "--path", action="append", default=[], metavar="DIR", help="a log directory; may be repeated for several disks"
    )
    source.add_argument("--bootstrap-server", metavar="HOST:PORT", help="brokers to ask, with commas between them")
    source.add_argument(
        "-t", "--topic", action="append", default=[], metavar="NAME", help="a topic; may be repeated, or with commas"
    )
    source.add_argument("--pattern", metavar="REGEX", help="topics with this in their names; .* for all")
    source.add_argument("--assign", metavar="JSON", help='partitions, as {"orders":[0,1]}')
    source.add_argument("--starting-offsets", metavar="WHERE", help='earliest, or {"orders":{"0":23}}')
    source.add_argument("--ending-offsets", metavar="WHERE", help='latest, or {"orders":{"0":50}}')
    source.add_argument("--starting-timestamp", metavar="MS", help="from the first record that is not older, by ms")
    source.add_argument("--ending-timestamp", metavar="MS", help="up to the first record that is not older, by ms")
    source.add_argument(
        "--isolation",
        choices=("read_uncommitted", "read_committed"),
        help="read_committed leaves out aborted and open transactions",
    )
    source.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any option of the data source, as kafka.security.protocol=SSL; may be repeated",
    )


def source_options(options: argparse.Namespace) -> dict[str, str]:
    """Return what was asked for as options of the data source; without any topic all are meant."""
    found: dict[str, str] = {}
    if options.path:
        found["path"] = ",".join(options.path)
    if options.bootstrap_server:
        found["kafka.bootstrap.servers"] = options.bootstrap_server
    topics = [name.strip() for each in options.topic for name in each.split(",") if name.strip()]
    if topics:
        found["subscribe"] = ",".join(dict.fromkeys(topics))
    for name, value in (
        ("subscribePattern", options.pattern),
        ("assign", options.assign),
        ("startingOffsets", options.starting_offsets),
        ("endingOffsets", options.ending_offsets),
        ("startingTimestamp", options.starting_timestamp),
        ("endingTimestamp", options.ending_timestamp),
        ("kafka.isolation.level", options.isolation),
    ):
        if value is not None:
            found[name] = value
    found |= pairs_of("--option", options.option)
    if not {"subscribe", "subscribepattern", "assign"} & {name.lower() for name in found}:
        found["subscribePattern"] = ".*"
    return found


def add_target_arguments(parser: argparse.ArgumentParser) -> None:
    """Let a job take where records go; `target_options` reads it."""
    target = parser.add_argument_group("where records go", "into log directories without a broker, or to brokers")
    target.add_argument("--to-path", metavar="DIR", help="a log directory to make, as a broker has it")
    target.add_argument("--to-bootstrap-server", metavar="HOST:PORT", help="brokers to send to, with commas between")
    target.add_argument(
        "--to-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the writer, as kafka.compression.type=zstd; may be repeated",
    )


def target_options(options: argparse.Namespace) -> dict[str, str]:
    """Return where records go as options of the data source; empty if nothing is said."""
    if options.to_path and options.to_bootstrap_server:
        raise OptionError("--to-path and --to-bootstrap-server are both there: say one, files or brokers")
    found = {"path": options.to_path} if options.to_path else {}
    if options.to_bootstrap_server:
        found["kafka.bootstrap.servers"] = options.to_bootstrap_server
    return found | pairs_of("--to-option", options.to_option)


def pairs_of(word: str, texts: Sequence[str]) -> dict[str, str]:
    """Return what was written as NAME=VALUE."""
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise OptionError(f"{word} {text}: write it as NAME=VALUE")
        found[name] = value
    return found
