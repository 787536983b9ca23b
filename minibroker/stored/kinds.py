"""How stored records say what they are: a few bytes in front of the fields.

coordinator key     type int16 (which record this is), then the fields; keys have one version only
coordinator value   version int16, then the fields
metadata record     frame version 1, type and version, each an unsigned varint, then the fields
"""

from __future__ import annotations

from minibroker.errors import InvalidLength, UnknownMessage
from minibroker.schema.message import Message
from minibroker.schema.varint import read_uvarint, uvarint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar, Self


class CoordinatorKey(Message):
    """Key of a record in __consumer_offsets, __transaction_state or __share_group_state."""

    type_number: ClassVar[int] = -1

    def __init_subclass__(cls, type: int = -1, versions: str = "", flexible: str | None = None) -> None:
        super().__init_subclass__(versions=versions, flexible=flexible)
        cls.type_number = type

    @classmethod
    def decode_stored(cls, data: bytes) -> Self:
        """Read a key as it stands in a record."""
        number = _int16(cls, data)
        if number != cls.type_number:
            raise UnknownMessage(f"key type {number} is not {cls.type_number}", 0, cls.__name__)
        return cls.decode(data[2:], cls.schema.last_version)

    def encode_stored(self) -> bytes:
        """Return the key as it stands in a record."""
        return self.type_number.to_bytes(2, "big") + self.encode(self.schema.last_version)


class CoordinatorValue(Message):
    """Value of such a record: its version, then the fields."""

    type_number: ClassVar[int] = -1  # of the key it belongs to

    def __init_subclass__(cls, type: int = -1, versions: str = "", flexible: str | None = None) -> None:
        super().__init_subclass__(versions=versions, flexible=flexible)
        cls.type_number = type

    @classmethod
    def decode_stored(cls, data: bytes) -> Self:
        """Read a value as it stands in a record."""
        return cls.decode(data[2:], _int16(cls, data))

    def encode_stored(self, version: int) -> bytes:
        """Return the value as it stands in a record."""
        return version.to_bytes(2, "big") + self.encode(version)


class MetadataRecord(Message):
    """Record of the metadata log (KRaft): a framed value without a key."""

    type_number: ClassVar[int] = -1

    def __init_subclass__(cls, type: int = -1, versions: str = "", flexible: str | None = None) -> None:
        super().__init_subclass__(versions=versions, flexible=flexible)
        cls.type_number = type

    def encode_stored(self, version: int) -> bytes:
        """Return the value as it stands in a record."""
        return b"\x01" + uvarint(self.type_number) + uvarint(version) + self.encode(version)


def _int16(cls: type, data: bytes) -> int:
    if len(data) < 2:
        raise InvalidLength(f"{len(data)} bytes are too few for a version", 0, cls.__name__)
    return int.from_bytes(data[:2], "big", signed=True)


def metadata_frame(data: bytes) -> tuple[int, int, int]:
    """Return type, version and start of the fields of a metadata record."""
    try:
        frame, position = read_uvarint(data, 0)
        number, position = read_uvarint(data, position)
        version, position = read_uvarint(data, position)
    except (IndexError, ValueError):
        raise InvalidLength("the frame of a metadata record is broken", 0, "MetadataRecord") from None
    if frame != 1:
        raise UnknownMessage(f"frame version {frame} is not 1", 0, "MetadataRecord")
    return number, version, position
