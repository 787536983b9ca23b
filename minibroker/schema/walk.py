"""The slow reading of bytes: every field with its place, or the exact error.

Follows the same plans as the generated codecs, one field at a time. Two users: people who want to see what bytes mean
(explain), and codecs that failed and want to say where. The leaves that `walk` returns lie side by side and cover all
that was read, so a hex dump can be cut along them.
"""

from __future__ import annotations

from struct import unpack_from

from minibroker.errors import (
    EncodeError,
    InvalidLength,
    InvalidTag,
    InvalidVarint,
    NullForbidden,
    ProtocolError,
    Truncated,
    UnsupportedVersion,
)
from minibroker.schema.plan import FIXED, SIZED, VARINTS, Plan, Type, message_plan
from minibroker.schema.varint import STRING_BYTES_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from minibroker.schema.types import StructMeta


ELEMENTS_MAX = 2_000  # so many are looked at for an error: this is slow, and a stranger may ask for it


class Leaf:
    """One field, or one count in front of an array, as it stands in the buffer."""

    __slots__ = ("end", "name", "owner", "path", "start", "type", "value")

    def __init__(self, path: str, type: str, value: Any, start: int, end: int, owner: StructMeta, name: str):
        self.path = path  # "ProduceRequest.topic_data[0].name"
        self.type = type
        self.value = value
        self.start = start
        self.end = end  # exclusive
        self.owner = owner  # with `name`: whose comment explains it
        self.name = name


def walk(cls: Any, buffer: Any, version: int, position: int = 0) -> tuple[list[Leaf], int]:
    """Return every field of a message and the position behind it."""
    cls.schema.check(cls, version)
    walker = Walker(buffer, [])
    end = walker.struct(message_plan(cls, version), position, cls.__name__)
    return walker.leaves or [], end


def diagnose(cls: Any, buffer: Any, position: int, version: int) -> ProtocolError:
    """Return the error for bytes that the generated decoder could not read; what lies far behind is told roughly."""
    try:
        cls.schema.check(cls, version)
        Walker(buffer, None).struct(message_plan(cls, version), position, cls.__name__)
    except ProtocolError as error:
        return error
    raise AssertionError(f"{cls.__name__} v{version}: the decoder failed on bytes that are in order")


