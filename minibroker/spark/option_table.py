"""Tables of options: the name of each, how its text is read, its default, and what it does.

    mode | mode: one of fail, skip, quarantine | fail | what a broken batch does
    name | attribute: kind                     | default | a sentence, which may go on in a line that begins with `|`

A query, a write and a bulk load have a table each; documentation and the command line show the same ones. A row without
an attribute is read by who has the table, as several of them say one thing together. One without a sentence is a
setting of Kafka's clients, whose documentation says what it does. Without a default a word is empty, all else None.
What must hold: an option that a table does not know is refused, never ignored, and so is a setting of Kafka's clients
that cannot be kept. Names are taken in any case of letters, as Spark hands them over in small ones.
Not here: how values are written (option_values.py), what may stand together (who has the table).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from minibroker.spark.option_values import READERS, OptionError, one_of

KAFKA = "kafka."  # in front of settings of Kafka's clients
WITH_MANY = ("ssl.", "sasl.")  # settings of which there are many more than a table names
ONE_OF = "one of "
EMPTY = ("text", "word", "words")  # kinds whose value without a default is empty

Reader = Callable[[str, str], Any]  # from name and text; raises OptionError


class Option(NamedTuple):
    """A row."""

    name: str
    attribute: str
    kind: str
    default: str
    text: str


class OptionTable:
    """The options of one use."""

    def __init__(
        self,
        rows: str,
        *,
        readers: Mapping[str, Reader] | None = None,
        settings: str = "",
        refused: Mapping[str, str] | None = None,
        refusal: str = "there is no option {!r}",
        page: str = "docs/spark.md",
    ):
        """readers: of kinds that no other table has. settings: of Kafka's clients that are taken, and are not rows.

        refused: those that cannot be kept, with what to do instead. refusal: what is said of an unknown name.
        page: of the documentation with the table.
        """
        lines = rows.strip().replace("\n    |", " |").splitlines()
        self.rows = {row.name: row for row in map(_row, lines)}
        self._readers = {**READERS, **(readers or {})}
        self._settings = frozenset(KAFKA + name for name in settings.split())
        self._refused = refused or {}
        self._refusal, self._page = refusal, page

    def __iter__(self) -> Iterator[Option]:
        """Yield the rows that documentation shows."""
        return (row for row in self.rows.values() if row.text)

    def by_true_names(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return what was given by the names of the rows; settings of Kafka's clients in small letters."""
        names = {name.lower(): name for name in (*self.rows, *self._settings)}
        found = {}
        for name, value in given.items():
            lower = name.lower()
            if lower not in names and not (self._settings and lower.removeprefix(KAFKA).startswith(WITH_MANY)):
                raise OptionError(self._refusal.format(name) + self._hint(lower, names))
            found[names.get(lower, lower)] = str(value)
        for name, advice in self._refused.items():
            if KAFKA + name in found:
                raise OptionError(f"{KAFKA}{name} cannot be set: {advice}")
        return found

    def _hint(self, lower: str, names: Mapping[str, str]) -> str:
        from difflib import get_close_matches

        near = [KAFKA + lower] if KAFKA + lower in names else get_close_matches(lower, names, 1)
        return f": did you mean {names[near[0]]}?" if near else f"; {self._page} has a table of all"

    def values(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Return attributes and their values; a blank number of Kafka's clients is as if nobody had said it."""
        found: dict[str, Any] = {}
        for row in self.rows.values():
            text = given.get(row.name, row.default)
            if not text.strip() and not row.text and row.kind.startswith("number"):
                text = row.default
            if row.attribute:
                is_none = not text and row.name not in given and row.kind not in EMPTY
                found[row.attribute] = None if is_none else self._read(row, text)
        return found

    def _read(self, row: Option, text: str) -> Any:
        if row.kind.startswith(ONE_OF):
            return one_of(row.name, text, tuple(row.kind.removeprefix(ONE_OF).split(", ")))
        return self._readers[row.kind](row.name, text)


def _row(line: str) -> Option:
    name, read, default, text = (part.strip() for part in line.split("|"))
    attribute, _, kind = read.partition(": ")
    return Option(name, attribute, kind, default, text)
