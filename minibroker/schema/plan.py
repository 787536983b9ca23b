"""A declaration as one version sees it: fields resolved to types, in wire order, tagged ones apart.

The one reading of declarations: compile.py turns a plan into code, walk.py follows it byte by byte, so that the
codecs and the explanation of bytes cannot disagree about the layout.
"""

from __future__ import annotations

from minibroker.schema.types import StructMeta, find_struct, parse_range, zero

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Types of one fixed width: struct format character and bytes.
FIXED = {
    "Bool": ("?", 1),
    "Int8": ("b", 1),
    "Int16": ("h", 2),
    "Int32": ("i", 4),
    "Int64": ("q", 8),
    "UInt16": ("H", 2),
    "UInt32": ("I", 4),
    "Float64": ("d", 8),
    "Uuid": ("16s", 16),
}
VARINTS = {"Varint": 5, "Varlong": 10, "SizeVarint": 5}  # zigzag; most bytes it may take
SIZED = {"String", "OldString", "Bytes", "Records", "VarintBytes", "VarintString"}  # a length, then so many bytes


class Type:
    """What stands at one place of the wire."""

    __slots__ = ("element", "name", "null_marker", "nullable", "plan")

    def __init__(self, name: str, nullable: bool, element: Type | None = None, plan: Plan | None = None):
        self.name = name  # a wire type, "Array", "VarintArray" or "Struct"
        self.nullable = nullable
        self.null_marker = -1  # of a nullable struct: the byte that stands for null, 1 is there
        self.element = element  # of arrays
        self.plan = plan  # of structs

    def __str__(self) -> str:
        if self.element:
            shown = f"{self.name}[{self.element}]"
        else:
            shown = self.plan.cls.__name__ if self.plan else self.name
        return f"{shown} | None" if self.nullable else shown


class Field:
    """One field as a version has it."""

    __slots__ = ("default", "name", "tag", "type")

    def __init__(self, name: str, type: Type, tag: int | None, default: Any):
        self.name = name
        self.type = type
        self.tag = tag
        self.default = default


class Plan:
    """One struct in one version."""

    __slots__ = ("cls", "fields", "flexible", "tagged")

    def __init__(self, cls: StructMeta, flexible: bool, fields: list[Field]):
        self.cls = cls
        self.flexible = flexible
        self.fields = [field for field in fields if field.tag is None]
        self.tagged = sorted((field for field in fields if field.tag is not None), key=lambda field: field.tag or 0)


def plan(cls: StructMeta, version: int, flexible: bool) -> Plan:
    """Resolve a struct for one version."""
    fields = []
    for name, annotation in cls.__fields__.items():
        spec = cls.__specs__.get(name)
        if spec:
            first, last = parse_range(spec.versions)
            if not first <= version <= last:
                continue
        nullable = annotation.endswith(" | None")
        if nullable and spec and spec.nullable:
            first, last = parse_range(spec.nullable)
            nullable = first <= version <= last
        default = spec.default if spec and spec.has_default else zero(cls, annotation)
        wire_type = _resolve(cls, annotation.removesuffix(" | None"), nullable, version, flexible)
        if spec and spec.tag is not None:
            wire_type.null_marker = 0  # Kafka writes an int8 in front of a struct, but an unsigned varint in a tag
        fields.append(Field(name, wire_type, spec.tag if spec else None, default))
    return Plan(cls, flexible, fields)


def message_plan(cls: Any, version: int) -> Plan:
    """Resolve a message for one of its versions."""
    return plan(cls, version, cls.schema.is_flexible(version))


def _resolve(scope: StructMeta, text: str, nullable: bool, version: int, flexible: bool) -> Type:
    for array in ("Array", "VarintArray"):
        if text.startswith(array + "["):
            return Type(array, nullable, element=_resolve(scope, text[len(array) + 1 : -1], False, version, flexible))
    if text in FIXED or text in SIZED or text in VARINTS:
        return Type(text, nullable)
    return Type("Struct", nullable, plan=plan(find_struct(scope, text), version, flexible))
