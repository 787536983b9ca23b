"""Two answers to one request, field by field: one that was recorded, and one of another broker or release.

What must hold: rows of a list are compared by what they are about (topic, partition, broker, API, member), in whatever
order they come. What differs by nature, such as times, ids and addresses, is told apart from the rest. An id that is
learned from a pair of answers counts as the same from then on.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from minibroker.errors import ProtocolError
from minibroker.log.batches import batches
from minibroker.schema.message import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# What a broker makes up and a client says again: learned, and put into requests in its place.
LEARNED = ("topic_id", "member_id", "leader", "producer_id", "session_id")
OF_OLD_VERSIONS = "v3_and_below_"
ABOUT = (
    *("name", "topic", "topic_id", "group_id", "group", "key", "api_key", "partition_index", "partition", "index"),
    *("partition_id", "node_id", "config_name", "resource_name", "member_id", "transactional_id"),
)
# Times, ids, addresses, epochs, words of errors, who leads: other brokers have others, and nothing is wrong with that.
NATURAL = re.compile(
    r"(.*_)?(time|timestamp|lifetime)(_ms)?|(.*_)?(epoch|id|ids|host|port|rack|leader|leader_id)|(replica|isr|offline)_nodes"
    r"|.*_replicas|error_message|.*_error_message|log_dir|coordinator|nodes|brokers|node_endpoints|hmac|auth_bytes"
)
NOT_NATURAL = ("generation_id", "group_id", "transactional_id", "broker_id")
ABSENT = "absent"


class Difference(NamedTuple):
    """One field."""

    path: str
    recorded: Any
    now: Any
    is_natural: bool

    def __str__(self) -> str:
        return f"{self.path}: {_shown(self.recorded)} was recorded, {_shown(self.now)} now"


class Learned:
    """Ids that were recorded -> those of now."""

    def __init__(self) -> None:
        self._now: dict[tuple[str, Any], Any] = {}

    def learn(self, field: str, recorded: Any, now: Any) -> None:
        nothing = (None, "", 0 if field == "session_id" else -1, bytes(16))
        if recorded not in nothing and now not in nothing:
            self._now[_kind(field), recorded] = now

    def now(self, field: str, recorded: Any) -> Any:
        """Return what an id is now; itself if that was not learned."""
        return (
            self._now.get((_kind(field), recorded), recorded) if isinstance(recorded, str | int | bytes) else recorded
        )

    def put_into(self, message: Any) -> None:
        """Put ids of now into a message."""
        for field in message.__fields_all__():
            value = getattr(message, field, None)
            if field.removeprefix(OF_OLD_VERSIONS) in LEARNED:
                setattr(message, field, self.now(field, value))
            elif isinstance(value, list):
                for item in value:
                    if isinstance(item, Struct):
                        self.put_into(item)
            elif isinstance(value, Struct):
                self.put_into(value)


def differences(recorded: Any, now: Any, learned: Learned, path: str = "") -> Iterator[Difference]:
    """Yield what differs between two messages as dicts; ids are learned on the way."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        for field in recorded:
            yield from _of_field(field, recorded[field], now.get(field), learned, f"{path}.{field}" if path else field)
    elif isinstance(recorded, list) and isinstance(now, list):
        keys, keys_now = _keys(recorded, learned), _keys(now, None)
        for place, item in keys.items():
            if place in keys_now:
                yield from differences(item, keys_now[place], learned, f"{path}[{place}]")
            else:
                yield _difference(f"{path}[{place}]", item, ABSENT)
        for place in keys_now.keys() - keys.keys():
            yield _difference(f"{path}[{place}]", ABSENT, keys_now[place])
    elif recorded != now:
        yield _difference(path, recorded, now)


def _of_field(field: str, recorded: Any, now: Any, learned: Learned, path: str) -> Iterator[Difference]:
    if field in LEARNED and not isinstance(recorded, dict | list):
        if learned.now(field, recorded) != now:
            yield _difference(path, recorded, now)
            learned.learn(field, recorded, now)
    elif field == "records" and recorded != now:
        yield from differences(_records(recorded), _records(now), learned, path)
    else:
        yield from differences(recorded, now, learned, path)


def _difference(path: str, recorded: Any, now: Any) -> Difference:
    fields = [part.partition("[")[0] for part in path.split(".")]
    is_natural = any(NATURAL.fullmatch(field) for field in fields if field not in NOT_NATURAL)
    return Difference(path, recorded, now, is_natural)


def _keys(rows: list[Any], learned: Learned | None) -> dict[str, Any]:
    """Return rows by what they are about, or by their places if that does not tell them apart."""
    found: dict[str, Any] = {}
    for row in rows:
        if isinstance(row, dict):
            about = next((field for field in ABOUT if row.get(field) not in (None, "", bytes(16))), None)
            if about is None:
                break
            value = row[about] if learned is None else learned.now(about, row[about])
            found[value.hex() if isinstance(value, bytes) else str(value)] = row
        elif isinstance(row, int | str):
            found[str(row)] = row
        else:
            break
    return found if len(found) == len(rows) else {str(place): row for place, row in enumerate(rows)}


def _records(data: Any) -> Any:
    """Return records as rows; bytes that cannot be read stay bytes."""
    if not data:
        return []
    try:
        return [
            {"offset": each.offset, "key": each.key, "value": each.value, "headers": str(each.headers)}
            for batch in batches(data)
            for each in batch.records()
        ]
    except (ProtocolError, ValueError):
        return bytes(data)


def _kind(field: str) -> str:
    return "member_id" if field == "leader" else field.removeprefix(OF_OLD_VERSIONS)


def _shown(value: Any) -> str:
    text = value if value is ABSENT else repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
