"""Log directories that a job takes whole: which, what in them, and where a new one is made.

    add_directory_arguments(parser); wanted(options) -> Wanted, with .paths

Not here: topics of brokers, and ranges of offsets (arguments.py).
"""

from __future__ import annotations

import re

from minibroker.errors import StorageError
from minibroker.log.storage import LOCK, OsStorage
from minibroker.spark.option_values import OptionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


class Wanted:
    """Which partitions a job is about: those of some topics, or all."""

    def __init__(self, topics: Sequence[str] = (), pattern: str | None = None):
        self.topics = tuple(topics)
        try:
            self._pattern = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise OptionError(f"--pattern {pattern!r} is no regular expression: {error}") from None

    @property
    def is_all(self) -> bool:
        return not self.topics and self._pattern is None

    def wants(self, topic: str, partition: int) -> bool:
        del partition
        return self.is_all or topic in self.topics or (self._pattern is not None and bool(self._pattern.search(topic)))

    def check_found(self, found: list[str]) -> None:
        """Raise if a topic that was named is not among those that there are."""
        from difflib import get_close_matches

        for topic in self.topics:
            if topic not in found:
                near = get_close_matches(topic, found, 1)
                raise OptionError(f"there is no topic {topic}; {f'did you mean {near[0]}?' if near else known(found)}")


def known(topics: list[str]) -> str:
    more = f" and {len(topics) - 10} more" if len(topics) > 10 else ""
    return f"there are {', '.join(topics[:10])}{more}"


def add_directory_arguments(parser: argparse.ArgumentParser, *, several: bool = True) -> None:
    """Let a job take a log directory, or several, and topics in it."""
    source = parser.add_argument_group("what to read", "log directories, as in log.dirs; no broker is asked")
    what = "a log directory, or the directory of a single partition"
    if several:
        source.add_argument("--path", action="append", required=True, metavar="DIR", help=f"{what}; may be repeated")
    else:
        source.add_argument("--path", required=True, metavar="DIR", help=what)
    source.add_argument(
        "-t", "--topic", action="append", default=[], metavar="NAME", help="a topic; may be repeated, or with commas"
    )
    source.add_argument("--pattern", metavar="REGEX", help="topics with this in their names; all without any")


def wanted_of(options: argparse.Namespace) -> Wanted:
    """Return which partitions were asked for."""
    return Wanted(split(options.topic), options.pattern)


def is_at_work(root: str) -> bool:
    """Return whether a broker holds a log directory."""
    storage = OsStorage(root)
    if not storage.exists(LOCK):
        return False
    try:
        storage.lock()
    except StorageError as failure:
        return "at work" in str(failure)  # a lock that we may not even open says nothing
    storage.unlock()
    return False


def split(texts: Sequence[str]) -> list[str]:
    """Return names that were given one by one or with commas between them."""
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]