class Walker:
    """Reads along plans; `leaves` collects what it meets, or is None where only errors matter."""

    def __init__(self, buffer: Any, leaves: list[Leaf] | None):
        self.buffer = buffer
        self.end = len(buffer)
        self.leaves = leaves
        self.owner: tuple[Any, str] = (None, "")  # struct and field being read
        self.elements_left = ELEMENTS_MAX

    def leaf(self, path: str, type: object, value: Any, start: int, end: int) -> None:
        if self.leaves is not None:
            self.leaves.append(Leaf(path, str(type), value, start, end, *self.owner))

    def struct(self, plan: Plan, position: int, path: str) -> int:
        """Read a struct, return the position behind it."""
        stop, size_path = None, ""
        for field in plan.fields:
            self.owner = (plan.cls, field.name)
            position = self.value(field.type, position, f"{path}.{field.name}", plan.flexible)
            if field.type.name == "SizeVarint":
                stop, size_path = position + self.size, f"{path}.{field.name}"
        if plan.flexible:
            position = self.tags(plan, position, path)
        if stop is not None and position != stop:
            raise InvalidLength(f"says that the struct ends at byte {stop}", position, size_path)
        return position

    def value(self, type: Type, position: int, path: str, flexible: bool) -> int:
        """Read one value, return the position behind it."""
        start = position
        if type.name in FIXED:
            format, size = FIXED[type.name]
            self.need(size, position, path)
            (value,) = unpack_from(">" + format, self.buffer, position)
            position += size
        elif type.name in VARINTS:
            value, position = self.uvarint(position, path, VARINTS[type.name])
            value = self.size = (value >> 1) ^ -(value & 1)
        elif type.name in SIZED:
            return self.sized(type, position, path, flexible)
        elif type.name == "Struct":
            return self.nested(type, position, path)
        else:
            return self.array(type, position, path, flexible)
        self.leaf(path, type, value, start, position)
        return position

    def sized(self, type: Type, position: int, path: str, flexible: bool) -> int:
        start = position
        size, position = self.length(type, position, path, flexible)
        if size >= 0:
            self.need(size, position, path)
        value = self.buffer[position : position + size] if size >= 0 else None
        if type.name in ("String", "OldString"):  # names, mostly: few want to see their lengths
            text = None if value is None else str(value, "utf-8", "replace")
            self.leaf(path, type, text, start, position + max(size, 0))
            return position + max(size, 0)
        # Two leaves: of what an application sent the length is a field of its own, and what lies in Records has formats
        # of its own.
        self.leaf(f"{path}.size", f"size of {type.name}", size, start, position)
        if value is not None and type.name != "Records":
            value = str(value, "utf-8", "replace") if type.name == "VarintString" else bytes(value)
        self.leaf(path, type, value, position, position + max(size, 0))
        return position + max(size, 0)

    def nested(self, type: Type, position: int, path: str) -> int:
        assert type.plan
        if type.nullable:
            self.need(1, position, path)
            present = type.null_marker < self.buffer[position] < 0x80
            self.leaf(path, type, "present" if present else None, position, position + 1)
            position += 1
            if not present:
                return position
        return self.struct(type.plan, position, path)

    def array(self, type: Type, position: int, path: str, flexible: bool) -> int:
        assert type.element
        start, owner = position, self.owner
        count, position = self.length(type, position, path, flexible)
        self.leaf(path, type, None if count < 0 else f"{count} element{'s' * (count != 1)}", start, position)
        if count > self.end - position:
            left = self.end - position
            raise InvalidLength(f"{count} elements cannot fit into the {left} bytes that are left", start, path)
        for index in range(count):
            self.owner = owner
            self.elements_left -= 1
            if self.elements_left < 0 and self.leaves is None:
                raise ProtocolError("is out of order here or behind", position, f"{path}[{index}]")
            if type.element.plan:
                position = self.struct(type.element.plan, position, f"{path}[{index}]")
            else:
                position = self.value(type.element, position, f"{path}[{index}]", flexible)
        return position

    def tags(self, plan: Plan, position: int, path: str) -> int:
        self.owner = (None, "")
        start = position
        count, position = self.uvarint(position, path + ".tags")
        self.leaf(path + ".tags", "tagged fields", count, start, position)
        known = {field.tag: field for field in plan.tagged}
        seen: set[int] = set()
        for _ in range(count):
            start, self.owner = position, (None, "")
            tag, position = self.uvarint(position, path + ".tags")
            size, position = self.uvarint(position, path + ".tags")
            field = known.get(tag)
            here = f"{path}.{field.name}" if field else f"{path}.unknown_tags[{tag}]"
            if tag in seen:
                raise InvalidTag(f"tag {tag} comes twice", start, here)
            seen.add(tag)
            self.leaf(here, "tag, size", f"{tag}, {size}", start, position)
            self.need(size, position, here)
            stop = position + size
            if field:
                self.owner = (plan.cls, field.name)
                position = self.value(field.type, position, here, plan.flexible)
                if position != stop:
                    raise InvalidTag(
                        f"tag {tag} says {size} bytes, its value took {size + position - stop}", start, here
                    )
            else:
                self.leaf(here, "Bytes", bytes(self.buffer[position:stop]), position, stop)
                position = stop
        return position

    def length(self, type: Type, position: int, path: str, flexible: bool) -> tuple[int, int]:
        """Read a length or count (-1: null) and the position behind it."""
        start = position
        if type.name.startswith("Varint"):
            size, position = self.uvarint(position, path)
            size = (size >> 1) ^ -(size & 1)
        elif flexible and type.name != "OldString":
            size, position = self.uvarint(position, path)
            size -= 1
            if type.name == "String" and size > STRING_BYTES_MAX:
                raise InvalidLength(f"a string of {size} bytes; {STRING_BYTES_MAX} is the most", start, path)
        else:
            format, width = ("h", 2) if type.name in ("String", "OldString") else ("i", 4)
            self.need(width, position, path)
            (size,) = unpack_from(">" + format, self.buffer, position)
            position += width
        if size < 0 and not type.nullable:
            raise NullForbidden(f"length {size} means null, which this version does not allow", start, path)
        return size, position

    def uvarint(self, position: int, path: str, bytes_max: int = 5) -> tuple[int, int]:
        start, value = position, 0
        for index in range(bytes_max):
            self.need(1, position, path)
            byte = self.buffer[position]
            position += 1
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                if value >> (32 if bytes_max == 5 else 64):
                    break
                return value, position
        raise InvalidVarint(f"is longer than {bytes_max} bytes or too large", start, path)

    def need(self, size: int, position: int, path: str) -> None:
        if size > self.end - position:
            raise Truncated(f"needs {size} bytes, {max(0, self.end - position)} are left", position, path)


