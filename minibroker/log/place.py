"""A place in a segment: what is known of a batch without reading more than where it begins and ends."""

from __future__ import annotations


class Place:
    """Where a batch lies and which offsets it holds."""

    __slots__ = ("base_offset", "last_offset", "position", "size_bytes")

    def __init__(self, position: int, size_bytes: int, base_offset: int, last_offset: int):
        self.position = position
        self.size_bytes = size_bytes
        self.base_offset = base_offset  # of a v0 or v1 wrapper the last offset: nothing else is in front
        self.last_offset = last_offset

    @property
    def end_position(self) -> int:
        return self.position + self.size_bytes
