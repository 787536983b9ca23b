"""Arguments that several jobs share: topics to read, log directories to take whole, and where records are to go.

    add_source_arguments(parser); source_options(options) -> {"path": "data", "subscribe": "orders", ...}
    add_target_arguments(parser); target_options(options) -> {"kafka.bootstrap.servers": "localhost:9092"}
    add_directory_arguments(parser); TopicFilter.of(options)

Options of the data source are those of minibroker/spark/options.py, which checks them: here is only what makes no sense
on a command line.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

from minibroker.spark.jobs.summary import Summary
from minibroker.spark.option_values import OptionError, words
from minibroker.spark.options import COMMITTED, FAIL, OPTIONS, SKIP, TOPIC_OPTIONS
from minibroker.spark.ranges import known_topics

# Argument -> how its value is called, the option of the data source that it stands for.
OF_OPTIONS = {
    "--pattern": ("REGEX", "subscribePattern"),
    "--assign": ("JSON", "assign"),
    "--starting-offsets": ("WHERE", "startingOffsets"),
    "--ending-offsets": ("WHERE", "endingOffsets"),
    "--starting-timestamp": ("MS", "startingTimestamp"),
    "--ending-timestamp": ("MS", "endingTimestamp"),
}


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Let a job take what names topics; `source_options` reads it."""
    source = parser.add_argument_group("what to read", "log directories without a broker, or topics of brokers")
    add_repeated(source, "--path", metavar="DIR", help="a log directory, once for each disk")
    source.add_argument("--bootstrap-server", metavar="HOST:PORT", help="brokers to ask, with commas between them")
    _add_topics(source)
    for name, (metavar, option) in OF_OPTIONS.items():
        source.add_argument(name, metavar=metavar, help=OPTIONS.rows[option].text)
    levels = ("read_uncommitted", COMMITTED)
    source.add_argument("--isolation", choices=levels, help=OPTIONS.rows["kafka.isolation.level"].text)
    add_repeated(source, "--option", help="any option of the data source, as kafka.security.protocol=SSL")


def source_options(options: argparse.Namespace) -> dict[str, str]:
    """Return what was asked for as options of the data source; without any topic all are meant."""
    told = {
        "path": ",".join(options.path) or None,
        "kafka.bootstrap.servers": options.bootstrap_server,
        "subscribe": ",".join(_topics(options)) or None,
        "kafka.isolation.level": options.isolation,
    }
    for name, (_, option) in OF_OPTIONS.items():
        told[option] = getattr(options, name[2:].replace("-", "_"))
    found = {name: value for name, value in told.items() if value is not None}
    found = OPTIONS.by_true_names(found | pairs_of("--option", options.option))
    check_mode(found, "--option mode=")
    if not found.keys() & {*TOPIC_OPTIONS}:
        found["subscribePattern"] = ".*"
    return found


def check_mode(source: Mapping[str, str], name: str = "mode=") -> None:
    """Refuse options of the data source by which its rows are not records; they have their true names."""
    mode = source.get("mode", FAIL).lower()
    if mode not in (FAIL, SKIP):
        raise OptionError(f"{name}{mode}: a job reads records; it can be {FAIL} or {SKIP}")


def add_target_arguments(parser: argparse.ArgumentParser) -> None:
    """Let a job take where records go; `target_options` reads it."""
    target = parser.add_argument_group("where records go", "into log directories without a broker, or to brokers")
    kept = "new topics keep records of any age, or as --to-option config.retention.ms=MS says"
    target.add_argument("--to-path", metavar="DIR", help=f"a log directory to make, as a broker has it; {kept}")
    target.add_argument("--to-bootstrap-server", metavar="HOST:PORT", help="brokers to send to, with commas between")
    add_repeated(target, "--to-option", help="an option of the writer, as kafka.compression.type=zstd")


def target_options(options: argparse.Namespace) -> dict[str, str]:
    """Return where records go as options of the data source; empty if nothing is said."""
    if options.to_path and options.to_bootstrap_server:
        raise OptionError("--to-path and --to-bootstrap-server are both there: say one, files or brokers")
    found = {"path": options.to_path} if options.to_path else {}
    if options.to_bootstrap_server:
        found["kafka.bootstrap.servers"] = options.to_bootstrap_server
    return found | pairs_of("--to-option", options.to_option)


def call_with(function: Callable[..., Summary], options: argparse.Namespace, *given: Any, **more: Any) -> Summary:
    """Call what a job is with the arguments that are named as its parameters are, and what is given besides."""
    told = vars(options) | more
    return function(*given, **{name: told[name] for name in list(signature(function).parameters)[len(given) :]})


class TopicFilter:
    """Which partitions of log directories a job takes: those of some topics, or all."""

    def __init__(self, topics: Sequence[str] = (), pattern: str | None = None):
        self.topics = tuple(topics)
        try:
            self._pattern = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise OptionError(f"--pattern {pattern!r} is no regular expression: {error}") from None

    @classmethod
    def of(cls, options: argparse.Namespace) -> TopicFilter:
        return cls(_topics(options), options.pattern)

    @property
    def is_all(self) -> bool:
        return not self.topics and self._pattern is None

    def wants(self, topic: str, partition: int) -> bool:
        del partition
        return self.is_all or topic in self.topics or (self._pattern is not None and bool(self._pattern.search(topic)))

    def check_found(self, found: list[str]) -> None:
        """Raise if a topic that was named is not among those that there are."""
        for topic in self.topics:
            if topic not in found:
                raise OptionError(f"there is no topic {topic}; {known_topics(found, topic)}")


ALL_TOPICS = TopicFilter()


def add_directory_arguments(parser: argparse.ArgumentParser, *, several: bool = True) -> None:
    """Let a job take a log directory, or several, and topics in it; `TopicFilter.of` reads these."""
    source = parser.add_argument_group("what to read", "log directories, as in log.dirs; no broker is asked")
    what = "a log directory, or the directory of a single partition"
    if several:
        source.add_argument("--path", action="append", required=True, metavar="DIR", help=f"{what}; may be repeated")
    else:
        source.add_argument("--path", required=True, metavar="DIR", help=what)
    _add_topics(source)
    source.add_argument("--pattern", metavar="REGEX", help="topics with this in their names; all without any")


def add_repeated(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup, name: str, *, help: str, metavar: str = "NAME=VALUE"
) -> None:
    """Let an argument be given several times."""
    parser.add_argument(name, action="append", default=[], metavar=metavar, help=f"{help}; may be repeated")


def _add_topics(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument(
        "-t", "--topic", action="append", default=[], metavar="NAME", help="a topic; may be repeated, or with commas"
    )


def _topics(options: argparse.Namespace) -> list[str]:
    return list(dict.fromkeys(name for text in options.topic for name in words("--topic", text)))


def pairs_of(name: str, texts: Sequence[str]) -> dict[str, str]:
    """Return what was written as NAME=VALUE."""
    found: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise OptionError(f"{name} {text}: write it as NAME=VALUE")
        found[key] = value
    return found
