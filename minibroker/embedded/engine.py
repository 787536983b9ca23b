"""A broker's verbs, wherever it runs: in_process.py and process.py say how each reaches its broker.

What HTTP answers as well is asked for by the routes of broker/http_verbs.py, in a process of its own over a socket, in
this one by a call; so it is the same in both.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from minibroker.config import ConfigError
from minibroker.embedded.hosted import Runs
from minibroker.embedded.record import Record
from minibroker.errors import Error, KafkaError, ProtocolError
from minibroker.faults import FaultError
from minibroker.metadata.bootstrap import WrongDirectory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from minibroker.cleaner.results import CompactionRow, RetentionRow, RollRow
    from minibroker.clock.steered import SteeredClock
    from minibroker.config.topic_texts import WantedTopic
    from minibroker.groups.view_rows import GroupRow, GroupView
    from minibroker.log.storage import Storage
    from minibroker.security.users import Users
    from minibroker.traffic.lines import RequestRow
    from minibroker.transactions.view_rows import TransactionView

TIMEOUT_S = 5.0
ANSWER_MS, CLEANING_MS = 10_000, 3_600_000  # how long an answer may take; cleaning is answered when it is done
NOT_FOUND, REQUEST_TIMEOUT = 404, 408  # of HTTP
START_FAILURES = (KafkaError, ConfigError, ProtocolError, WrongDirectory, OSError)  # and no bugs of ours


class Start(NamedTuple):
    """What a broker is started with, checked."""

    settings: Mapping[str, str]  # by Kafka's names
    topics: tuple[WantedTopic, ...]
    data_dir: str | None  # None: memory
    as_version: str | None
    cluster_id: str | None
    users: Users | None = None  # who can log in


class BrokerError(RuntimeError):
    """The broker does not start; the reason is in words."""


def too_few(topic: str, found: int, count: int, timeout_ms: float, topics: Iterable[str]) -> TimeoutError:
    """Return the error for records that did not come in time; it says what there is instead."""
    if topic not in (known := sorted(topics)):
        from difflib import get_close_matches

        near = get_close_matches(topic, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        others = f"topics: {', '.join(known)}" if known else "no topic at all"
        return TimeoutError(f"there is no topic {topic!r} after {timeout_ms:g} ms ({others}){hint}")
    has = f"{found} record{'' if found == 1 else 's'}"
    return TimeoutError(
        f"{topic} has {has} after {timeout_ms:g} ms; {count} {'was' if count == 1 else 'were'} waited for"
    )


class HttpRefusal(Exception):
    """The broker does not do what it was asked by a route of its HTTP; status: as HTTP has it."""

    def __init__(self, reason: str, status: int):
        super().__init__(reason)
        self.status = status


class Engine(Runs, Protocol):
    """A broker that runs, or is about to."""

    listeners: str = ""  # the setting that would take the same ports again

    def steered_clock(self) -> SteeredClock:
        """Return the broker's clock; TypeError if it cannot be moved."""
        ...

    async def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_ms: float = ANSWER_MS
    ) -> Any:
        """Return what a route of broker/http_verbs.py answers; FaultError or HttpRefusal say why not."""
        ...

    async def snapshot(self) -> Storage:
        """Return a copy of all that the broker has stored, as after a clean stop."""
        ...

    # The verbs, as Broker has them

    async def create_topic(self, /, name: str, partitions: int | None = None, **configs: object) -> None:
        """Make a topic, with num.partitions unless a number is given; KafkaError says why it cannot be.

        Settings have _ for each dot: cleanup_policy="compact".
        """

    async def delete_topic(self, name: str) -> None:
        """Delete a topic; KafkaError if there is none."""

    async def topics(self) -> dict[str, int]:
        """Return the names of all topics, with their numbers of partitions."""
        ...

    async def records(self, topic: str) -> list[Record]:
        """Return all records that consumers may read, by partition and offset; KafkaError if there is no such topic."""
        ...

    async def ends(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return the offsets at which each partition begins and ends for consumers; KafkaError if there is no topic."""
        ...

    async def last_records(self, topic: str, count: int = 1) -> list[Record]:
        """Return the last records of each partition, so many or fewer: some offsets are of markers, or of nothing."""
        ...

    async def wait_records(self, topic: str, count: int, timeout: float = TIMEOUT_S) -> list[Record]:
        """Return all records as soon as there are so many; TimeoutError if there are not within `timeout` seconds.

        The topic need not be there yet.
        """
        ...

    async def requests(self, count: int | None = None) -> list[RequestRow]:
        """Return the last requests that clients have made, the oldest first, with what was answered.

        Of each connection 32 are kept, with the start of what they say. count: so many of all.
        """
        raise TypeError("the requests of a broker in a process of its own are not kept; serve --record FILE keeps all")

    async def groups(self) -> list[GroupRow]:
        """Return all groups, with state and number of members."""
        from minibroker.groups.view_rows import GroupRow

        return [GroupRow(**row) for row in await self._ask_group("GET", "/groups")]

    async def group(self, group: str) -> GroupView:
        """Return a group: its members, what they have, what is committed and how far that is behind.

        KafkaError if there is none.
        """
        from urllib.parse import quote

        from minibroker.groups.view_rows import view_from_json

        return view_from_json(await self._ask_group("GET", f"/groups/{quote(group, safe='')}"))

    async def wait_group(
        self, group: str, members: int | None = None, state: str | None = None, timeout: float = TIMEOUT_S
    ) -> GroupView:
        """Return a group as soon as it has so many members and a state; TimeoutError says how it is instead.

        By default it is to be Stable, with any members; for members=0 Empty. state="Dead": there is none, or no more.
        """
        from minibroker.groups.view_rows import view_from_json

        wanted = {"group": group, "members": members, "state": state}
        return view_from_json(await self._ask_group("POST", "/wait-group", wanted, timeout))

    async def wait_committed(
        self, group: str, topic: str, partition: int = 0, offset: int | None = None, timeout: float = TIMEOUT_S
    ) -> int:
        """Return what a group has committed as soon as it has got so far, by default as soon as there is anything."""
        wanted = {"group": group, "topic": topic, "partition": partition, "offset": offset}
        found: int = await self._ask_group("POST", "/wait-committed", wanted, timeout)
        return found

    async def instances(self) -> list[dict[str, Any]]:
        """Return a row for each instance and broker: promised, share, what is used, what is stored."""
        found: list[dict[str, Any]] = await self.ask("GET", "/instances")
        return found

    async def transactions(self) -> list[TransactionView]:
        """Return all transactional ids: state, producer id and epoch, timeout, partitions."""
        from minibroker.transactions.view_rows import view_from_json

        return [view_from_json(row) for row in await self._ask_transaction("GET", "/transactions")]

    async def transaction(self, id: str) -> TransactionView:
        """Return a transactional id; KafkaError if there is none."""
        from urllib.parse import quote

        from minibroker.transactions.view_rows import view_from_json

        return view_from_json(await self._ask_transaction("GET", f"/transactions/{quote(id, safe='')}"))

    async def wait_transaction(self, id: str, state: str, timeout: float = TIMEOUT_S) -> TransactionView:
        """Return a transaction as it is when it has a state, such as Ongoing, PrepareCommit, CompleteAbort.

        TimeoutError says how it is instead.
        """
        from minibroker.transactions.view_rows import view_from_json

        wanted = {"id": id, "state": state}
        return view_from_json(await self._ask_transaction("POST", "/wait-transaction", wanted, timeout))

    async def abort_transaction(self, id: str, timeout: float = TIMEOUT_S) -> TransactionView:
        """Abort an open transaction and fence its producer, as an operator would; return when that is decided.

        Its markers follow: wait_transaction(id, "CompleteAbort").
        """
        from minibroker.transactions.view_rows import view_from_json

        return view_from_json(await self._ask_transaction("POST", "/abort-transaction", {"id": id}, timeout))

    async def retention_now(self, topic: str | None = None, partition: int | None = None) -> list[RetentionRow]:
        """Remove what retention does not keep, of a partition, a topic or all: a row says what went, or why nothing."""
        return await self._clean("retention", topic, partition)

    async def compact_now(self, topic: str | None = None, partition: int | None = None) -> list[CompactionRow]:
        """Compact a partition, a topic or all, be it dirty enough or not; return when it is done.

        What is in the active segment stays as it is: roll_now comes before.
        """
        return await self._clean("compact", topic, partition)

    async def roll_now(self, topic: str | None = None, partition: int | None = None) -> list[RollRow]:
        """Begin new segments, of a partition, a topic or all."""
        return await self._clean("roll", topic, partition)

    async def control(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        """Do what is done to faults; FaultError says why not."""
        try:
            return await self.ask(method, path, body)
        except HttpRefusal as refusal:
            raise FaultError(str(refusal)) from None

    async def _ask_group(
        self, method: str, path: str, wanted: Mapping[str, Any] | None = None, timeout: float = 0
    ) -> Any:
        return await self._ask_about(Error.GROUP_ID_NOT_FOUND, method, path, wanted, timeout)

    async def _ask_transaction(
        self, method: str, path: str, wanted: Mapping[str, Any] | None = None, timeout: float = 0
    ) -> Any:
        return await self._ask_about(Error.TRANSACTIONAL_ID_NOT_FOUND, method, path, wanted, timeout)

    async def _ask_about(
        self, missing: Error, method: str, path: str, wanted: Mapping[str, Any] | None, timeout: float
    ) -> Any:
        body = None if wanted is None else {**wanted, "timeout_ms": timeout * 1000}
        try:
            return await self.ask(method, path, body, timeout_ms=ANSWER_MS + timeout * 1000)
        except HttpRefusal as refusal:
            if refusal.status == REQUEST_TIMEOUT:
                raise TimeoutError(str(refusal)) from None
            if refusal.status == NOT_FOUND:
                raise KafkaError(missing, str(refusal)) from None
            raise ValueError(str(refusal)) from None

    async def _clean(self, verb: str, topic: str | None, partition: int | None) -> list[Any]:
        from minibroker.cleaner.results import ROWS

        place = {"topic": topic, "partition": partition}
        try:
            return [ROWS[verb](**row) for row in await self.ask("POST", f"/{verb}", place, timeout_ms=CLEANING_MS)]
        except HttpRefusal as refusal:
            is_absent = refusal.status == NOT_FOUND
            code = Error.UNKNOWN_TOPIC_OR_PARTITION if is_absent else Error.INVALID_REQUEST
            raise KafkaError(code, str(refusal)) from None