RANGES = {
    "Int8": (-(2**7), 2**7 - 1),
    "Int16": (-(2**15), 2**15 - 1),
    "Int32": (-(2**31), 2**31 - 1),
    "Int64": (-(2**63), 2**63 - 1),
    "UInt16": (0, 2**16 - 1),
    "UInt32": (0, 2**32 - 1),
    "Varint": (-(2**31), 2**31 - 1),
    "Varlong": (-(2**63), 2**63 - 1),
}


def diagnose_value(message: Any, version: int, failure: Exception) -> Exception:
    """Return the error for a message that the generated encoder could not write."""
    cls = type(message)
    try:
        cls.schema.check(cls, version)
    except UnsupportedVersion as error:
        return error
    found = _misfit(message_plan(cls, version), message, cls.__name__)
    return EncodeError(*reversed(found)) if found else EncodeError(str(failure), cls.__name__)


def _misfit(plan: Plan, value: Any, path: str) -> tuple[str, str] | None:
    """Return path and reason of the first value that does not fit its type."""
    for field in [*plan.fields, *plan.tagged]:
        if field.type.name == "SizeVarint":
            continue
        try:
            given = getattr(value, field.name)
        except AttributeError:
            return f"{path}.{field.name}", "is missing"
        found = _misfit_value(field.type, given, f"{path}.{field.name}")
        if found:
            return found
    return None


def _misfit_value(type: Type, value: Any, path: str) -> tuple[str, str] | None:
    if value is None:
        return None if type.nullable else (path, "null is not allowed here")
    if type.plan:
        if type.plan.cls not in value.__class__.__mro__:
            return path, f"{value!r} is not a {type.plan.cls.__name__}"
        return _misfit(type.plan, value, path)
    if type.element:
        if not isinstance(value, (list, tuple)):
            return path, f"{value!r} is not a list"
        items = (_misfit_value(type.element, item, f"{path}[{index}]") for index, item in enumerate(value))
        return next((found for found in items if found), None)
    return None if _fits(type.name, value) else (path, f"{_short(value)} is not a valid {type.name}")


def _fits(name: str, value: Any) -> bool:
    if name in RANGES:
        low, high = RANGES[name]
        return isinstance(value, int) and low <= value <= high
    if name.endswith("String"):
        if not isinstance(value, str) or any("\ud800" <= letter <= "\udfff" for letter in value):
            return False
        return name == "VarintString" or len(value.encode()) <= STRING_BYTES_MAX
    if name == "Float64":
        return isinstance(value, (int, float))
    if name == "Uuid":
        return isinstance(value, (bytes, bytearray)) and len(value) == 16
    return name == "Bool" or isinstance(value, (bytes, bytearray, memoryview))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."
