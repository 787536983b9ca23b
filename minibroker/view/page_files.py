"""The files of the page as they are sent: packed and named by what is in them, each when it is asked for first.

What must hold: only what stands in FILES is ever read. Comments and indentation stay at home, lines do not: a
browser counts them as the files do. A browser that has a file asks whether it is still the same one,
and is answered by its name alone.
Not here: who may have them (broker/web_page.py), and what the page shows (page/).
"""

from __future__ import annotations

import os
from functools import cache

SHELL = "index.html"
KINDS = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
# The first place needs these; others come when somebody goes to their place.
FIRST = (
    *("icon.svg", "page.css", "vendor.js", "reduce.js", "text.js", "feed.js", "commands.js", "controls.js"),
    *("said.js", "lanes.js", "cluster.js", "app.js"),
)
LATER = (
    *("asking.js", "cells.js", "faults.js", "groups.js", "keys.js", "later.css", "lessons.js", "letters.js", "log.js"),
    *("tables.js", "topic.js", "topics.js"),
)
FILES = (*FIRST, *LATER)


class PageFile:
    """One file."""

    __slots__ = ("content_type", "packed", "tag")

    def __init__(self, content_type: str, packed: bytes, tag: str):
        self.content_type = content_type
        self.packed = packed  # by gzip; whoever does not take that gets it unpacked
        self.tag = tag


@cache
def page_file(name: str) -> PageFile:
    """Return a file of FILES."""
    from gzip import compress
    from hashlib import sha256

    assert name in FILES
    data = sent(name, _read(name))
    return PageFile(KINDS[name.rpartition(".")[2]], compress(data, mtime=0), f'"{sha256(data).hexdigest()[:16]}"')


def sent(name: str, data: bytes) -> bytes:
    """Return what is sent of a file: of our own modules all but indentation, and lines that are comments."""
    from re import sub

    return sub(rb"(?m)^ +(// .*$)?|^//( .*)?$", b"", data) if name.endswith(".js") and name != "vendor.js" else data


def shell(words: dict[str, str]) -> bytes:
    """Return the page itself, with what is said in its head."""
    from html import escape

    text = _read(SHELL).decode()
    for name, value in words.items():
        text = text.replace(f"${name}$", escape(value))
    return text.encode()


@cache
def _read(name: str) -> bytes:
    """Return a file of the folder, also when the package is a zip."""
    data: bytes = __spec__.loader.get_data(os.path.join(os.path.dirname(__file__), "page", name))  # type: ignore[union-attr]
    return data
