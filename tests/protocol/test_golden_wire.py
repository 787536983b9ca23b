"""What Kafka's own classes wrote, read and written by ours: 2601 messages, each version of each in three variants."""

from __future__ import annotations

import base64
from itertools import groupby
from typing import Any

import pytest

from minibroker.protocol import message
from minibroker.protocol.framing import decode_request, decode_response
from minibroker.protocol.headers import RequestHeader, ResponseHeader
from minibroker.schema.message import Struct
from minibroker.schema.plan import Plan, Type, message_plan
from minibroker.schema.walk import walk
from tests import goldens
from tests.protocol.test_schema import snake_case_of_kafka

VECTORS = [vector for kind in ("requests", "responses", "records") for vector in goldens.wire(kind)]
BY_NAME = {name: list(group) for name, group in groupby(sorted(VECTORS, key=lambda v: v["name"]), lambda v: v["name"])}


def as_golden(plan: Plan, value: Struct) -> dict[str, Any]:
    """Return the fields of a message as the golden files write them."""
    return {field.name: plain(field.type, getattr(value, field.name)) for field in [*plan.fields, *plan.tagged]}


def plain(type: Type, value: Any) -> Any:
    if value is None:
        return None
    if type.element:
        return [plain(type.element, item) for item in value]
    if type.plan:
        return as_golden(type.plan, value)
    if type.name == "Uuid":
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    return base64.b64encode(value).decode() if isinstance(value, (bytes, memoryview)) else value


def without_case(fields: Any, ours: Any) -> Any:
    """Rename golden fields to snake case; a tagged field that was left out reads as its default, which is ours."""
    if isinstance(fields, dict):
        renamed = {snake_case_of_kafka(name): value for name, value in fields.items()}
        return {name: without_case(renamed.get(name, value), value) for name, value in ours.items()} | {
            name: value for name, value in renamed.items() if name not in ours
        }
    if isinstance(fields, list) and isinstance(ours, list) and len(fields) == len(ours):
        return [without_case(item, other) for item, other in zip(fields, ours)]
    return fields


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_kafkas_bytes_mean_what_kafka_says_and_come_back_the_same(name: str) -> None:
    cls = message(name)
    for vector in BY_NAME[name]:
        data, version = bytes.fromhex(vector["hex"]), vector["version"]
        decoded = cls.decode(data, version)
        ours = as_golden(message_plan(cls, version), decoded)
        assert ours == without_case(vector["fields"], ours), vector
        assert decoded.encode(version) == data
        assert b"".join(decoded.encode_chunks(version)) == data
        assert cls.decode(memoryview(bytearray(data)), version) == decoded


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_the_slow_reading_sees_the_same_and_leaves_no_gap(name: str) -> None:
    cls = message(name)
    for vector in BY_NAME[name]:
        data, version = bytes.fromhex(vector["hex"]), vector["version"]
        leaves, end = walk(cls, data, version)
        assert end == len(data)
        assert [leaf.start for leaf in leaves] == [0, *(leaf.end for leaf in leaves)][: len(leaves)]
        assert not leaves or leaves[-1].end == end


@pytest.mark.parametrize("kind", ["requests", "responses"])
def test_whole_frames_are_recognised(kind: str) -> None:
    for vector in goldens.wire(kind):
        header, data = bytes.fromhex(vector["header"]), bytes.fromhex(vector["hex"])
        if kind == "requests":
            read_header, body = decode_request(header + data)
            assert isinstance(read_header, RequestHeader)
            assert (read_header.request_api_key, read_header.request_api_version) == (
                vector["apiKey"],
                vector["version"],
            )
        else:
            answer_header, body = decode_response(header + data, vector["apiKey"], vector["version"])
            assert isinstance(answer_header, ResponseHeader)
        assert body.encode(vector["version"]) == data


def test_stored_records_carry_their_type_and_version_in_front() -> None:
    from minibroker.stored.kinds import CoordinatorKey, CoordinatorValue, MetadataRecord, metadata_frame

    seen = 0
    for vector in goldens.wire("records"):
        if "storedPrefix" not in vector:
            continue
        cls, data = message(vector["name"]), bytes.fromhex(vector["hex"])
        stored = bytes.fromhex(vector["storedPrefix"]) + data
        decoded = cls.decode(data, vector["version"])
        if isinstance(decoded, CoordinatorKey):
            assert decoded.encode_stored() == stored
            assert type(decoded).decode_stored(stored) == decoded
        elif isinstance(decoded, CoordinatorValue):
            assert decoded.encode_stored(vector["version"]) == stored
            assert type(decoded).decode_stored(stored) == decoded
        else:
            assert isinstance(decoded, MetadataRecord)
            assert decoded.encode_stored(vector["version"]) == stored
            assert metadata_frame(stored) == (vector["apiKey"], vector["version"], len(stored) - len(data))
        seen += 1
    assert seen > 300
