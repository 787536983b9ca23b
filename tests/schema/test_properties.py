"""Random messages of every kind and version, and random damage to them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minibroker.errors import InvalidLength, ProtocolError
from minibroker.protocol import message, names
from minibroker.schema.message import Message
from minibroker.schema.plan import FIXED, Plan, Type, message_plan
from minibroker.schema.types import EMPTY
from minibroker.schema.varint import uvarint
from minibroker.schema.walk import RANGES, walk

NAMES = names()
QUICK = settings(max_examples=300, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def messages(draw: st.DrawFn) -> tuple[Message, int]:
    """Draw a message and a version. What it holds comes from one drawn seed: quick, and a failure is replayed by it."""
    cls = message(draw(st.sampled_from(NAMES)))
    version = draw(st.integers(cls.schema.first_version, cls.schema.last_version))
    chance = random.Random(draw(st.integers(0, 2**32)))
    return make(message_plan(cls, version), chance), version  # type: ignore[return-value]


def make(plan: Plan, chance: random.Random) -> Any:
    """Return a struct with random values in the fields that the version has."""
    values = {
        field.name: field.default if field.tag is not None and chance.random() < 0.5 else make_value(field.type, chance)
        for field in [*plan.fields, *plan.tagged]
    }
    absent = {
        name: spec.default for name, spec in plan.cls.__specs__.items() if name not in values and spec.has_default
    }
    value = plan.cls(**absent | values)
    if plan.flexible and chance.random() < 0.1:
        value.unknown_tags = {chance.randrange(1000, 2**31): chance.randbytes(chance.randrange(200))}
    return value


def make_value(type: Type, chance: random.Random) -> Any:
    if type.nullable and chance.random() < 0.2:
        return None
    if type.element:
        return [make_value(type.element, chance) for _ in range(chance.choice((0, 1, 2, 5)))] or EMPTY
    if type.plan:
        return make(type.plan, chance)
    if type.name in RANGES:
        low, high = RANGES[type.name]
        return chance.choice((low, high, 0, min(high, 127), min(high, 128), chance.randint(low, high)))
    if type.name == "Bool":
        return chance.random() < 0.5
    if type.name == "Float64":
        return chance.choice((0.0, -1.5, 1e300))
    size = 16 if type.name in FIXED else chance.choice((0, 1, 126, 127, 128, 300))
    return "é" * (size // 2) if type.name.endswith("String") else chance.randbytes(size)


@pytest.mark.outside
@QUICK
@given(messages())
def test_what_is_written_is_read_back(case: tuple[Message, int]) -> None:
    value, version = case
    data = value.encode(version)
    back = type(value).decode(data, version)
    assert back == value
    assert back.encode(version) == data
    assert b"".join(value.encode_chunks(version)) == data
    leaves, end = walk(type(value), data, version)
    assert end == len(data)
    assert sum(leaf.end - leaf.start for leaf in leaves) == len(data)


@pytest.mark.outside
@QUICK
@given(messages(), st.randoms(use_true_random=False), st.binary(max_size=8))
def test_damage_is_read_or_refused_with_a_typed_error(
    case: tuple[Message, int], chance: random.Random, noise: bytes
) -> None:
    value, version = case
    data = bytearray(value.encode(version))
    for byte in noise:
        place = chance.randrange(len(data) + 1)
        data[place : place + chance.randrange(3)] = bytes((byte,)) * chance.randrange(3)
    try:
        back = type(value).decode(data, version)
    except ProtocolError as error:
        assert 0 <= error.position <= len(data)
        assert error.path
        return
    # What was readable can be written, and means the same when read again.
    assert type(value).decode(back.encode(version), version) == back


@pytest.mark.parametrize("name", NAMES)
def test_a_string_has_at_most_as_many_bytes_as_two_bytes_can_count(name: str) -> None:
    """Also where the length is a varint: what is taken there has to fit into rows and versions where it is not."""
    cls, chance = message(name), random.Random(name)
    plan = message_plan(cls, cls.schema.last_version)
    value = make(plan, chance)
    value.unknown_tags = None
    for field in plan.tagged:
        setattr(value, field.name, field.default)
    data = value.encode(cls.schema.last_version)
    leaves, _ = walk(cls, data, cls.schema.last_version)
    for leaf in [leaf for leaf in leaves if leaf.type.startswith("String")][:20]:
        head, tail = data[: leaf.start], data[leaf.end :]
        if not plan.flexible:
            continue
        for size in (0x7FFF, 0x8000, 0x10000):
            long = head + uvarint(size + 1) + b"x" * size + tail
            if size == 0x7FFF:
                assert cls.decode(long, cls.schema.last_version).encode(cls.schema.last_version) == long
                continue
            with pytest.raises(InvalidLength) as refused:
                cls.decode(long, cls.schema.last_version)
            assert (refused.value.position, refused.value.path) == (leaf.start, leaf.path)


@pytest.mark.parametrize("name", NAMES)
def test_random_bytes_are_read_or_refused_in_every_version(name: str) -> None:
    cls, chance = message(name), random.Random(name)
    for version in range(cls.schema.first_version, cls.schema.last_version + 1):
        for size in (0, 1, 5, 40):
            try:
                cls.decode(chance.randbytes(size), version)
            except ProtocolError as error:
                assert 0 <= error.position <= size
