"""Rows of __consumer_offsets as bytes."""

from __future__ import annotations

import pytest

from minibroker.errors import ProtocolError
from minibroker.groups.offsets import commit_record, tombstone
from minibroker.groups.records import decode, encode
from minibroker.stored.group_offsets import GroupMetadataKey, LegacyOffsetCommitKey, LegacyOffsetCommitValue

ID = bytes(range(16))


def commit(expire_timestamp: int = -1) -> object:
    return commit_record(
        "g",
        "t",
        1,
        5,
        leader_epoch=2,
        metadata="m",
        commit_timestamp=1000,
        expire_timestamp=expire_timestamp,
        topic_id=ID,
    )


@pytest.mark.parametrize(("is_before_4", "expire", "version"), [(True, -1, 3), (False, -1, 4), (False, 2000, 1)])
def test_an_offset_is_written_as_its_release_does(is_before_4: bool, expire: int, version: int) -> None:
    row = commit(expire)
    key, value = encode(row, is_before_4=is_before_4)  # type: ignore[arg-type]
    assert value is not None
    assert int.from_bytes(value[:2], "big") == version
    again = decode(key, value)
    assert again is not None
    assert again[1] is not None
    assert (again[1].offset, again[1].commit_timestamp) == (5, 1000)  # type: ignore[attr-defined]
    assert again[1].topic_id == (ID if version == 4 else bytes(16))  # type: ignore[attr-defined]


def test_the_oldest_form_is_read_as_one_of_today() -> None:
    key = LegacyOffsetCommitKey(group="g", topic="t", partition=1).encode_stored()
    value = LegacyOffsetCommitValue(offset=5, metadata="m", commit_timestamp=1000).encode_stored(0)
    found = decode(key, value)
    assert found is not None
    assert found[0] == tombstone("g", "t", 1)[0]
    assert (found[1].offset, found[1].metadata) == (5, "m")  # type: ignore[union-attr]
    assert decode(key, None) == tombstone("g", "t", 1)


def test_what_is_not_known_is_passed_over_and_what_is_broken_is_refused() -> None:
    assert decode(None, b"") is None
    assert decode(b"", b"") is None
    assert decode(b"\0\x63rest", b"") is None
    with pytest.raises(ProtocolError):
        decode(GroupMetadataKey(group="g").encode_stored(), b"\0\x03rest")
