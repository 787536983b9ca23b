"""Regular expressions by which members subscribe to topics (RE2 syntax): which are valid, which topics they match.

Members bring them and the broker runs them: so RE2 does it, which takes time in proportion to the name, and an
expression that would take more than `MEMORY_BYTES_MAX` is none. Matching many names with many expressions is work in
shares (turns.py): others come in between.
Invariant: an expression matches a whole name or not at all.

Kafka: has RE2/J, which agrees with RE2 on what an expression matches, and not on a few that no topic needs. RE2 takes
`\\C`, `{?a}b{` and two groups of one name; it refuses a backslash before a letter that is not ASCII, `\\p{Unknown}`,
and what is large.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import lru_cache
from typing import Any

from minibroker.errors import Error, KafkaError

MEMORY_BYTES_MAX = 1 << 20  # of one expression; some ten thousand instructions
UNICODE_CLASSES_MAX = 20  # such as \pL: they are the only thing that is large before its size is known
KEPT_MAX = 32  # expressions that are kept ready
NAMES_A_SHARE = 200
MATCH_US = 1  # a name and a small expression
LARGE_INSTRUCTIONS = 25  # of a large one, in so many microseconds a name at worst: one for each

# What RE2 says is wrong, in the words of RE2/J.
WORDS = {
    "bad repetition operator": "invalid nested repetition operator",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
    "unexpected )": "regexp/syntax: internal error",
}


class BadPattern(Exception):
    """No regular expression, and why."""


def check(pattern: str) -> None:
    """Raise if this is no regular expression."""
    try:
        compiled(pattern)
    except BadPattern as bad:
        words = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {bad}."
        raise KafkaError(Error.INVALID_REGULAR_EXPRESSION, words) from None


def resolve(patterns: Iterable[str], names: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return for each expression the topics it matches, none if another release wrote it and it is none here."""
    work = resolve_in_shares(patterns, list(names))
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: dict[str, frozenset[str]] = end.value
            return found


def resolve_in_shares(
    patterns: Iterable[str], names: Sequence[str], may_see: Callable[[str], bool] | None = None
) -> Generator[int, None, dict[str, frozenset[str]]]:
    """Do what `resolve` does, and yield now and then how many microseconds it has taken since, about.

    may_see: which names may be found; None: all.
    """
    found: dict[str, frozenset[str]] = {}
    for pattern in sorted(patterns):
        try:
            expression = compiled(pattern)
        except BadPattern:
            found[pattern] = frozenset()
            continue
        matched: list[str] = []
        name_us = max(MATCH_US, expression.programsize // LARGE_INSTRUCTIONS)
        count = max(NAMES_A_SHARE // name_us, 1)
        for start in range(0, len(names), count):
            piece = [name for name in names[start : start + count] if expression.fullmatch(name)]
            matched += piece if may_see is None else filter(may_see, piece)
            yield count * name_us
        found[pattern] = frozenset(matched)
    return found


@lru_cache(KEPT_MAX)
def compiled(pattern: str) -> Any:
    """Return what RE2 makes of an expression; raise BadPattern if it is none."""
    import re2

    if pattern.count("\\p") + pattern.count("\\P") > UNICODE_CLASSES_MAX:
        raise BadPattern("expression too large")
    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except UnicodeEncodeError:  # the command line's, where it is not in UTF-8
        raise BadPattern("invalid UTF-8") from None
    except re2.error as failure:
        words = failure.args[0]
        words = (words.decode("utf-8", "replace") if isinstance(words, bytes) else str(words)).split(":")[0]
        raise BadPattern(WORDS.get(words, words)) from None
