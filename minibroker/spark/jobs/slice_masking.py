"""Masking: keys, values, fields of JSON and headers made unreadable, the same content always in the same way.

    parse_masks(["key=hash", "value.customer.email=fake", "orders:header.trace=null"])

    hash    a code of the content: hexadecimal digits, for whole numbers a number
    fake    letters become other letters, digits other digits, signs of ASCII stay: what looks like a mail still does
    redact  ***, 0, false, [] or {}
    null    null; a value that becomes null is a tombstone

What must hold: the same content under the same salt becomes the same, in whatever topic, as key or as a field, number
or text; so what could be joined still can. Without the salt nobody can try contents until one fits. Nothing is let
through because it was not of the form that was expected: what is no JSON, has a field twice, or has a text or number
where an object with the field should be, is masked as a whole; names of fields and headers are met in capitals, too; in
an object that is masked the names of fields are content as all else.
Values in which nothing is masked keep their bytes; others are written anew, as compact JSON with their fields in order.
Not here: which records (slice.py).
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple, Never
from unicodedata import normalize

import pyarrow as pa

from minibroker.spark.columns.rows_of_query import ROWS
from minibroker.spark.option_values import OptionError

Header = tuple[str, bytes | None]
Masked = tuple[bytes | None, bytes | None, list[Header] | None, int]

HASH, FAKE, REDACT, NULL = HOWS = ("hash", "fake", "redact", "null")
STARS = "***"
PLACES = ("key", "value", "header")
NUMBER_MAX = 10**15  # below 2**53: every reader of JSON keeps it
MASKS_MAX = 62
WHOLE = 1 << MASKS_MAX  # among the bits of what was met: something was masked as a whole, though a field was meant
MADE = ("key", "value", "headers", "met")
SCHEMA = pa.schema([*ROWS, ("about", pa.int64()), ("met", pa.int64())])


class Mask(NamedTuple):
    """What is masked how."""

    what: str  # as it was written
    topic: str  # empty: all
    place: str
    path: list[str]
    how: str
    bit: int


def parse_masks(texts: Sequence[str]) -> list[Mask]:
    """Read `[TOPIC:]key[.PATH]=HOW`, `value[.PATH]=HOW`, `header.NAME=HOW`."""
    found = []
    for number, text in enumerate(texts):
        what, sign, how = text.rpartition("=")
        topic, colon, rest = what.rpartition(":")
        place, dot, path = rest.partition(".")
        if not sign:
            raise OptionError(f"--mask {text}: write it as WHAT=HOW, as value.email=hash")
        if how not in HOWS:
            raise OptionError(f"--mask {text}: it can be {', '.join(HOWS)}")
        if place not in PLACES or (colon and not topic) or (dot and "" in path.split(".")):
            raise OptionError(f"--mask {what}: write it as key, value, value.FIELD.FIELD, header.NAME, or TOPIC:key")
        if place == "header" and not path:
            raise OptionError(f"--mask {what}: say which header, as header.trace")
        found.append(Mask(what, topic, place, path.split(".") if path else [], how, 1 << number))
    if len(found) > MASKS_MAX:
        raise OptionError(f"--mask comes {len(found)} times: {MASKS_MAX} are the most")
    return found


def masking(masks: Sequence[Mask], salt: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what masks records that have `about` beside; a column `met` has the bits of masks that met something."""

    def mask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        masker = Masker(masks, salt)
        for batch in batches:
            rows = zip(*(batch.column(name).to_pylist() for name in ("topic", "key", "value", "headers")), strict=True)
            made = []
            for topic, key, value, headers in rows:
                pairs = None if headers is None else [(each["key"], each["value"]) for each in headers]
                made.append(dict(zip(MADE, masker.masked(topic, key, value, pairs), strict=True)))
            columns = [
                pa.array([row[field.name] for row in made], field.type)
                if field.name in MADE
                else batch.column(field.name).cast(field.type)
                for field in SCHEMA
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    return mask


class Masker:
    """Masks records."""

    def __init__(self, masks: Sequence[Mask], salt: str):
        self._masks = masks
        self._salt = salt.encode()
        self._placed: dict[tuple[str, str], list[_Placed]] = {}  # by topic and place

    def masked(self, topic: str, key: bytes | None, value: bytes | None, headers: Sequence[Header] | None) -> Masked:
        """Return key, value and headers, and the bits of the masks that met something."""
        key, met = self._content(key, self._masks_of(topic, "key"))
        value, more = self._content(value, self._masks_of(topic, "value"))
        named = self._masks_of(topic, "header")
        kept: list[Header] = []
        for name, data in headers or ():
            for mask in named:
                if _folded(name) == mask.name:
                    more |= mask.bit
                    data = None if data is None else self.whole(data, mask.how)
            kept.append((name, data))
        return key, value, None if headers is None else kept, met | more

    def _masks_of(self, topic: str, place: str) -> list[_Placed]:
        """Return the masks of a place, deep fields first: what is masked with all that is in it has them no more."""
        found = self._placed.get((topic, place))
        if found is None:
            masks = [mask for mask in self._masks if mask.place == place and mask.topic in ("", topic)]
            found = self._placed[topic, place] = [_Placed(mask, masks) for mask in masks]
            if place != "header":
                found.sort(key=lambda mask: -len(mask.path))
        return found

    def _content(self, data: bytes | None, masks: list[_Placed]) -> tuple[bytes | None, int]:
        """Mask a key or value; return it, and the bits of what was met."""
        if not masks or data is None:
            return data, 0
        all_bits = sum(mask.bit for mask in masks)
        wholes = [mask for mask in masks if not mask.path]
        for mask in wholes:
            data = None if data is None else self.whole(data, mask.how)
        if wholes or data is None:
            return data, all_bits
        try:
            document = json.loads(data, parse_float=_Fraction, parse_constant=_refuse, object_pairs_hook=_object)
            met = sum(mask.bit for mask in masks if self._walk(document, mask, mask.path))
            text = json.dumps(document, ensure_ascii=False, separators=(",", ":")) if met else ""
        except (ValueError, RecursionError):
            # No place for a field: a text in which it may stand somehow, or something in another format.
            return self.whole(data, min(masks, key=lambda mask: mask.bit).how), WHOLE | all_bits
        return _Fraction.WRITTEN.sub(r"\1", text).encode("utf-8", "surrogatepass") if met else data, met

    def _walk(self, document: Any, mask: _Placed, path: tuple[str, ...]) -> int:
        """Mask the fields at a path, in each element of lists on the way; return how many there were.

        Raises ValueError at what has no fields and is not null: what is to be masked may stand there.
        """
        if isinstance(document, list):
            return sum(self._walk(each, mask, path) for each in document)
        if not isinstance(document, dict):
            if document is None or mask.is_covered:
                return 0
            raise ValueError(f"no object with {path[0]}, but {type(document).__name__}")
        hits = 0
        for name, value in document.items():
            rest = _rest_of(path, name)
            if rest:
                hits += self._walk(value, mask, rest)
            elif rest is not None:
                document[name] = self.of_json(value, mask.how)
                hits += 1
        return hits

    # One content

    def whole(self, data: bytes, how: str) -> bytes | None:
        """Mask bytes."""
        if how in (NULL, REDACT):
            return None if how == NULL else STARS.encode()
        try:
            return self._of_text(data.decode(), how).encode()
        except UnicodeDecodeError:  # there is no shape that could be kept
            return self._of_text(data.decode("latin-1"), HASH).encode()

    def of_json(self, value: Any, how: str) -> Any:
        """Mask a value of JSON; it keeps its type, and lists and objects their form."""
        if how == NULL or value is None:
            return None
        if how == REDACT:
            return NOTHING.get(type(value), STARS)
        if isinstance(value, list):
            return [self.of_json(each, how) for each in value]
        if isinstance(value, dict):
            made: dict[str, Any] = {}
            for name, each in value.items():
                other = self._of_text(name, how)
                made[self._code(name).hex() if other in made else other] = self.of_json(each, how)
            return made
        if isinstance(value, bool):
            return bool(self._code(f"bool {value}")[0] & 1)
        if isinstance(value, int):
            return int(self._faked(str(value)) if how == FAKE else self._number(str(value)))
        if isinstance(value, _Fraction):
            text = value.text
            return _Fraction(self._faked(text, is_number=True) if how == FAKE else self._number(text))
        return self._of_text(value, how)

    def _of_text(self, text: str, how: str) -> str:
        if how == FAKE:
            return self._faked(text)
        if re.fullmatch(r"-?(0|[1-9]\d{0,17})", text, re.ASCII):
            return self._number(text)
        return self._code(text)[:16].hex()

    def _number(self, text: str) -> str:
        return str(int.from_bytes(self._code(text)[:8], "big") % NUMBER_MAX)

    def _code(self, text: str) -> bytes:
        return hmac.digest(self._salt, text.encode("utf-8", "surrogatepass"), sha256)

    def _faked(self, text: str, *, is_number: bool = False) -> str:
        """Return another text of the same form."""
        out, chance = [], b""
        for index, character in enumerate(text):
            block, place = divmod(index, 32)
            if not place:
                chance = self._code(f"fake {block} {text}" if block else f"fake {text}")
            code = chance[place]
            if character.isdigit():
                # A number does not get zeros in front, which JSON does not take.
                is_first = index == 0 or not (text[index - 1].isdigit() or text[index - 1] == ".")
                has_more = text[index + 1 : index + 2].isdigit()
                out.append(str(code % 9 + 1) if is_first and has_more and character != "0" else str(code % 10))
            elif is_number or (character.isascii() and not character.isalpha()):
                out.append(character)
            else:  # also vowels and signs of other scripts, which are no letters to Unicode
                letter = chr(ord("a") + code % 26)
                out.append(letter.upper() if character.isupper() else letter)
        return "".join(out)


class _Placed:
    """A mask as it is looked for in one topic."""

    def __init__(self, mask: Mask, beside: Sequence[Mask]):
        self.path = tuple(map(_folded, mask.path))
        self.name = ".".join(self.path)
        self.how, self.bit = mask.how, mask.bit
        # Whether another mask takes what is above: then a text in place of an object is that one's.
        above = [tuple(map(_folded, other.path)) for other in beside if len(other.path) < len(mask.path)]
        self.is_covered = any(self.path[: len(path)] == path for path in above)


@lru_cache(4096)
def _folded(name: str) -> str:
    """Return what names have in common that somebody may take for the same."""
    return normalize("NFKC", name).casefold()


@lru_cache(4096)
def _rest_of(path: tuple[str, ...], name: str) -> tuple[str, ...] | None:
    """Return what is left of a path behind a field; a field may have dots in its name. None: it is not on the path."""
    name = _folded(name)
    return next((path[end:] for end in range(1, len(path) + 1) if ".".join(path[:end]) == name), None)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a field comes twice: readers differ in which of them they take")
    return found


def _refuse(constant: str) -> Never:
    raise ValueError(f"{constant} is no JSON")


class _Fraction(str):
    """A number with a fraction or exponent: as text, so that it is written as it was read."""

    __slots__ = ()
    # As the encoder writes it: nobody has such texts in earnest.
    WRITTEN = re.compile(r'"\\u0000fraction ([-+.\deE]+)\\u0000"')

    def __new__(cls, text: str) -> _Fraction:
        return super().__new__(cls, f"\0fraction {text}\0")

    @property
    def text(self) -> str:
        return self[10:-1]


NOTHING: dict[type, Any] = {bool: False, int: 0, _Fraction: 0, list: [], dict: {}}
