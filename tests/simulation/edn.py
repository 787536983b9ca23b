"""Extensible data notation: what histories are written in, so that Jepsen and Elle read them too.

    text = dumps({Keyword("type"): Keyword("ok"), Keyword("value"): [1, "two", None]})
    assert text == '{:type :ok, :value [1 "two" nil]}'
    assert loads(text) == {"type": "ok", "value": [1, "two", None]}

A keyword is a string that is written with a colon. Lists are read as vectors are; commas are white space.
Not here: tags, characters, namespaced maps, numbers with suffixes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

TOKEN = re.compile(r'[\s,]+|;[^\n]*|(#_|#\{|[\[\](){}]|"(?:[^"\\]|\\.)*"|[^\s,;"\[\](){}]+)')
CLOSING = {"[": "]", "(": ")", "{": "}", "#{": "}"}
ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
NAMED = {"nil": None, "true": True, "false": False}


class Keyword(str):
    """A name."""

    __slots__ = ()


class Broken(Exception):
    """This is no EDN."""


def dumps(data: Any) -> str:
    """Return a value as text."""
    if data is None:
        return "nil"
    if isinstance(data, bool):
        return "true" if data else "false"
    if isinstance(data, Keyword):
        return f":{data}"
    if isinstance(data, str):
        quoted = data.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{quoted}"'
    if isinstance(data, dict):
        return "{" + ", ".join(f"{dumps(key)} {dumps(value)}" for key, value in data.items()) + "}"
    if isinstance(data, list | tuple):
        return "[" + " ".join(map(dumps, data)) + "]"
    if isinstance(data, set | frozenset):
        return "#{" + " ".join(sorted(map(dumps, data))) + "}"
    return repr(data)


def loads(text: str) -> Any:
    """Return the one value that a text has."""
    (only,) = loads_all(text)
    return only


def loads_all(text: str) -> list[Any]:
    """Return all values of a text, as a file has them."""
    tokens = _tokens(text)
    return [_value(token, tokens) for token in tokens]


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        found = TOKEN.match(text, position)
        if found is None:
            raise Broken(f"nobody can read {text[position : position + 20]!r}")
        position = found.end()
        if found[1] == "#_":  # what follows is not there
            raise Broken("what is left out cannot be read")
        if found[1]:
            yield found[1]


def _value(token: str, tokens: Iterator[str]) -> Any:
    if token in CLOSING:
        return _collection(token, tokens)
    if token[0] == '"':
        return re.sub(r"\\(.)", lambda found: ESCAPES.get(found[1], found[1]), token[1:-1])
    if token[0] == ":":
        return Keyword(token[1:])
    if token in NAMED:
        return NAMED[token]
    try:
        return float(token) if "." in token or "e" in token else int(token)
    except ValueError:
        raise Broken(f"nobody can read {token!r}") from None


def _collection(opening: str, tokens: Iterator[str]) -> Any:
    items = []
    for token in tokens:
        if token == CLOSING[opening]:
            break
        items.append(_value(token, tokens))
    else:
        raise Broken(f"{opening!r} is not closed")
    if opening == "{":
        if len(items) % 2:
            raise Broken("a map has a key without a value")
        return dict(zip(items[::2], items[1::2]))
    return set(items) if opening == "#{" else items
