"""Fuzz target: wire bytes -> message -> wire bytes, by codec and by walk, and streams of frames.

    kind, number, version, then the message
    kind % 4   0 request, 1 response, 2 header or stored record, 3 a stream of frames in pieces of `number` bytes
    number     of the API, or the place in the list of names; version counts from the oldest

What must hold: ProtocolError is the only exception, and names a place in the input. The walk agrees with the codec on
what is an error and where the message ends, and its leaves lie side by side. What was decoded can be encoded, and
decodes to the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minibroker.errors import EncodeError, ProtocolError, TrailingBytes
from minibroker.protocol import message, names
from minibroker.protocol.framing import FrameReader, decode_request, decode_response
from minibroker.protocol.registry import APIS
from minibroker.schema.walk import walk
from tests import goldens

NUMBERS = {name: number for number, name in APIS.items()}
OTHERS = [name for name in names() if name.removesuffix("Request").removesuffix("Response") not in NUMBERS]
REQUEST, RESPONSE, OTHER, STREAM = range(4)
CHOICE_BYTES = 3


def check(data: bytes) -> None:
    if len(data) < CHOICE_BYTES:
        return
    kind, number, version = data[0] % 4, data[1], data[2]
    if kind == STREAM:
        check_stream(data[CHOICE_BYTES:], number + 1, version)
        return
    name = OTHERS[number % len(OTHERS)] if kind == OTHER else api_name(number) + ("Request", "Response")[kind]
    cls: Any = message(name)
    first, last = cls.schema.first_version, cls.schema.last_version
    check_message(cls, first + version % (last - first + 1), data[CHOICE_BYTES:])


def api_name(number: int) -> str:
    return APIS.get(number) or APIS[number % 64]


def check_message(cls: Any, version: int, data: bytes) -> None:
    try:
        decoded = cls.decode(data, version)
    except ProtocolError as error:
        check_error(cls, version, data, error)
        return
    leaves, end = walk(cls, data, version)
    assert end == len(data)
    assert [leaf.start for leaf in leaves] == [0, *(leaf.end for leaf in leaves)][: len(leaves)]
    assert not leaves or leaves[-1].end == end
    # What came from a socket's buffer must not differ from what came as bytes.
    assert same(cls.decode(memoryview(data), version), decoded)
    try:
        packed = decoded.encode(version)
    except EncodeError:
        # Three bytes for each broken one of a string can be more than an int16 counts.
        assert "\ufffd" in repr(decoded)
        return
    assert b"".join(decoded.encode_chunks(version)) == packed
    again = cls.decode(packed, version)
    assert same(again, decoded)
    assert again.encode(version) == packed


def check_error(cls: Any, version: int, data: bytes, error: ProtocolError) -> None:
    assert 0 <= error.position <= len(data), error
    assert error.path.startswith(cls.__name__), error
    # All other errors come from the walk itself.
    if type(error) is TrailingBytes:
        assert walk(cls, data, version)[1] == error.position < len(data)


def check_stream(data: bytes, piece_bytes: int, api: int) -> None:
    reader, frames = FrameReader(), []
    try:
        for start in range(0, len(data), piece_bytes):
            frames += list(reader.feed(data[start : start + piece_bytes]))
    except ProtocolError as error:
        assert 0 <= error.position <= len(data), error
    else:
        assert sum(4 + len(frame) for frame in frames) + reader.pending_bytes == len(data)
    for frame in frames:
        try:
            decode_request(frame)
        except ProtocolError as error:
            assert 0 <= error.position <= len(frame), error
        try:
            decode_response(frame, api, piece_bytes % 16)
        except ProtocolError as error:
            assert 0 <= error.position <= len(frame), error


def same(one: Any, other: Any) -> bool:
    # NaN is not itself, but looks the same.
    return bool(one == other) or repr(one) == repr(other)


BROKEN = [  # name, version, bytes: one for each kind of error
    ("ListGroupsRequest", 4, ""),
    ("ListGroupsRequest", 4, "0200"),
    ("ListGroupsRequest", 4, "ffffffff0f61"),
    ("ListGroupsRequest", 4, "808080808001"),
    ("ListGroupsRequest", 4, "01010505"),
    ("ListGroupsRequest", 4, "010205000500"),
    ("ListGroupsRequest", 4, "0101050361626300"),
    ("MetadataRequest", 0, "7fffffff"),
    ("MetadataRequest", 0, "0000000100ff61"),
    ("MetadataRequest", 1, "ffffffff"),
    ("ApiVersionsRequest", 3, "03ff610261" + "00"),
    ("FetchRequest", 12, 22 * "00" + "0000000001010101000202" + "41"),
    ("ProduceRequest", 0, "00010000000500000001000161000000010000000000000007aabb"),
]


def seeds() -> Iterator[bytes]:
    """Yield the newest version of every message with all fields set, the oldest of every request with as few as can be,
    broken messages, and frames."""
    newest, oldest = {}, {}
    for kind in ("requests", "responses", "records"):
        for vector in goldens.wire(kind):
            if vector["variant"] == "full":
                newest[vector["name"]] = vector
            elif vector["variant"] == "null" and kind == "requests":
                oldest.setdefault(vector["name"], vector)
    for vector in [*newest.values(), *oldest.values()]:
        yield seed(vector["name"], vector["version"], bytes.fromhex(vector["hex"]))
    for name, version, text in BROKEN:
        yield seed(name, version, bytes.fromhex(text))
    for count in (1, 3):
        frames = [frame(vector) for vector in list(oldest.values())[count :: 20 * count]]
        yield bytes((STREAM, 255, 18)) + b"".join(frames)
        yield bytes((STREAM, count, 3)) + b"".join(frames[:3])
    yield bytes((STREAM, 0, 0)) + bytes.fromhex("0000000003e7000000000001ffff")
    yield bytes((STREAM, 7, 0)) + b"GET / HTTP/1.1"


def frame(vector: dict[str, Any]) -> bytes:
    body = bytes.fromhex(vector["header"] + vector["hex"])
    return len(body).to_bytes(4, "big") + body


def seed(name: str, version: int, data: bytes) -> bytes:
    cls: Any = message(name)
    number = NUMBERS.get(name.removesuffix("Request").removesuffix("Response"))
    if number is not None:
        choice = RESPONSE if name.endswith("Response") else REQUEST, number
    else:
        choice = OTHER, OTHERS.index(name)
    return bytes((*choice, version - cls.schema.first_version)) + data
