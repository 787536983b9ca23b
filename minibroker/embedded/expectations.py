"""What a test expects to find in a topic: so many records that fit, within a time; or none.

    broker.expect("orders", 2, within="2s", value={"state": "paid"})
    broker.never("refunds", key="order-7", within="300ms")

A pattern is bytes or text, compared as they are; a number, a list or a dict, compared with the JSON of the record,
where a dict may leave fields out; None for null; a compiled regular expression; a function, which gets the bytes.
What must hold: nothing here reads as a consumer, so no group and no position is touched. An expectation that fails says
what came instead, and for the nearest record where it differs.
"""

from __future__ import annotations

from inspect import isawaitable

from minibroker.clock import LoopClock
from minibroker.clock.steered import duration_ms
from minibroker.embedded.engine import TIMEOUT_S
from minibroker.embedded.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

ANY: Any = type("Any", (), {"__repr__": lambda self: "..."})()
NEVER_MS = 500.0  # that `never` looks, if nobody says how long
SHOWN_MAX = 10  # records
SHOWN_LETTERS_MAX = 120  # of a key or a value


class Expectations:
    """What can be expected of the topics of a broker or a cluster."""

    def __init__(self, reads: Any):
        """reads: has `records` and `wait_records`, to be awaited or not."""
        self._reads = reads

    async def expect(
        self,
        topic: str,
        n: int = 1,
        *,
        within: float | str | None = None,
        value: Any = ANY,
        key: Any = ANY,
        headers: Mapping[str, Any] | None = None,
        partition: int | None = None,
    ) -> list[Record]:
        """Return the records that fit as soon as there are so many; AssertionError says what came instead.

        value, key, headers: patterns; ... fits all. within: milliseconds, or a duration such as "2s".
        """
        __tracebackhide__ = True
        pattern = Pattern(value, key, headers or {}, partition)
        limit_ms = TIMEOUT_S * 1000 if within is None else duration_ms(within)
        found, fitting = await self._look(topic, n, pattern, limit_ms)
        if len(fitting) >= n:
            return fitting
        raise AssertionError(await self._missed(topic, n, pattern, limit_ms, found, fitting))

    async def never(
        self,
        topic: str,
        *,
        within: float | str | None = None,
        value: Any = ANY,
        key: Any = ANY,
        headers: Mapping[str, Any] | None = None,
        partition: int | None = None,
    ) -> None:
        """Return when so long nothing has come that fits, AssertionError as soon as something has.

        What is there already counts. The topic need not be there.
        """
        __tracebackhide__ = True
        pattern = Pattern(value, key, headers or {}, partition)
        _, fitting = await self._look(topic, 1, pattern, NEVER_MS if within is None else duration_ms(within))
        if fitting:
            raise AssertionError(f"{topic} has what was never to come{pattern.said}:\n  {shown(fitting[0])}")

    async def _look(self, topic: str, n: int, pattern: Pattern, limit_ms: float) -> tuple[list[Record], list[Record]]:
        """Return all records and those that fit, as soon as there are enough of these or the time is over."""
        clock = LoopClock()  # a test's patience, whatever time it is for the broker
        deadline_ms = clock.steady_ms() + limit_ms
        found: list[Record] = []
        wanted = n
        while True:
            left_s = max(deadline_ms - clock.steady_ms(), 0) / 1000
            try:
                found = await self._reads.wait_records(topic, wanted, left_s)
            except TimeoutError:
                found = await self._records(topic)
            fitting = [record for record in found if pattern.fits(record)]
            if len(fitting) >= n or clock.steady_ms() >= deadline_ms:
                return found, fitting
            wanted = len(found) + n - len(fitting)

    async def _records(self, topic: str) -> list[Record]:
        if topic not in await self._topics():
            return []
        result = self._reads.records(topic)
        found: list[Record] = await result if isawaitable(result) else result
        return found

    async def _topics(self) -> Mapping[str, int]:
        result = self._reads.topics()
        found: Mapping[str, int] = await result if isawaitable(result) else result
        return found

    async def _missed(
        self, topic: str, n: int, pattern: Pattern, limit_ms: float, found: list[Record], fitting: list[Record]
    ) -> str:
        within = f"within {limit_ms / 1000:g} s"
        known = await self._topics()
        if topic not in known:
            from difflib import get_close_matches

            near = get_close_matches(topic, known, n=1)
            others = f"topics: {', '.join(known)}" if known else "no topic at all"
            return f"there is no topic {topic!r} {within} ({others}){f'; did you mean {near[0]}?' if near else ''}"
        lines = [f"{topic} has {len(fitting)} of {n} records{pattern.said} {within}"]
        unfit = [record for record in found if not pattern.fits(record)]
        lines += _listed("these fit:", fitting, lambda record: "")
        lines += _listed("this came instead:", unfit, pattern.difference)
        if not found:
            lines.append("no record at all came")
        return "\n".join(lines)


