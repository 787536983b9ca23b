"""Regular expressions by which members subscribe to topics (RE2 syntax): which are valid, which topics they match.

Members bring them and the broker runs them, so matching takes time in proportion to the name: no backtracking, all ways
through an expression are followed at once. RE2 has no back references and no look-around, which would not allow that.
Topic names are ASCII, so a class of characters is the set of those it has below 128, whatever it says of others.
Invariant: an expression matches a whole name or not at all.
Not here: captures and greediness, which are accepted and make no difference (pattern_syntax.py reads them).
"""

from __future__ import annotations

from functools import lru_cache

from minibroker.errors import Error, KafkaError
from minibroker.groups.pattern_syntax import ALTERNATIVE, AT, CHARACTER, REPEAT, SEQUENCE, BadPattern, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from minibroker.groups.pattern_syntax import Node

    Ways = frozenset[int]  # places in the program that may be reached

STEPS_KEPT_MAX = 10_000  # of one expression
SIZE_MAX = 100_000  # instructions of one expression: counts multiply, and a member decides on them
WORD = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")


def check(pattern: str) -> None:
    """Raise if this is no regular expression."""
    try:
        _compiled(pattern)
    except BadPattern as bad:
        words = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {bad}."
        raise KafkaError(Error.INVALID_REGULAR_EXPRESSION, words) from None


def resolve(patterns: Iterable[str], names: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return for each expression the topics it matches, none if another release wrote it and it is none here."""
    listed = list(names)
    found = {}
    for pattern in sorted(patterns):
        try:
            compiled = _compiled(pattern)
        except BadPattern:
            found[pattern] = frozenset[str]()
        else:
            found[pattern] = frozenset(name for name in listed if compiled.matches(name))
    return found


@lru_cache(200)
def _compiled(pattern: str) -> Pattern:
    return Pattern(parse(pattern))


class Pattern:
    """An expression as a program: at each place a set of characters to go on with, a fork, or a condition."""

    def __init__(self, node: Node):
        self.program: list[tuple[str, object]] = []
        self._write(node)
        self.end = len(self.program)
        self.steps: dict[tuple[Ways, int, int], Ways] = {}

    def matches(self, name: str) -> bool:
        """Say whether the whole name matches."""
        codes = name.encode("ascii", "replace")
        ways = self._spread({0}, -1, codes[0] if codes else -1)
        for index, code in enumerate(codes):
            following = codes[index + 1] if index + 1 < len(codes) else -1
            step = (ways, code, following)
            found = self.steps.get(step)
            if found is None:
                found = self._spread({way + 1 for way in ways if self._takes(way, code)}, code, following)
                if len(self.steps) < STEPS_KEPT_MAX:
                    self.steps[step] = found
            ways = found
            if not ways:
                return False
        return self.end in ways

    def _takes(self, way: int, code: int) -> bool:
        if way == self.end:
            return False
        kind, what = self.program[way]
        return kind == CHARACTER and code in what  # type: ignore[operator]

    def _spread(self, ways: set[int], before: int, after: int) -> Ways:
        """Follow forks and conditions between two characters, -1: there is none."""
        reached: set[int] = set()
        todo = list(ways)
        while todo:
            way = todo.pop()
            if way in reached:
                continue
            reached.add(way)
            if way == self.end:
                continue
            kind, what = self.program[way]
            if kind == "fork":
                todo += what  # type: ignore[arg-type]
            elif kind == AT and _holds(str(what), before, after):
                todo.append(way + 1)
        return frozenset(reached)

    def _write(self, node: Node) -> None:
        kind, what = node[0], node[1]
        if len(self.program) > SIZE_MAX:
            raise BadPattern("expression too large")
        if kind == SEQUENCE:
            for part in what:
                self._write(part)
        elif kind == ALTERNATIVE:
            self._write_alternative(what)
        elif kind == REPEAT:
            self._write_repeat(what, *node[2])
        else:
            self.program.append((kind, what))

    def _write_alternative(self, parts: list[Node]) -> None:
        exits = []
        for part in parts[:-1]:
            place = len(self.program)
            self.program.append(("fork", ()))
            self._write(part)
            exits.append(len(self.program))
            self.program.append(("fork", ()))
            self.program[place] = ("fork", (place + 1, len(self.program)))
        self._write(parts[-1])
        for place in exits:
            self.program[place] = ("fork", (len(self.program),))

    def _write_repeat(self, part: Node, least: int, most: int | None) -> None:
        for _ in range(least):
            self._write(part)
        if most is None:
            place = len(self.program)
            self.program.append(("fork", ()))
            self._write(part)
            self.program.append(("fork", (place,)))
            self.program[place] = ("fork", (place + 1, len(self.program)))
            return
        skips = []
        for _ in range(most - least):
            skips.append(len(self.program))
            self.program.append(("fork", ()))
            self._write(part)
        for place in skips:
            self.program[place] = ("fork", (place + 1, len(self.program)))


def _holds(condition: str, before: int, after: int) -> bool:
    if condition == "start":
        return before == -1
    if condition == "line start":
        return before in (-1, ord("\n"))
    if condition == "end":
        return after == -1
    if condition == "line end":
        return after in (-1, ord("\n"))
    return ((before in WORD) != (after in WORD)) == (condition == "word edge")
