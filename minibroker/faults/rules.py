"""A rule: which requests it is for, which of these it strikes, and what it does then.

    Rule(api="Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER", times=2)
    Rule(api="EndTxn", transactional_id="pay-*", close="after")      decided, and the producer does not learn of it
    Rule(api="WriteTxnMarkers", topic="orders", hold="before")       decided, and the marker is not written yet

WriteTxnMarkers with `hold` or `kill` is about the markers that the broker sends as a coordinator, each by itself.
What must hold: a rule that could never strike, or that contradicts itself, is refused when it is made, with a message
that says what would do. Values may be texts, as a command line and a query have nothing else.
Not here: how an answer with an error looks (answers.py), and who carries a rule out (broker/inject_faults.py).
"""

from __future__ import annotations

from minibroker.errors import Error, find_error
from minibroker.faults import FaultError
from minibroker.faults.answers import FETCH_AS_A_WHOLE, has_partitions, has_topics
from minibroker.protocol.registry import APIS
from minibroker.schema.types import parse_range

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random
    from typing import Any

DELAY_MS_MAX = 24 * 60 * 60 * 1000
RANDOM = "random"


def _api(value: object) -> int:
    for number, name in APIS.items():
        is_number = isinstance(value, int) and not isinstance(value, bool) and value == number
        if is_number or (isinstance(value, str) and value.strip().lower() in (name.lower(), str(number))):
            return number
    from difflib import get_close_matches

    near = get_close_matches(str(value), APIS.values(), 1)
    raise FaultError(f"there is no API {value!r}" + (f"; did you mean {near[0]}?" if near else ""))


def _versions(value: object) -> tuple[int, int]:
    text = str(value).strip()
    try:
        first, last = parse_range(text)
    except ValueError:
        first, last = 1, 0
    if isinstance(value, bool) or not 0 <= first <= last:
        raise FaultError(f"{value!r} is no version; 7, '3-7' or '9+' is")
    return first, last


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise FaultError(f"{value!r} is no name; a text is, in which * and ? may stand")
    return value


def _number(least: int, most: int) -> Callable[[object], int]:
    def check(value: object) -> int:
        if isinstance(value, str) and value.strip().removeprefix("-").isdecimal():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise FaultError(f"{value!r} is no whole number from {least} to {most}")
        return value

    return check


def _share(value: object) -> float:
    try:
        share = float(value) if isinstance(value, (int, float, str)) else -1.0
    except ValueError:
        share = -1.0
    if isinstance(value, bool) or not 0 <= share <= 1:
        raise FaultError(f"{value!r} is no probability; 0 to 1 is")
    return share


def _error(value: object) -> Error:
    if isinstance(value, str):
        text = value.strip().upper()
        found = find_error(int(text) if text.removeprefix("-").isdecimal() else text)
    else:
        found = find_error(value) if isinstance(value, int) and not isinstance(value, bool) else None
    if not found:
        raise FaultError(f"{value!r} is no error of Kafka; NOT_LEADER_OR_FOLLOWER or 6 is")
    return found


def _flag(value: object) -> bool:
    if value in (True, False):
        return bool(value)
    if isinstance(value, str) and value.lower() in ("true", "false", "yes", "no", "1", "0"):
        return value.lower() in ("true", "yes", "1")
    raise FaultError(f"{value!r} is neither true nor false")


def _moment(value: object) -> str:
    if value is True or value == "true":
        return "before"
    if value not in ("before", "after"):
        raise FaultError(f"{value!r}: it happens 'before' the request is handled, or 'after'")
    return str(value)


def _place(value: object) -> int | str:
    if value is True or value == RANDOM:
        return RANDOM
    return _number(-(1 << 31), (1 << 31) - 1)(value)