class Pattern:
    """What a record is to be like."""

    def __init__(self, value: Any, key: Any, headers: Mapping[str, Any], partition: int | None):
        self.value, self.key, self.headers, self.partition = _wanted(value), _wanted(key), headers, partition

    @property
    def said(self) -> str:
        parts = [f"{name} {_said(wanted)}" for name, wanted in self._parts() if wanted is not ANY]
        parts += [f"partition {self.partition}"] if self.partition is not None else []
        return f" with {', '.join(parts)}" if parts else ""

    def _parts(self) -> list[tuple[str, Any]]:
        headers = [(f"header {name}", _wanted(wanted)) for name, wanted in self.headers.items()]
        return [("key", self.key), ("value", self.value), *headers]

    def fits(self, record: Record) -> bool:
        return not self.difference(record)

    def difference(self, record: Record) -> str:
        """Say where a record is not as it is to be; nothing if it fits."""
        if self.partition is not None and record.partition != self.partition:
            return f"partition is {record.partition}"
        for name, wanted in self._parts():
            if wanted is ANY:
                continue
            if not name.startswith("header "):
                said = _differs(getattr(record, name), wanted)
            else:
                of_name = [value for key, value in record.headers if key == name.removeprefix("header ")]
                said = "is missing" if not of_name else min((_differs(each, wanted) for each in of_name), key=len)
            if said:
                return f"{name} {said}"
        return ""


def _wanted(pattern: Any) -> Any:
    return ANY if pattern is ... else pattern


def _said(wanted: Any) -> str:
    if _is_regular(wanted):
        return f"like {wanted.pattern!r}"
    return getattr(wanted, "__name__", None) or repr(wanted)


def _is_regular(wanted: Any) -> bool:
    """Whether it is a compiled regular expression, without the module for those."""
    return hasattr(wanted, "search") and hasattr(wanted, "pattern")


def _differs(found: bytes | None, wanted: Any) -> str:
    """Say how bytes differ from what is wanted; nothing if they do not."""
    if wanted is None or found is None:
        same = found is None and wanted is None
        return "" if same else "is null" if found is None else "is not null"
    if isinstance(wanted, bytes | bytearray | memoryview):
        return "" if found == wanted else "is another one"
    if isinstance(wanted, str):
        return "" if found == wanted.encode() else "is another one"
    if _is_regular(wanted):
        text: Any = found if isinstance(wanted.pattern, bytes) else found.decode("utf-8", "replace")
        return "" if wanted.search(text) else "is not like that"
    if callable(wanted):
        return "" if wanted(found) else "does not fit"
    import json

    try:
        return _differs_json(json.loads(found), wanted, "")
    except ValueError:
        return "is no JSON"


def _differs_json(found: Any, wanted: Any, path: str) -> str:
    where = path or "the whole"
    if wanted is ...:
        return ""
    if isinstance(wanted, dict):
        if not isinstance(found, dict):
            return f"{where} is {found!r}"
        for name, each in wanted.items():
            inner = f"{path}.{name}"
            if name not in found:
                return f"{inner} is missing"
            if said := _differs_json(found[name], each, inner):
                return said
        return ""
    if isinstance(wanted, list | tuple):
        if not isinstance(found, list) or len(found) != len(wanted):
            return f"{where} is {found!r}"
        pairs = enumerate(zip(found, wanted, strict=True))
        return next(filter(None, (_differs_json(*pair, f"{path}[{index}]") for index, pair in pairs)), "")
    if isinstance(found, bool) is not isinstance(wanted, bool) or found != wanted:
        return f"{where} is {found!r}"
    return ""


def _listed(title: str, records: list[Record], more: Callable[[Record], str]) -> list[str]:
    if not records:
        return []
    lines = [title]
    for record in records[-SHOWN_MAX:]:
        said = more(record)
        lines.append(f"  {shown(record)}" + (f"   ({said})" if said else ""))
    left = len(records) - SHOWN_MAX
    return [*lines, *([f"  and {left} before them"] if left > 0 else [])]


def shown(record: Record) -> str:
    """Return a record on one line: place, key, value."""
    key = "" if record.key is None else f"key {_cut(record.key)}  "
    return f"[{record.partition}] {record.offset}  {key}{_cut(record.value)}"


def _cut(data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        text = data.decode()
        text = text if text.isprintable() else repr(data)[1:]
    except UnicodeDecodeError:
        text = repr(data)
    return text if len(text) <= SHOWN_LETTERS_MAX else f"{text[:SHOWN_LETTERS_MAX]}... ({len(data)} bytes)"
