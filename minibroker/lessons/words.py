"""What the words of the lessons mean: words.txt."""

from __future__ import annotations

import re
from functools import cache
from pkgutil import get_data


@cache
def words() -> dict[str, tuple[str, ...]]:
    """Return each meaning with the forms of its word, the usual one first."""
    data = get_data("minibroker.lessons", "words.txt")
    assert data is not None
    found = {}
    for line in data.decode().splitlines():
        if line and not line.startswith("#"):
            forms, _, meaning = line.partition(" | ")
            found[meaning] = tuple(forms.split(", "))
    return found


def explained(text: str) -> list[tuple[str, str]]:
    """Return the words of a text that are in the list, with what they mean, as they come in it."""
    places = []
    for meaning, forms in words().items():
        found = [place for form in forms if (place := _place_of(form, text)) is not None]
        if found:
            places.append((min(found), forms[0], meaning))
    return [(word, meaning) for _, word, meaning in sorted(places)]


def _place_of(form: str, text: str) -> int | None:
    plural = "" if form[0].isupper() or "." in form else "s?"
    found = re.search(rf"(?<![\w.]){re.escape(form)}{plural}(?![\w]|\.\w)", text, 0 if form[0].isupper() else re.I)
    return None if found is None else found.start()
