"""The files of the page as they are sent: packed and named by what is in them, each when it is asked for first.

What must hold: only what stands in FILES is ever sent. Comments and indentation stay at home, lines do not: a
browser counts them as the files do. A browser that has a file asks whether it is still the same one,
and is answered by its name alone. What comes later is many small modules that are sent as one: packed together they
take a sixth less. Their file in the folder is a module as any other, whose re-exports say which they are.
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
# The first place needs these; the others come when somebody goes to another place.
FIRST = (
    *("icon.svg", "page.css", "vendor.js", "reduce.js", "text.js", "feed.js", "commands.js", "controls.js"),
    *("said.js", "lanes.js", "cluster.js", "app.js"),
)
JOINED = "later.js"
FILES = (*FIRST, "later.css", JOINED)


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
    data = content(name)
    return PageFile(KINDS[name.rpartition(".")[2]], compress(data, mtime=0), f'"{sha256(data).hexdigest()[:16]}"')


def content(name: str) -> bytes:
    """Return what is sent as a file of FILES."""
    return _joined() if name == JOINED else sent(name, _read(name))


def parts() -> list[str]:
    """Return the modules that JOINED consists of, those in front that others import."""
    from re import findall

    return [f"{each}.js" for each in findall(r'(?m)^export \* as \w+ from "\./(\w+)\.js";$', _read(JOINED).decode())]


def _joined() -> bytes:
    """Return the modules of JOINED in one: a function each, which returns what it exports."""
    from re import findall, sub

    names = parts()
    bodies: list[str] = []
    outside: dict[str, None] = {}
    for name in names:
        text = sent(name, _read(name)).decode()
        for wanted in findall(r'(?ms)^import .*?from "\./([\w.]+)";', text):
            if wanted not in names:
                outside[wanted] = None
        text = sub(
            r'(?ms)^import \{(.*?)\} from "\./(\w+)\.js";',
            lambda found: f"const {{{found[1].replace(' as ', ': ')}}} = ${found[2]};",
            text,
        )
        exported = ", ".join(findall(r"(?m)^export (?:async )?(?:const|function) (\w+)", text))
        text = sub(r"(?m)^export ", "", text)
        bodies.append(f"const ${name[:-3]} = (() => {{{text}return {{ {exported} }};\n}})();\n")
    heads = [f'import * as ${each[:-3]} from "./{each}";\n' for each in outside]
    told = ", ".join(f"${name[:-3]} as {name[:-3]}" for name in names)
    return "".join([*heads, *bodies, f"export {{ {told} }};\n"]).encode()


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
