"""What a declaration is made of.

A format is a class whose body is its layout: fields in wire order, nested structs below the field that uses them.

    class ListGroupsRequest(Request, api=16, versions="0-5", flexible="3+"):
        states_filter: Array[String] = since("4+", default=EMPTY)  # empty: groups in any state

- `| None` says that null is allowed wherever the field exists; `nullable="7+"` where that begins later.
- `= value` gives a default; a field without one must be given. A field that a version lacks reads as its default.
- Declaring costs next to nothing: nothing is parsed or generated before the first encode, decode or construction.

Not here: structs and messages themselves (message.py), resolving a declaration for a version (plan.py), turning it into
code (compile.py).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, dataclass_transform
else:

    def dataclass_transform(**_settings):
        return lambda cls: cls


# The wire types. To Python and to type checkers they are the plain types on the right; the schema reads their names
# from the annotations, so `Int16` and `Int64` differ on the wire and nowhere else.
Bool = bool
Int8 = int
Int16 = int
Int32 = int
Int64 = int
UInt16 = int
UInt32 = int
Float64 = float
Varint = int  # zigzag, at most 32 bits: record fields of format v2
Varlong = int  # zigzag, at most 64 bits
SizeVarint = int  # zigzag: how many bytes of the struct follow this field; computed when encoding
String = str
OldString = str  # keeps its int16 length in flexible versions: the client id of request headers
Bytes = bytes
VarintBytes = bytes  # bytes behind a zigzag length, -1 is null: keys and values of format v2
VarintString = str
Uuid = bytes  # 16 raw bytes; Kafka shows them in URL-safe base64
Array = list
VarintArray = list
Records = bytes | memoryview  # whole batches, handed on as a view of the buffer they arrived in

NO_ID = bytes(16)  # what Kafka sends where there is no id


class _Empty(list):  # type: ignore[type-arg]
    """The empty default of array fields: one for all, so it refuses to change."""

    def _refuse(self, *_: object, **__: object) -> Any:
        raise TypeError("the shared empty default of an array field cannot change: assign a new list")

    append = extend = insert = __iadd__ = __setitem__ = __imul__ = _refuse


EMPTY: Any = _Empty()


class FieldSpec:
    """What `since` leaves in a class body until the class is made."""

    __slots__ = ("default", "has_default", "nullable", "tag", "versions")

    def __init__(self, versions: str, default: object, nullable: str | None, tag: int | None, has_default: bool):
        self.versions = versions
        self.default = default
        self.has_default = has_default
        self.nullable = nullable
        self.tag = tag


_REQUIRED = object()


class _DefaultStruct:
    """Marks a struct field whose default is the struct with all its own defaults."""


DEFAULTS: Any = _DefaultStruct()


def since(versions: str, *, default: Any = _REQUIRED, nullable: str | None = None, tag: int | None = None) -> Any:
    """Declare in which versions a field exists ("3+", "0-12", "5"), and what differs from the ordinary.

    nullable: the versions that allow null, where those are fewer than the field's own.
    tag: the field travels in the tagged section under this number, in all versions that have it.
    """
    return FieldSpec(versions, default, nullable, tag, default is not _REQUIRED)


def parse_range(text: str) -> tuple[int, int]:
    """Return first and last version of "3+", "0-12" or "5"; an open end is a version no message reaches."""
    first, dash, last = text.rstrip("+").partition("-")
    return int(first), int(last) if dash else (VERSION_MAX if text.endswith("+") else int(first))


VERSION_MAX = 0x7FFF


@dataclass_transform(kw_only_default=True, field_specifiers=(since,))
class StructMeta(type):
    """Collects the fields of a class body: the one metaclass of the house."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **settings: Any) -> StructMeta:
        # A class without fields would inherit its base's annotations: only its own namespace counts.
        declared = {
            field: text
            for field, text in namespace.get("__annotations__", {}).items()
            if not text.startswith("ClassVar")
        }
        specs: dict[str, FieldSpec] = {}
        for field in declared:
            if field in namespace:
                spec = namespace[field]
                if type(spec) is not FieldSpec:
                    spec = FieldSpec("0+", spec, None, None, True)
                specs[field] = spec
                if spec.has_default and spec.default is not DEFAULTS:
                    namespace[field] = spec.default
                else:
                    del namespace[field]
        namespace["__fields__"] = declared
        namespace["__specs__"] = specs
        made = super().__new__(cls, name, bases, namespace, **settings)
        for field, spec in specs.items():
            if spec.default is DEFAULTS:
                # Only now: the struct stands below the field, so it is known when the body has been read.
                spec.default = default_struct(find_struct(made, declared[field].removesuffix(" | None")))
                setattr(made, field, spec.default)
        return made

    if TYPE_CHECKING:
        __fields__: dict[str, str]  # field -> annotation, in wire order
        __specs__: dict[str, FieldSpec]


def find_struct(scope: StructMeta, name: str) -> StructMeta:
    """Find a struct by name as Python would: in the class's own body, then in its module."""
    found = scope.__dict__.get(name)
    if type(found) is not StructMeta:
        import sys

        found = getattr(sys.modules[scope.__module__], name, None)
    if type(found) is not StructMeta:
        raise TypeError(f"{scope.__qualname__}: no struct named {name!r}")
    return found


def default_struct(cls: StructMeta) -> Any:
    """Return an instance of `cls` that holds every default and refuses to change, as all share it."""

    def refuse(self: object, name: str, value: object) -> None:
        raise TypeError(f"the shared default {cls.__name__} cannot change: assign a new {cls.__name__}")

    frozen: Any = type(cls)(cls.__name__, (cls,), {"__setattr__": refuse, "__qualname__": cls.__qualname__})
    value: Any = object.__new__(frozen)
    for field, annotation in cls.__fields__.items():
        if field not in cls.__specs__:
            value.__dict__[field] = zero(cls, annotation)
    return value


def zero(scope: StructMeta, annotation: str) -> Any:
    """Return what Kafka takes for a field of this type where the schema names no default."""
    if annotation.startswith(("Array[", "VarintArray[")):
        return EMPTY
    plain = annotation.removesuffix(" | None")
    if plain in _ZEROS:
        return _ZEROS[plain]
    return default_struct(find_struct(scope, plain))


_NUMBERS = ("Int8", "Int16", "Int32", "Int64", "UInt16", "UInt32", "Varint", "Varlong", "SizeVarint")
_ZEROS: dict[str, Any] = dict.fromkeys(_NUMBERS, 0)
_ZEROS |= {"Bool": False, "Float64": 0.0, "Uuid": NO_ID}
_ZEROS |= dict.fromkeys(("String", "OldString", "VarintString"), "")
_ZEROS |= dict.fromkeys(("Bytes", "VarintBytes", "Records"), b"")
