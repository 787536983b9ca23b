"""Structs and messages: what a declaration is when it has values. Codecs are kept here, and used in coding.py."""

from __future__ import annotations

from minibroker.errors import InvalidLength, UnsupportedVersion
from minibroker.schema import coding
from minibroker.schema.types import VERSION_MAX, StructMeta, parse_range

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, ClassVar, Self


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
        return coding.decode_from(cls, buffer, position, version)

    def encode(self, version: int) -> bytes:
        """Return the bytes of the message in this version; fields that the version lacks are left out.

        Kafka: refuses if one of these has another value than its default, unless it is marked as ignorable. Here a
        broker's answer to an old client must never fail for what the client cannot see.
        """
        return b"".join(coding.encode_parts(self, version))

    def encode_chunks(self, version: int) -> list[bytes | memoryview]:
        """Return the bytes in pieces, with every `Records` value as it was given: it is never joined or copied."""
        return coding.encode_chunks(self, version)

    @classmethod
    def decode_in_pieces(
        cls, buffer: bytes | bytearray | memoryview, position: int, version: int
    ) -> Generator[int, None, tuple[Self, int]]:
        """Do what `decode_from` does, and yield now and then how many elements have been read since."""
        try:
            message, end = yield from cls._in_pieces(False, version)(buffer, position, len(buffer))
            if end <= len(buffer):
                return message, end
        except coding.READ_FAILURES:
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
                chunks += coding.joined(parts)
                size_bytes += sum(map(len, parts))
                if size_bytes > bytes_max:
                    raise InvalidLength(f"more than {bytes_max} bytes are not sent", 0, type(self).__name__)
                parts.clear()
                yield count
        except coding.WRITE_FAILURES as failure:
            from minibroker.schema.walk import diagnose_value

            raise diagnose_value(self, version, failure) from failure
        chunks += coding.joined(parts)
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
