"""Lines of a terminal made of pieces, each a style and a text. Without colours a piece is its text."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Piece = tuple[str, str]

STYLES = {
    "bold": "1",
    "dim": "2",
    "reverse": "7",
    "bad": "31",
    "epoch0": "36",
    "epoch1": "33",
    "epoch2": "35",
    "epoch3": "32",
    "epoch4": "34",
    "epoch5": "91",
}


def paint(pieces: Iterable[Piece], width: int, *, colour: bool) -> str:
    """Return a line of at most so many columns."""
    left, painted = width, []
    for style, text in pieces:
        text = text[:left]
        left -= len(text)
        painted.append(f"\x1b[{STYLES[style]}m{text}\x1b[0m" if colour and style and text else text)
    line = "".join(painted)
    return line if colour else line.rstrip()


def wrap(text: str, width: int, indent: str = "", first: str | None = None) -> list[str]:
    """Return a paragraph as lines."""
    from textwrap import wrap as wrapped

    return wrapped(
        text,
        max(width, 20),
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def pressed_into(lines: Sequence[list[Piece]], height: int) -> list[list[Piece]]:
    """Return the lines that there is room for, the last one saying how many there is none for."""
    if len(lines) <= height:
        return list(lines)
    return [*lines[: height - 1], [("dim", f"... {len(lines) - height + 1} more lines")]]
