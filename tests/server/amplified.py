"""Requests with the largest number of the smallest elements, made from the declarations: a new API is in it by itself.

For each array of a request, however deep, three bodies fill a number of bytes with elements:

    same       every one the same, as short as its type allows
    distinct   names and numbers that differ
    known      names of topics that are there, one letter each

Arrays within such an element are empty in the first, and hold one element in the others.
Besides `long_strings`: each string as long as the bytes allow; and `worst_numbers`: each number the lowest and highest.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from minibroker.broker.apis import SERVED
from minibroker.protocol.registry import request_class
from minibroker.schema.plan import FIXED, SIZED, VARINTS, Field, Plan, Type, message_plan
from minibroker.schema.varint import uvarint

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
KINDS = ("same", "distinct", "known")
STRING_BYTES_MAX = 32767

Path = tuple[str, ...]  # names of fields from the message down to an array or string


def versions_of(api: int) -> list[int]:
    """Return the versions of an API whose layouts are worth a request: oldest, newest, and the first flexible one."""
    first, last, _ = SERVED[api]
    flexible = request_class(api).schema.first_flexible
    return sorted({first, last, min(max(flexible, first), last), min(max(flexible - 1, first), last)})


def arrays(plan: Plan, above: Path = ()) -> Iterator[Path]:
    """Yield the way to each array."""
    for field in plan.fields:
        inner = field.type.element or field.type
        if field.type.element:
            yield (*above, field.name)
        if inner.plan:
            yield from arrays(inner.plan, (*above, field.name))


def strings(plan: Plan, above: Path = ()) -> Iterator[Path]:
    """Yield the way to each string and to each value of bytes."""
    for field in plan.fields:
        inner = field.type.element or field.type
        if inner.name in SIZED:
            yield (*above, field.name)
        if inner.plan:
            yield from strings(inner.plan, (*above, field.name))


class Shape:
    """How the values of a request are filled in."""

    def __init__(self, flexible: bool, *, number: int = 0, kind: str = "same"):
        self.flexible = flexible
        self.number = number  # what numbers are
        self.kind = kind

    # Values as small as they can be

    def length(self, type: Type, count: int) -> bytes:
        if self.flexible and type.name != "OldString":
            return uvarint(count + 1)
        return struct.pack(">h" if type.name in ("String", "OldString") else ">i", count)

    def text(self, type: Type, data: bytes) -> bytes:
        return self.length(type, len(data)) + data

    def value(self, type: Type, index: int, *, deep: bool) -> bytes:
        """Return one value; deep: arrays have an element."""
        if type.name in FIXED:
            return self.fixed(type.name, index)
        if type.name in VARINTS:
            return b"\0"
        if type.name in SIZED:
            return self.text(type, self.name(index) if type.name == "String" else b"")
        if type.plan:
            if type.nullable:
                return b"\xff" if self.kind == "same" else b"\1" + self.struct(type.plan, index, deep=deep)
            return self.struct(type.plan, index, deep=deep)
        assert type.element
        return self.length(type, deep) + (self.value(type.element, index, deep=deep) if deep else b"")

    def fixed(self, name: str, index: int) -> bytes:
        format, size = FIXED[name]
        if name == "Uuid":
            return struct.pack(">QQ", 0, index) if self.kind == "distinct" else bytes(16)
        if name in ("Bool", "Float64"):
            return bytes(size)
        number = index if self.kind == "distinct" and self.number == 0 and name == "Int32" else self.number
        low, high = (
            (-(1 << (8 * size - 1)), (1 << (8 * size - 1)) - 1) if format.islower() else (0, (1 << 8 * size) - 1)
        )
        return struct.pack(">" + format, min(max(number, low), high))

    def name(self, index: int) -> bytes:
        if self.kind == "same":
            return b""
        if self.kind == "known":
            return LETTERS[index % len(LETTERS)].encode()
        made = ""
        while True:
            index, place = divmod(index, len(LETTERS))
            made += LETTERS[place]
            if not index:
                return made.encode()

    def struct(self, plan: Plan, index: int, *, deep: bool) -> bytes:
        return b"".join(self.value(field.type, index, deep=deep) for field in plan.fields) + self.tags(plan)

    def tags(self, plan: Plan) -> bytes:
        return b"\0" if plan.flexible else b""

    # A whole request, of which one value is large

    def around(self, plan: Plan, path: Path, fill: Callable[[Field], bytes]) -> bytes:
        """Return a struct in which the value at the end of a way is made by `fill`; on the way arrays have one."""
        parts = []
        for field in plan.fields:
            if field.name == "acks":
                parts.append(struct.pack(">h", -1))  # with 0 there would be no answer
            elif field.name != path[0]:
                parts.append(self.value(field.type, 0, deep=False))
            elif len(path) == 1:
                parts.append(fill(field))
            elif field.type.element:
                assert field.type.element.plan
                parts.append(self.length(field.type, 1) + self.around(field.type.element.plan, path[1:], fill))
            else:
                assert field.type.plan
                mark = b"\1" if field.type.nullable else b""
                parts.append(mark + self.around(field.type.plan, path[1:], fill))
        return b"".join(parts) + self.tags(plan)


def body(api: int, version: int, path: Path, kind: str, size_bytes: int) -> bytes:
    """Return a request without its header, some `size_bytes` long, whose array at the end of `path` has what fits."""
    plan = message_plan(request_class(api), version)
    shape = Shape(plan.flexible, kind=kind)

    def fill(field: Field) -> bytes:
        element = field.type.element
        assert element
        deep = kind != "same"
        first = shape.value(element, 0, deep=deep)
        if kind == "distinct":
            made, size, index = [], 0, 0
            while size < size_bytes:
                made.append(shape.value(element, index, deep=deep))
                size += len(made[-1])
                index += 1
        elif kind == "known":
            each = [shape.value(element, index, deep=deep) for index in range(len(LETTERS))]
            made = each * max(size_bytes // sum(map(len, each)), 1)
        else:
            made = [first] * (size_bytes // max(len(first), 1))
        return shape.length(field.type, len(made)) + b"".join(made)

    return shape.around(plan, path, fill)


def long_strings(api: int, version: int, size_bytes: int) -> Iterator[tuple[Path, bytes]]:
    """Yield requests each of which has one string as long as its type and the bytes allow."""
    plan = message_plan(request_class(api), version)
    shape = Shape(plan.flexible)
    for path in strings(plan):

        def fill(field: Field) -> bytes:
            inner = field.type.element or field.type
            is_text = inner.name.endswith("String")
            made = shape.text(inner, b"x" * (min(size_bytes, STRING_BYTES_MAX) if is_text else size_bytes))
            return (shape.length(field.type, 1) if field.type.element else b"") + made

        yield path, shape.around(plan, path, fill)


def worst_numbers(api: int, version: int) -> Iterator[bytes]:
    """Yield requests all of whose numbers are the lowest, the highest, or -1, and whose arrays have one element."""
    plan = message_plan(request_class(api), version)
    for number in (-(1 << 63), (1 << 63) - 1, -1):
        shape = Shape(plan.flexible, number=number, kind="known")
        yield shape.struct(plan, 0, deep=True)


def header(api: int, version: int) -> bytes:
    start = struct.pack(">hhih", api, version, 1, 1) + b"x"
    return start + (b"\0" if request_class(api).header_version(version) == 2 else b"")


def frame(api: int, version: int, made: bytes) -> bytes:
    head = header(api, version)
    return struct.pack(">i", len(head) + len(made)) + head + made
