"""What a declaration is made of.

A format is a class whose body is its layout: fields in wire order, nested structs below the field that uses them.

    class ListGroupsRequest(Request, api=16, versions="0-5", flexible="3+"):
        states_filter: Array[String] = since("4+", default=EMPTY)  # empty: groups in any state

- `| None` says that null is allowed wherever the field exists; `nullable="7+"` where that begins later.
- `= value` gives a default; a field without one must be given. A field that a version lacks reads as its default.
- Declaring costs next to nothing: nothing is parsed or generated before the first encode, decode or construction.

Not here: resolving a declaration for a version (plan.py), turning it into code (compile.py).
"""

from __future__ import annotations

from struct import error as LayoutError

from minibroker.errors import InvalidLength, UnsupportedVersion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, ClassVar, Self, dataclass_transform
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


class Struct(metaclass=StructMeta):
    """Fields in wire order; alone it has no versions: those are its message's."""

    unknown_tags: ClassVar[dict[int, bytes] | None] = None  # tagged fields newer than we are, kept for the way back

    def __init__(self, **values: Any) -> None:
        # The real constructor is written at the first use of the class: importing a module generates nothing.
        from minibroker.schema.compile import constructor

        cls = type(self)
        cls.__init__ = constructor(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if not (isinstance(other, Struct) and type(other).__qualname__ == type(self).__qualname__):
            return NotImplemented
        return self.unknown_tags == other.unknown_tags and all(
            getattr(self, field, None) == getattr(other, field, None) for field in self.__fields_all__()
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = (f"{field}={getattr(self, field, None)!r}" for field in self.__fields_all__())
        return f"{type(self).__name__}({', '.join(shown)})"

    @classmethod
    def __fields_all__(cls) -> dict[str, str]:
        # A shared default is an instance of a subclass without fields of its own.
        return cls.__fields__ or cls.__mro__[1].__fields__  # type: ignore[attr-defined]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain dicts, lists, numbers, strings and bytes."""
        return {field: _plain(getattr(self, field, None)) for field in self.__fields_all__()}


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return value.to_dict()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return bytes(value) if isinstance(value, memoryview) else value


class Schema:
    """What is true of a whole message: its versions, and what its kind (request, record key, ...) adds."""

    __slots__ = ("decoders", "encoders", "first_flexible", "first_version", "last_version", "pieces", "settings")

    def __init__(self, versions: str, flexible: str | None, settings: dict[str, Any]):
        self.first_version, self.last_version = parse_range(versions)
        self.first_flexible = parse_range(flexible)[0] if flexible else VERSION_MAX
        self.settings = settings  # api number, header quirks, unstable versions, ...
        self.decoders: dict[int, Callable[..., Any]] = {}  # by version, as far as generated
        self.encoders: dict[int, Callable[..., Any]] = {}
        self.pieces: dict[tuple[bool, int], Callable[..., Any]] = {}  # those in pieces: whether it encodes, and version

    def is_flexible(self, version: int) -> bool:
        """Flexible versions have varint lengths and a tagged section behind every struct (KIP-482)."""
        return version >= self.first_flexible

    def check(self, cls: type, version: int) -> int:
        """Return the version if the message has it."""
        if not self.first_version <= version <= self.last_version:
            known = f"{self.first_version}-{self.last_version}"
            raise UnsupportedVersion(f"version {version} is not one of {known}", 0, cls.__name__)
        return version


# What generated code may raise about bytes, and about values: it does not look closely.
READ_FAILURES = (LayoutError, IndexError, ValueError)
WRITE_FAILURES = (LayoutError, AttributeError, TypeError, ValueError)


class Message(Struct):
    """A struct that stands for itself: it has versions, and is what gets encoded and decoded."""

    schema: ClassVar[Schema]
    elements_max: ClassVar[int] = 0  # of what comes from strangers, of all arrays together; 0: any number

    def __init_subclass__(cls, versions: str = "", flexible: str | None = None, **settings: Any) -> None:
        super().__init_subclass__()
        if versions:
            cls.schema = Schema(versions, flexible, settings)

    @classmethod
    def decode(cls, buffer: bytes | bytearray | memoryview, version: int) -> Self:
        """Read one message that fills the buffer; `Records` fields are views of the buffer, not copies."""
        message, end = cls.decode_from(buffer, 0, version)
        if end != len(buffer):
            from minibroker.errors import TrailingBytes

            raise TrailingBytes(f"{len(buffer) - end} bytes follow the message", end, cls.__name__)
        return message

    @classmethod
    def decode_from(cls, buffer: bytes | bytearray | memoryview, position: int, version: int) -> tuple[Self, int]:
        """Read one message from `position` on; return it and the position behind it."""
        read = cls.schema.decoders.get(version) or cls._make_decoder(version)
        try:
            message, end = read(buffer, position, len(buffer))
            if end <= len(buffer):
                return message, end
        except READ_FAILURES:
            pass  # The fast path says that something is wrong, the slow one says what and where.
        from minibroker.schema.walk import diagnose

        raise diagnose(cls, buffer, position, version)

    def encode(self, version: int) -> bytes:
        """Return the bytes of the message in this version; fields that the version lacks are left out.

        Kafka: refuses if one of these has another value than its default, unless it is marked as ignorable. Here a
        broker's answer to an old client must never fail for what the client cannot see.
        """
        return b"".join(self._parts(version))

    def encode_chunks(self, version: int) -> list[bytes | memoryview]:
        """Return the bytes in pieces, with every `Records` value as it was given: it is never joined or copied."""
        return _joined(self._parts(version))

    def _parts(self, version: int) -> list[Any]:
        parts: list[Any] = []
        write = self.schema.encoders.get(version) or self._make_encoder(version)
        try:
            write(self, parts)
        except WRITE_FAILURES as failure:
            from minibroker.schema.walk import diagnose_value

            raise diagnose_value(self, version, failure) from failure
        return parts

    @classmethod
    def decode_in_pieces(
        cls, buffer: bytes | bytearray | memoryview, position: int, version: int
    ) -> Generator[int, None, tuple[Self, int]]:
        """Do what `decode_from` does, and yield now and then how many elements have been read since."""
        try:
            message, end = yield from cls._in_pieces(False, version)(buffer, position, len(buffer))
            if end <= len(buffer):
                return message, end
        except READ_FAILURES:
            pass
        from minibroker.schema.walk import diagnose

        raise diagnose(cls, buffer, position, version)

    def encode_in_pieces(self, version: int, bytes_max: int) -> Generator[int, None, list[bytes | memoryview]]:
        """Do what `encode_chunks` does, and yield now and then how many elements have been written since."""
        parts: list[Any] = []
        chunks: list[bytes | memoryview] = []
        size_bytes = 0
        try:
            for count in self._in_pieces(True, version)(self, parts):
                chunks += _joined(parts)
                size_bytes += sum(map(len, parts))
                if size_bytes > bytes_max:
                    raise InvalidLength(f"more than {bytes_max} bytes are not sent", 0, type(self).__name__)
                parts.clear()
                yield count
        except WRITE_FAILURES as failure:
            from minibroker.schema.walk import diagnose_value

            raise diagnose_value(self, version, failure) from failure
        chunks += _joined(parts)
        return chunks

    @classmethod
    def _in_pieces(cls, encodes: bool, version: int) -> Callable[..., Any]:
        made = cls.schema.pieces.get((encodes, version))
        if made is None:
            from minibroker.schema.compile import decoder, encoder

            make = encoder if encodes else decoder
            made = cls.schema.pieces[encodes, version] = make(cls, cls.schema.check(cls, version), in_pieces=True)
        return made

    @classmethod
    def _make_decoder(cls, version: int) -> Callable[..., Any]:
        from minibroker.schema.compile import decoder

        read = cls.schema.decoders[version] = decoder(cls, cls.schema.check(cls, version))
        return read

    @classmethod
    def _make_encoder(cls, version: int) -> Callable[..., Any]:
        from minibroker.schema.compile import encoder

        write = cls.schema.encoders[version] = encoder(cls, cls.schema.check(cls, version))
        return write


def _joined(parts: list[Any]) -> list[bytes | memoryview]:
    """Return few long pieces for many short ones."""
    if max(map(len, parts), default=0) < CHUNK_BYTES_MIN:
        return [b"".join(parts)]  # nearly all messages
    chunks: list[bytes | memoryview] = []
    small: list[bytes] = []
    for part in parts:
        if type(part) is bytes and len(part) < CHUNK_BYTES_MIN:
            small.append(part)
        else:
            if small:
                chunks.append(b"".join(small))
                small = []
            chunks.append(part)
    if small:
        chunks.append(b"".join(small))
    return chunks


CHUNK_BYTES_MIN = 4096  # from here on a system call with one more piece is cheaper than the copy
