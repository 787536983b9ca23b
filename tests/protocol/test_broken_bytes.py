"""Bytes that break the protocol: one typed error each, with place and path, and nothing kept for them."""

from __future__ import annotations

import tracemalloc

import pytest

from minibroker.errors import (
    InvalidLength,
    InvalidTag,
    InvalidVarint,
    NullForbidden,
    ProtocolError,
    Truncated,
    UnknownMessage,
    UnsupportedVersion,
)
from minibroker.protocol import message
from minibroker.protocol.framing import FrameReader, decode_request, decode_response
from tests import goldens

# message, version, bytes, error, position, path
CASES = [
    ("ListGroupsRequest", 4, "", Truncated, 0, "ListGroupsRequest.states_filter"),
    ("ListGroupsRequest", 4, "0205", Truncated, 2, "ListGroupsRequest.states_filter[0]"),
    ("ListGroupsRequest", 4, "00", NullForbidden, 0, "ListGroupsRequest.states_filter"),
    ("ListGroupsRequest", 4, "0200", NullForbidden, 1, "ListGroupsRequest.states_filter[0]"),
    ("ListGroupsRequest", 4, "7f61", InvalidLength, 0, "ListGroupsRequest.states_filter"),
    ("ListGroupsRequest", 4, "ffffffff0f61", InvalidLength, 0, "ListGroupsRequest.states_filter"),
    ("ListGroupsRequest", 4, "ffffffff7f61", InvalidVarint, 0, "ListGroupsRequest.states_filter"),
    ("ListGroupsRequest", 4, "808080808001", InvalidVarint, 0, "ListGroupsRequest.states_filter"),
    ("ListGroupsRequest", 4, "01", Truncated, 1, "ListGroupsRequest.tags"),
    ("ListGroupsRequest", 4, "010105", Truncated, 3, "ListGroupsRequest.tags"),
    ("ListGroupsRequest", 4, "01010505", Truncated, 4, "ListGroupsRequest.unknown_tags[5]"),
    ("ListGroupsRequest", 4, "010205000500", InvalidTag, 4, "ListGroupsRequest.unknown_tags[5]"),
    ("MetadataRequest", 0, "ffffffff", NullForbidden, 0, "MetadataRequest.topics"),
    ("MetadataRequest", 0, "7fffffff", InvalidLength, 0, "MetadataRequest.topics"),
    ("MetadataRequest", 0, "00000001ffff", NullForbidden, 4, "MetadataRequest.topics[0].name"),
    ("MetadataRequest", 0, "0000000100ff61", Truncated, 6, "MetadataRequest.topics[0].name"),
    ("ProduceRequest", 0, "00010000000500000001000161000000010000000000000007aabb", Truncated, 25, "records"),
    ("ListConfigResourcesRequest", 1, "7fff", InvalidLength, 0, "ListConfigResourcesRequest.resource_types"),
]


@pytest.mark.parametrize(("name", "version", "data", "error", "position", "path"), CASES)
def test_error_names_kind_place_and_path(
    name: str, version: int, data: str, error: type[ProtocolError], position: int, path: str
) -> None:
    with pytest.raises(ProtocolError) as caught:
        message(name).decode(bytes.fromhex(data), version)
    assert (type(caught.value), caught.value.position) == (error, position), caught.value
    assert caught.value.path.endswith(path)
    assert str(caught.value).startswith(f"{caught.value.path} at byte {position}: ")


def test_negative_length_of_a_nullable_field_is_null_as_in_kafka() -> None:
    for length in ("ffff", "8000"):
        header = message("RequestHeader").decode(bytes.fromhex("0012000000000001" + length), 1)
        assert header.to_dict()["client_id"] is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["requests", "responses", "records"])
def test_every_prefix_of_every_golden_message_is_a_typed_error(kind: str) -> None:
    for vector in goldens.wire(kind):
        if vector["variant"] == "extreme":
            continue
        cls, data = message(vector["name"]), bytes.fromhex(vector["hex"])
        for end in range(0, len(data), 1 + len(data) // 60):
            try:
                cls.decode(data[:end], vector["version"])
            except ProtocolError as error:
                assert 0 <= error.position <= end
                assert error.path.startswith(vector["name"])
            else:
                raise AssertionError(f"{vector['name']} v{vector['version']} was read from {end} of {len(data)} bytes")


def test_absurd_counts_allocate_nothing() -> None:
    broken = bytes.fromhex("7fffffff") + bytes(1000)
    tracemalloc.start()
    for name in ("MetadataRequest", "DeleteTopicsRequest", "CreateTopicsRequest", "AlterConfigsRequest"):
        with pytest.raises(InvalidLength):
            message(name).decode(broken, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


def test_frame_length_is_judged_before_anything_is_kept() -> None:
    for start in (b"GET / HTTP/1.1", b"\x16\x03\x01\x02\x00", b"\xff\xff\xff\xff", (104857601).to_bytes(4, "big")):
        reader = FrameReader()
        with pytest.raises(InvalidLength, match="is not a length between 0 and 104857600"):
            list(reader.feed(start))


def test_frames_come_whole_however_the_bytes_arrive() -> None:
    frames = [b"", b"a", b"bc" * 300]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    assert list(FrameReader().feed(stream)) == frames
    reader = FrameReader()
    assert [frame for byte in stream for frame in reader.feed(bytes((byte,)))] == frames
    assert reader.pending_bytes == 0
    assert list(reader.feed(stream[:5])) == [b""]
    assert reader.pending_bytes == 1


def test_frame_of_unknown_api_or_version_is_a_typed_error() -> None:
    with pytest.raises(UnknownMessage, match="no API has the number 999"):
        decode_request(bytes.fromhex("03e7 0000 00000001 ffff"))
    with pytest.raises(UnsupportedVersion):
        decode_request(bytes.fromhex("0012 0063 00000001 ffff"))
    with pytest.raises(InvalidLength):
        decode_request(b"\0\0")
    with pytest.raises(UnknownMessage):
        decode_response(bytes(4), 95, 0)
    with pytest.raises(Truncated, match="client_id"):
        decode_request(bytes.fromhex("0012 0000 00000001 0005 61"))