MATCHERS: dict[str, Callable[[Any], Any]] = {
    "api": _api,  # name or number; without it every API
    "version": _versions,  # 7, "3-7", "9+"
    "topic": _text,  # name or pattern
    "partition": _number(0, (1 << 31) - 1),
    "client_id": _text,  # name or pattern
    "transactional_id": _text,  # name or pattern
    "nth": _number(1, 1 << 53),  # only the n-th request that matches
    "times": _number(1, 1 << 53),  # no more often than this
    "probability": _share,  # of striking a request that matches
}
ACTIONS: dict[str, Callable[[Any], Any]] = {
    "delay_ms": _number(1, DELAY_MS_MAX),  # the answer waits so long
    "error": _error,  # name or number
    "after": _flag,  # the error is answered, but the request has been carried out
    "drop_request": _flag,  # as if it had never come
    "drop_response": _flag,  # carried out, never answered
    "close": _moment,  # "before" or "after" the request is carried out
    "hold": _moment,  # it waits, before or after that, until the rule is removed
    "kill": _moment,  # the broker ends as by kill -9, before or after that
    "truncate": _number(0, (1 << 31) - 1),  # so many bytes of the answer, its length among them; then close
    "corrupt": _place,  # the byte of the answer that is inverted, counted alike; -1: the last; "random"
    "throttle_ms": _number(1, (1 << 31) - 1),  # told in the answer, and nothing more is taken for so long
}
# One of these at most.
FATES = ("error", "drop_request", "drop_response", "close", "hold", "kill", "truncate", "corrupt")

# Requests that name a transactional id, and markers, which are of one.
PRODUCE, WRITE_TXN_MARKERS = 0, 27
OF_TRANSACTIONS = (PRODUCE, 22, 24, 25, 26, WRITE_TXN_MARKERS, 28)


