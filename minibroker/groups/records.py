"""Records of __consumer_offsets: a key that names something and a value that says how it is now, None if it is gone.

    offset of a group and partition, classic group, consumer group and its members: all in one compacted topic

What a group is made of is read back by reading all records of a partition in their order; who writes a record that is
not known here, another release or a kind of group that is not served, keeps it: it is passed over.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from minibroker.protocol.registry import STORED, message
from minibroker.stored.kinds import CoordinatorKey, CoordinatorValue

CoordinatorRecord = tuple[CoordinatorKey, CoordinatorValue | None]

HOMES: Final = ("group_offsets", "consumer_groups")  # modules of minibroker/stored
LEGACY_OFFSET: Final = 0  # types of keys
OFFSET: Final = 1
GROUP: Final = 2
GROUP_VERSION: Final = 3  # of the values of classic groups: the next one is flexible, and no release writes it
OFFSET_VERSIONS: Final = {True: 3, False: 4}  # by whether the release is before 4.0: since then with the topic's id
EXPIRING_OFFSET_VERSION: Final = 1  # the only one with a time of its own to expire


@cache
def _classes() -> dict[int, tuple[type[CoordinatorKey], type[CoordinatorValue]]]:
    found = {}
    for home in HOMES:
        for name in STORED[home]:
            if name.endswith("Key"):
                key = message(name)
                found[key.type_number] = (key, message(name.removesuffix("Key") + "Value"))  # type: ignore[attr-defined]
    return found  # type: ignore[return-value]


def decode(key: bytes | None, value: bytes | None) -> CoordinatorRecord | None:
    """Return what a record says, None if it is of a kind that is not known; ProtocolError if it is broken."""
    if key is None or len(key) < 2:
        return None
    classes = _classes().get(int.from_bytes(key[:2], "big", signed=True))
    if classes is None:
        return None
    key_class, value_class = classes
    found = key_class.decode_stored(key), None if value is None else value_class.decode_stored(value)
    return _from_legacy(*found) if key_class.type_number == LEGACY_OFFSET else found


def _from_legacy(key: Any, value: Any) -> CoordinatorRecord:
    """Return an offset in the oldest form, which nobody writes any more, as one of today."""
    from minibroker.stored.group_offsets import OffsetCommitKey, OffsetCommitValue

    now = OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition)
    if value is None:
        return now, None
    return now, OffsetCommitValue(offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp)


def encode(record: CoordinatorRecord, *, is_before_4: bool = False) -> tuple[bytes, bytes | None]:
    """Return key and value as a release writes them."""
    key, value = record
    if value is None:
        return key.encode_stored(), None
    version = value.schema.last_version
    if key.type_number == GROUP:
        version = GROUP_VERSION
    elif key.type_number == OFFSET:
        has_expiry = value.expire_timestamp != -1  # type: ignore[attr-defined]
        version = EXPIRING_OFFSET_VERSION if has_expiry else OFFSET_VERSIONS[is_before_4]
    return key.encode_stored(), value.encode_stored(version)
