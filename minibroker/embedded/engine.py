"""What a broker can be asked, wherever it runs: in_process.py and process.py are two answers to it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from minibroker.config import ConfigError
from minibroker.embedded.hosted import Runs
from minibroker.errors import KafkaError, ProtocolError
from minibroker.metadata.bootstrap import WrongDirectory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from minibroker.cleaner.results import CompactionRow, RetentionRow, RollRow
    from minibroker.config.topic_texts import WantedTopic
    from minibroker.groups.view_rows import GroupRow, GroupView

START_FAILURES = (KafkaError, ConfigError, ProtocolError, WrongDirectory, OSError)  # and no bugs of ours
Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record of a topic, and where it is."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int  # ms since 1970; -1: none


class Start(NamedTuple):
    """What a broker is started with, checked."""

    settings: Mapping[str, str]  # by Kafka's names
    topics: tuple[WantedTopic, ...]
    data_dir: str | None  # None: memory
    as_version: str | None
    cluster_id: str | None


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


class Engine(Runs, Protocol):
    """A broker that runs, or is about to."""

    listeners: str  # the setting that would take the same ports again

    async def create_topic(self, name: str, partitions: int | None, configs: Mapping[str, str]) -> None: ...

    async def delete_topic(self, name: str) -> None: ...

    async def topics(self) -> dict[str, int]:
        """Return the number of partitions by name."""
        ...

    async def records(self, topic: str) -> list[Record]: ...

    async def control(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        """Do what HTTP would, by the routes of broker/http_verbs.py; FaultError says why not."""
        ...

    async def wait_records(self, topic: str, count: int, timeout_ms: int) -> list[Record]: ...

    async def groups(self) -> list[GroupRow]: ...

    async def group(self, group: str) -> GroupView: ...

    async def wait_group(self, group: str, members: int | None, state: str | None, timeout_ms: float) -> GroupView: ...

    async def wait_committed(
        self, group: str, topic: str, partition: int, offset: int | None, timeout_ms: float
    ) -> int: ...

    async def retention_now(self, topic: str | None, partition: int | None) -> list[RetentionRow]: ...

    async def compact_now(self, topic: str | None, partition: int | None) -> list[CompactionRow]: ...

    async def roll_now(self, topic: str | None, partition: int | None) -> list[RollRow]: ...