class Rule:
    """What shall happen to which requests."""

    def __init__(self, /, **wanted: Any):
        unknown = wanted.keys() - MATCHERS.keys() - ACTIONS.keys()
        if unknown:
            known = ", ".join([*MATCHERS, *ACTIONS])
            raise FaultError(f"{', '.join(sorted(unknown))}: a rule knows {known}")
        self.values = {}  # what it was made of, checked, in the order of the tables
        for name, check in {**MATCHERS, **ACTIONS}.items():
            if wanted.get(name) is not None:
                try:
                    self.values[name] = check(wanted[name])
                except FaultError as failure:
                    raise FaultError(f"{name}: {failure}") from None
        for name in ("after", "drop_request", "drop_response"):
            if self.values.get(name) is False:
                del self.values[name]
        get = self.values.get
        self.id = 0  # given by who keeps it
        self.api: int | None = get("api")
        self.first_version, self.last_version = get("version", (0, 1 << 15))
        self.topic: str | None = get("topic")
        self.partition: int | None = get("partition")
        self.client_id: str | None = get("client_id")
        self.transactional_id: str | None = get("transactional_id")
        self.nth: int = get("nth", 0)
        self.times: int = get("times", 0)
        self.probability: float = get("probability", 1.0)
        self.delay_ms: int = get("delay_ms", 0)
        self.error: Error | None = get("error")
        self.after: bool = get("after", False)
        self.drop_request: bool = get("drop_request", False)
        self.drop_response: bool = get("drop_response", False)
        self.close: str | None = get("close")
        self.hold: str | None = get("hold")
        self.kill: str | None = get("kill")
        self.truncate: int | None = get("truncate")
        self.corrupt: int | str | None = get("corrupt")
        self.throttle_ms: int = get("throttle_ms", 0)
        self.held: list[Callable[[], object]] = []  # what goes on when the rule is removed
        self.late: dict[Any, None] = {}  # tasks of requests that were held, so that nobody throws them away
        self.match_count = 0
        self.strike_count = 0
        self._check()
        self._is_topic = _matcher(self.topic)
        self._is_client = _matcher(self.client_id)
        self._is_transactional_id = _matcher(self.transactional_id)

    def _check(self) -> None:
        fates = [name for name in FATES if name in self.values]
        if not self.values.keys() & ACTIONS.keys() - {"after"}:
            raise FaultError(f"a rule does something: {', '.join(ACTIONS)}")
        if len(fates) > 1:
            raise FaultError(f"{' and '.join(fates)} exclude each other")
        if self.after and self.error is None:
            raise FaultError("after: belongs to an error")
        if self.nth and self.times:
            raise FaultError("nth and times exclude each other: the n-th comes once")
        if (self.throttle_ms or self.delay_ms) and (self.drop_request or self.drop_response):
            raise FaultError("an answer that never comes cannot be late")
        if self.throttle_ms and (self.close or self.truncate is not None):
            raise FaultError("throttle_ms: a connection that is closed needs no throttling")
        if (self.throttle_ms or self.delay_ms) and (self.hold or self.kill):
            raise FaultError(f"{'hold' if self.hold else 'kill'} goes with no delay: the answer is late enough")
        if self.hold == "before" and self.api in (None, PRODUCE):
            raise FaultError("hold: 'before' needs an api, and Produce cannot wait: its records would be overwritten")
        if self.transactional_id is not None and self.api not in (None, *OF_TRANSACTIONS):
            raise FaultError(f"{APIS[self.api]} names no transactional id")
        if self.is_about_markers:
            if "after" in (self.hold, self.kill):
                raise FaultError("WriteTxnMarkers: a marker is held, or its coordinator killed, 'before' it is sent")
            if self.client_id is not None or "version" in self.values:
                raise FaultError("WriteTxnMarkers: coordinators send markers, no client does, in whatever version")
            return
        if not self.is_about_topics:
            return
        if self.api is None and self.error is not None:
            raise FaultError("an error for a topic or partition needs an api")
        if self.error in FETCH_AS_A_WHOLE:
            raise FaultError(f"{self.error} is about a whole fetch: leave out topic and partition")
        if self.api is not None and not has_topics(self.api):
            raise FaultError(f"{APIS[self.api]} has no topics to match")
        if self.api is not None and self.partition is not None and not has_partitions(self.api):
            raise FaultError(f"{APIS[self.api]} speaks of whole topics: leave out the partition")

    @property
    def is_about_topics(self) -> bool:
        return self.topic is not None or self.partition is not None

    @property
    def is_about_markers(self) -> bool:
        """Whether it is for markers that the broker sends as a coordinator, and for no request to it."""
        return self.api == WRITE_TXN_MARKERS and (self.hold is not None or self.kill is not None)

    @property
    def is_spent(self) -> bool:
        """Whether it will never strike again."""
        return bool((self.times and self.strike_count >= self.times) or (self.nth and self.match_count >= self.nth))

    def fits(self, api: int, version: int, client_id: str | None) -> bool:
        """Whether it is for a request, as far as its header tells."""
        return (
            (self.api is None or self.api == api)
            and self.first_version <= version <= self.last_version
            and self._is_client(client_id or "")
            and not self.is_about_markers
            and not self.is_spent
        )

    def fits_marker(self, transactional_id: str, topic: str, partition: int) -> bool:
        """Whether it is for a marker."""
        return (
            self.is_about_markers and self.is_of(transactional_id) and self.hits(topic, partition) and not self.is_spent
        )

    def is_of(self, transactional_id: str) -> bool:
        return self._is_transactional_id(transactional_id)

    def hits(self, topic: str, partition: int | None) -> bool:
        """Whether it is for a partition; partition None: the topic as a whole."""
        return (self.partition is None or self.partition == partition) and self._is_topic(topic)

    def strikes(self, chance: Random) -> bool:
        """Count a request that matches; return whether it is struck."""
        self.match_count += 1
        if (self.nth and self.match_count != self.nth) or (
            self.probability < 1 and chance.random() >= self.probability
        ):
            return False
        self.strike_count += 1
        return True

    @property
    def action(self) -> str:
        """What it does, in short: `error=NOT_LEADER_OR_FOLLOWER delay_ms=100`."""
        return " ".join(_shown(name, value) for name, value in self.values.items() if name in ACTIONS)

    @property
    def where(self) -> str:
        """What it is for, in short: `api=Produce topic=orders`."""
        return " ".join(_shown(name, value) for name, value in self.values.items() if name in MATCHERS) or "everything"

    def as_json(self) -> dict[str, Any]:
        """Return what it was made of and what came of it, as a JSON document takes it."""
        row: dict[str, Any] = {"id": self.id}
        for name, value in self.values.items():
            row[name] = _plain(name, value)
        return row | {"matches": self.match_count, "strikes": self.strike_count}


def values_from_text(text: str) -> Mapping[str, str]:
    """Read `api=Produce,error=NOT_LEADER_OR_FOLLOWER,nth=3`; a name alone is true."""
    values: dict[str, str] = {}
    for item in text.split(","):
        name, separator, value = item.partition("=")
        if name.strip():
            values[name.strip().replace("-", "_")] = value.strip() if separator else "true"
    return values


def _plain(name: str, value: Any) -> Any:
    if name == "api":
        return APIS[value]
    if name == "error":
        return value.name
    if name == "version":
        first, last = value
        return str(first) if first == last else f"{first}+" if last >= 1 << 15 else f"{first}-{last}"
    return value


def _shown(name: str, value: Any) -> str:
    return name if value is True else f"{name}={_plain(name, value)}"


def _matcher(pattern: str | None) -> Callable[[str], bool]:
    if pattern is None:
        return lambda _: True
    if not set(pattern) & set("*?["):
        return pattern.__eq__
    from fnmatch import fnmatchcase

    return lambda text: fnmatchcase(text, pattern)
