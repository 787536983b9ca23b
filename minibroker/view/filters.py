"""What somebody looks for among records: a key, a text, a field of JSON, a header; all that is said has to fit.

    JsonTest("$.user.id == 7").holds({"user": {"id": 7}})       True

    $.user.id == 7    $.items[0].price >= 10    $['a b'] != "x"    $.deleted        the last: it is there

What must hold: `needles` are bytes without which no record fits, so a batch that has none of them need not be read; and
where a record could not be looked at, that is counted and not passed over in silence.
"""

from __future__ import annotations

import json

from minibroker.view.decoding import JSON_BYTES_MAX, NotJson, loads
from minibroker.view.record_rows import headers_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

    from minibroker.log.records import Record

STEPS_MAX: Final = 20  # of a path
TEXT_MAX: Final = 1000  # characters of what is looked for
HEADERS_MAX: Final = 1000  # of a record, that are looked at
LOAD_US: Final = 3  # of JSON, however short it is
LOADED_BYTES_PER_US: Final = 50
ORDERED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<=": lambda found, wanted: found <= wanted,
    ">=": lambda found, wanted: found >= wanted,
    "<": lambda found, wanted: found < wanted,
    ">": lambda found, wanted: found > wanted,
}
OPERATORS: Final = ("==", "!=", *ORDERED)
MISSING: Final = object()


class BadFilter(ValueError):
    """A filter that is none; the text says what would be."""


class JsonTest:
    """A path into JSON, and what is to be there."""

    def __init__(self, text: str):
        self.steps, rest = _steps_of(text)
        rest = rest.strip()
        self.operator = next((each for each in OPERATORS if rest.startswith(each)), "")
        if rest and not self.operator:
            raise BadFilter(f"{rest[:50]!r} does not compare: there are {', '.join(OPERATORS)}")
        self.wanted: Any = None
        if self.operator:
            value = rest[len(self.operator) :].strip()
            try:
                self.wanted = loads(value.encode())
            except (NotJson, UnicodeEncodeError):
                raise BadFilter(f"{value[:50]!r} is no JSON: a text needs quotes") from None

    def holds(self, found: Any) -> bool:
        for step in self.steps:
            if isinstance(step, str):
                found = found.get(step, MISSING) if isinstance(found, dict) else MISSING
            else:
                found = found[step] if isinstance(found, list) and step < len(found) else MISSING
        if found is MISSING:
            return False
        if not self.operator:
            return True
        if self.operator in ORDERED:
            return _are_alike(found, self.wanted) and ORDERED[self.operator](found, self.wanted)
        return (found == self.wanted and isinstance(found, bool) is isinstance(self.wanted, bool)) is (
            self.operator == "=="
        )


def _are_alike(found: Any, wanted: Any) -> bool:
    numbers = (int, float)
    return (isinstance(found, str) and isinstance(wanted, str)) or (
        *(isinstance(found, numbers), isinstance(wanted, numbers)),
        *(not isinstance(found, bool), not isinstance(wanted, bool)),
    ) == (True,) * 4


def _steps_of(text: str) -> tuple[list[str | int], str]:
    """Return the steps of a path, and what stands behind it."""
    if not text.startswith("$"):
        raise BadFilter(f"a path begins with $, as in $.user.id == 7, and not as {text[:50]!r}")
    steps: list[str | int] = []
    at = 1
    while at < len(text) and text[at] in ".[":
        if len(steps) == STEPS_MAX:
            raise BadFilter(f"a path has up to {STEPS_MAX} steps")
        if text[at] == ".":
            end = at + 1
            while end < len(text) and text[end] not in ".[=!<> ":
                end += 1
            step: Any = text[at + 1 : end]
            if not step:
                raise BadFilter("a dot in a path has a name behind it")
        else:
            end = text.find("]", at) + 1
            inside = text[at + 1 : end - 1].strip()
            if inside[:1] == inside[-1:] == "'" and len(inside) > 1:
                step = inside[1:-1]
            else:
                try:
                    step = json.loads(inside)
                except (ValueError, RecursionError):
                    step = None
            if (
                not end
                or not isinstance(step, (int, str))
                or isinstance(step, bool)
                or (isinstance(step, int) and step < 0)
            ):
                raise BadFilter("in the brackets of a path stands a place, [0], or a name in quotes, ['a b']")
        steps.append(step)
        at = end
    return steps, text[at:]


class Filter:
    """All that is looked for."""

    def __init__(
        self,
        *,
        key: bytes | None = None,
        text: str = "",
        path: str = "",
        header: str = "",
    ):
        """header: a name, or a name and a value with = between them."""
        if max(len(key or b""), len(text), len(path), len(header)) > TEXT_MAX:
            raise BadFilter(f"what is looked for has up to {TEXT_MAX} characters")
        self.key = key
        self.text = text.encode()
        self.test = JsonTest(path) if path else None
        name, equals, value = header.partition("=")
        self.header = name
        self.header_value = value.encode() if equals else None
        self.unread: dict[str, int] = {}  # records that could not be looked at, by why
        self._escaped: bytes | None = None  # the name that JSON may have written in another way
        self.needles = [each for each in (self.key, self.text, self.header.encode()) if each]
        if self.test is not None and self.test.steps and isinstance(self.test.steps[-1], str):
            self._escaped = json.dumps(self.test.steps[-1], ensure_ascii=False).encode()

    @property
    def is_empty(self) -> bool:
        return self.key is None and not self.text and self.test is None and not self.header

    def may_be_in(self, data: bytes) -> bool:
        """Whether a record that fits may be in these bytes of records, which are not compressed."""
        if any(needle not in data for needle in self.needles):
            return False
        return self._escaped is None or self._escaped in data or b"\\" in data

    def cost_us(self, record: Record) -> int:
        """Return about how long it takes to look at a record."""
        size_bytes = len(record.value or b"")
        return LOAD_US + min(size_bytes, JSON_BYTES_MAX) // LOADED_BYTES_PER_US if self.test else size_bytes // 2000

    def fits(self, record: Record) -> bool:
        key, value = record.key, record.value
        if self.key is not None and key != self.key:
            return False
        if self.text and self.text not in (value or b"") and self.text not in (key or b""):
            return False
        if self.header and not self._has_header(record):
            return False
        if self.test is None:
            return True
        if value is None:
            return self._note("null")
        try:
            return self.test.holds(loads(value))
        except NotJson as reason:
            return self._note("too long" if "more than" in str(reason) else "no JSON")

    def _has_header(self, record: Record) -> bool:
        found, left_out, _ = headers_of(record, HEADERS_MAX)
        if left_out:
            self._note("too many headers")
        return any(
            name == self.header and (self.header_value is None or value == self.header_value) for name, value in found
        )

    def _note(self, why: str) -> bool:
        self.unread[why] = self.unread.get(why, 0) + 1
        return False
