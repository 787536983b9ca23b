"""A function in the making: lines of source, and the constants they refer to."""

from __future__ import annotations

from struct import Struct as Layout
from struct import pack, unpack_from

from minibroker.schema.bounds import too_many
from minibroker.schema.varint import (
    ONE_BYTE,
    keep_unknown_tag,
    read_uvarint,
    skip_unknown_tags,
    string_uvarint,
    tagged_section,
    uvarint,
    zigzag,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# What generated code may call.
RUNTIME = {
    "read_uvarint": read_uvarint,
    "uvarint": uvarint,
    "string_uvarint": string_uvarint,
    "ONE_BYTE": ONE_BYTE,
    "zigzag": zigzag,
    "skip_unknown_tags": skip_unknown_tags,
    "keep_unknown_tag": keep_unknown_tag,
    "tagged_section": tagged_section,
    "unpack_from": unpack_from,
    "pack": pack,
    "new": object.__new__,
    "too_many": too_many,
}


SHORT = 9  # arrays of numbers with fewer elements have ready layouts


class Source:
    """Lines of a function in the making, with the constants it refers to."""

    def __init__(self, title: str):
        self.title = title
        self.lines: list[str] = []
        self.indent = ""
        self.names: dict[str, Any] = dict(RUNTIME)
        self.count = 0

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def __enter__(self) -> None:
        self.indent += "    "

    def __exit__(self, *_: object) -> None:
        self.indent = self.indent[4:]

    def fresh(self, prefix: str) -> str:
        """Return a variable name that is not yet in use."""
        self.count += 1
        return f"{prefix}{self.count}"

    def constant(self, value: object, prefix: str = "K") -> str:
        """Return a name under which the generated code finds `value`."""
        if value is None or type(value) in (bool, int, str, bytes):
            return repr(value)
        for name, known in self.names.items():
            if known is value:
                return name
        name = self.fresh(prefix)
        self.names[name] = value
        return name

    def layout(self, formats: str, method: str) -> str:
        """Return the name of the pack or unpack_from of a fixed layout."""
        name = f"{method}_{formats.replace('?', 'o')}"
        if name not in self.names:
            self.names[name] = getattr(Layout(">" + formats), method)
        return name

    def layouts(self, head: str, element: str, method: str) -> str:
        """Return the name of a list of them, by how many elements follow the head."""
        name = f"{method}_{head}_{element}s".replace("?", "o")
        if name not in self.names:
            self.names[name] = [getattr(Layout(f">{head}{count}{element}"), method) for count in range(SHORT)]
        return name

    def function(self, name: str) -> Callable[..., Any]:
        # What linecache asks for; importing it here would cost more than all else that is imported.
        filename = f"minibroker {self.title}"
        self.names |= {"__name__": filename, "__loader__": self}
        exec(compile(self.get_source(), filename, "exec"), self.names)
        made: Callable[..., Any] = self.names[name]
        return made

    def get_source(self, _: str = "") -> str:
        return "\n".join(self.lines) + "\n"
