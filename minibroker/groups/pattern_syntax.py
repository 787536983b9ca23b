"""Reading a regular expression in RE2 syntax, with the words of RE2/J for what is wrong with it.

    SEQUENCE nodes   ALTERNATIVE nodes   REPEAT node, (least, most or None)   CHARACTER codes   AT condition

A class of characters becomes the set of the ASCII codes in it. Flags: i (upper or lower case), m (^ and $ at lines),
s (a dot is any character), U (no meaning here), from where they stand to the end of the group.
"""

from __future__ import annotations

import unicodedata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Node = tuple[Any, ...]
    Holds = Callable[[int], bool]

SEQUENCE, ALTERNATIVE, REPEAT, CHARACTER, AT = "sequence", "alternative", "repeat", "character", "at"
COUNT_MAX = 1000
FAR_TOO_LARGE = -2
INVALID_RANGE = "invalid character class range"
INVALID_ESCAPE = "invalid escape sequence"
INVALID_NAME = "invalid named capture"
INVALID_PERL = "invalid or unsupported Perl syntax"
MISSING_ARGUMENT = "missing argument to repetition operator"

ASCII = range(128)
ALL = frozenset(ASCII)
DIGITS = frozenset(b"0123456789")
LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
WORD = DIGITS | LETTERS | {ord("_")}
GRAPH = frozenset(range(0x21, 0x7F))
PERL = {"d": DIGITS, "s": frozenset(b"\t\n\f\r "), "w": WORD}
POSIX = {
    "alnum": DIGITS | LETTERS,
    "alpha": LETTERS,
    "ascii": ALL,
    "blank": frozenset(b"\t "),
    "cntrl": frozenset(range(0x20)) | {0x7F},
    "digit": DIGITS,
    "graph": GRAPH,
    "lower": frozenset(code for code in LETTERS if code >= ord("a")),
    "print": GRAPH | {0x20},
    "punct": GRAPH - DIGITS - LETTERS,
    "space": frozenset(b"\t\n\v\f\r "),
    "upper": frozenset(code for code in LETTERS if code < ord("a")),
    "word": WORD,
    "xdigit": frozenset(b"0123456789abcdefABCDEF"),
}
ESCAPES = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
OCTAL = "01234567"
CATEGORY_NAMES = "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs"
SCRIPT_NAMES = """\
Arabic Armenian Avestan Balinese Bamum Batak Bengali Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian
Cham Cherokee Common Coptic Cuneiform Cypriot Cyrillic Deseret Devanagari Egyptian_Hieroglyphs Ethiopic Georgian
Glagolitic Gothic Greek Gujarati Gurmukhi Han Hangul Hanunoo Hebrew Hiragana Imperial_Aramaic Inherited
Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kayah_Li Kharoshthi Khmer Lao Latin Lepcha
Limbu Linear_B Lisu Lycian Lydian Malayalam Mandaic Meetei_Mayek Mongolian Myanmar New_Tai_Lue Nko Ogham Ol_Chiki
Old_Italic Old_Persian Old_South_Arabian Old_Turkic Oriya Osmanya Phags_Pa Phoenician Rejang Runic Samaritan Saurashtra
Shavian Sinhala Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Tamil Telugu Thaana Thai Tibetan
Tifinagh Ugaritic Unknown Vai Yi
"""
CATEGORIES, SCRIPTS = frozenset(CATEGORY_NAMES.split()), frozenset(SCRIPT_NAMES.split())


class BadPattern(Exception):
    """No regular expression, and why."""


def parse(pattern: str) -> Node:
    """Return the expression as a tree."""
    return _Reader(pattern).whole()


class _Group:
    """A group that is open: its alternatives so far, the one being read last, and the flags outside of it."""

    def __init__(self, flags: frozenset[str]):
        self.flags = flags
        self.alternatives: list[list[Node]] = [[]]

    def node(self) -> Node:
        parts = [(SEQUENCE, nodes) for nodes in self.alternatives]
        return parts[0] if len(parts) == 1 else (ALTERNATIVE, parts)


class _Reader:
    def __init__(self, pattern: str):
        self.text = pattern
        self.position = 0
        self.flags = frozenset[str]()
        self.open = [_Group(self.flags)]
        self.names: set[str] = set()

    def whole(self) -> Node:
        after_repeat = False
        while self.position < len(self.text):
            after_repeat = self._one(after_repeat)
        if len(self.open) > 1:
            raise BadPattern("missing closing )")
        return self.open[0].node()

    def _one(self, after_repeat: bool) -> bool:
        """Read what comes next; say whether it repeats something."""
        char = self._next()
        if char == "(":
            self._open()
        elif char == ")":
            self._close()
        elif char == "|":
            self.open[-1].alternatives.append([])
        elif char in "*+?":
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
            self._repeat(least, most, after_repeat)
            return True
        elif char == "{":
            counts = self._counts()
            if counts is None:
                self._literal(ord(char))
            else:
                self._repeat(*counts, after_repeat)
            return True  # RE2/J takes it for a repetition even where it stands for itself
        elif char == ".":
            self._add(CHARACTER, ALL if "s" in self.flags else ALL - {ord("\n")})
        elif char == "^":
            self._add(AT, "line start" if "m" in self.flags else "start")
        elif char == "$":
            self._add(AT, "line end" if "m" in self.flags else "end")
        elif char == "[":
            self._class()
        elif char == "\\":
            self._backslash()
        else:
            self._literal(ord(char))
        return False

    def _add(self, kind: str, what: object) -> None:
        self.open[-1].alternatives[-1].append((kind, what))

    def _literal(self, code: int) -> None:
        self._add(CHARACTER, self._with_case(lambda other: other == code))

    def _with_case(self, holds: Holds) -> frozenset[int]:
        """Return the ASCII codes for which something holds, or does for the same letter in the other case."""
        if "i" not in self.flags:
            return frozenset(filter(holds, ASCII))
        return frozenset(code for code in ASCII if any(map(holds, _cases(code))))

    def _next(self) -> str:
        self.position += 1
        return self.text[self.position - 1]

    def _at(self, text: str) -> bool:
        return self.text.startswith(text, self.position)

    def _take(self, text: str) -> bool:
        if self._at(text):
            self.position += len(text)
            return True
        return False

    # Groups and repetition

    def _open(self) -> None:
        if not self._at("?"):
            self.open.append(_Group(self.flags))
        elif self._take("?P<") or self._take("?<"):
            end = self.text.find(">", self.position)
            name = self.text[self.position : end]
            if end < 0 or not name or not all(char == "_" or (char.isascii() and char.isalnum()) for char in name):
                raise BadPattern(INVALID_NAME)
            self.position = end + 1
            self.open.append(_Group(self.flags))
            if name in self.names:
                raise BadPattern("duplicate capture group name")
            self.names.add(name)
        else:
            self._take("?")
            self._flags()

    def _flags(self) -> None:
        on, off, is_off, seen = set(self.flags), set[str](), False, False
        while self.position < len(self.text):
            char = self._next()
            if char in "imsU":
                (off if is_off else on).add(char)
                seen = True
            elif char == "-" and not is_off:
                is_off, seen = True, False
            elif char in ":)" and (seen or not is_off):
                if char == ":":
                    self.open.append(_Group(self.flags))
                self.flags = frozenset(on - off)
                return
            else:
                break
        raise BadPattern(INVALID_PERL)

    def _close(self) -> None:
        if len(self.open) == 1:
            raise BadPattern("regexp/syntax: internal error")  # what RE2/J says
        group = self.open.pop()
        self.flags = group.flags
        self.open[-1].alternatives[-1].append(group.node())

    def _repeat(self, least: int, most: int | None, after_repeat: bool) -> None:
        self._take("?")
        if after_repeat:
            raise BadPattern("invalid nested repetition operator")
        nodes = self.open[-1].alternatives[-1]
        if not nodes:
            raise BadPattern(MISSING_ARGUMENT)
        nodes[-1] = (REPEAT, nodes[-1], (least, most))

    def _counts(self) -> tuple[int, int | None] | None:
        """Read `3}`, `3,}` or `3,5}` behind a brace; None, and nothing read, if it is something else."""
        start = self.position
        least = self._count()
        most: int | None = least
        if least is not None and self._take(","):
            most = None if self._at("}") else self._count()
            if most is None and not self._at("}"):
                least = None
        if least is None or not self._take("}"):
            self.position = start
            return None
        is_fine = 0 <= least <= COUNT_MAX and (most is None or least <= most <= COUNT_MAX)
        if not is_fine:
            raise BadPattern("invalid repeat count")
        return least, most

    def _count(self) -> int | None:
        start = self.position
        while self.position < len(self.text) and self.text[self.position] in "0123456789":
            self.position += 1
        digits = self.text[start : self.position]
        if not digits or (len(digits) > 1 and digits[0] == "0"):
            return None
        return FAR_TOO_LARGE if len(digits) > 8 else int(digits)

    # Escapes and classes

    def _backslash(self) -> None:
        start = self.position
        char = self.text[start : start + 1]
        conditions = {"A": "start", "z": "end", "b": "word edge", "B": "no word edge"}
        if char in conditions and char:
            self.position += 1
            self._add(AT, conditions[char])
        elif char == "C":
            raise BadPattern(INVALID_ESCAPE)
        elif char == "Q":
            end = self.text.find("\\E", start)
            for literal in self.text[start + 1 : end if end >= 0 else None]:
                self._literal(ord(literal))
            self.position = end + 2 if end >= 0 else len(self.text)
        else:
            found = self._named_class()
            if found is not None:
                self._add(CHARACTER, found)
            else:
                self._literal(self._escaped())

    def _named_class(self) -> frozenset[int] | None:
        """Read what follows a backslash if that names a class: d, S, pL, P{Greek}; None if not."""
        char = self.text[self.position : self.position + 1]
        if char in ("p", "P"):
            self.position += 1
            return self._unicode_class(char == "P")
        if char.lower() in PERL and char:
            self.position += 1
            return PERL[char] if char in PERL else ALL - PERL[char.lower()]
        return None

    def _unicode_class(self, is_negated: bool) -> frozenset[int]:
        name = self.text[self.position : self.position + 1]
        if name == "{":
            end = self.text.find("}", self.position)
            name = self.text[self.position + 1 : end] if end >= 0 else ""
            self.position = end
        self.position += 1
        if name.startswith("^"):
            is_negated, name = not is_negated, name[1:]
        if name == "Any":
            found = ALL
        elif name in CATEGORIES:
            found = self._with_case(lambda code: unicodedata.category(chr(code)).startswith(name))
        elif name in SCRIPTS:
            letters = {"Latin": LETTERS, "Common": ALL - LETTERS}.get(name, frozenset())
            found = letters
        else:
            raise BadPattern(INVALID_RANGE)
        return ALL - found if is_negated else found

    def _escaped(self) -> int:
        """Read one character behind a backslash."""
        if self.position >= len(self.text):
            raise BadPattern("trailing backslash at end of expression")
        char = self._next()
        following = self.text[self.position : self.position + 1]
        if char == "0" or (char in "1234567" and following and following in OCTAL):
            digits = char
            while len(digits) < 3 and self.position < len(self.text) and self.text[self.position] in OCTAL:
                digits += self._next()
            return int(digits, 8)
        if char in ESCAPES:
            return ESCAPES[char]
        if char == "x":
            return self._hexadecimal()
        if char.isascii() and char.isalnum():
            raise BadPattern(INVALID_ESCAPE)
        return ord(char)

    def _hexadecimal(self) -> int:
        if self._take("{"):
            end = self.text.find("}", self.position)
            digits, after = self.text[self.position : end], end + 1
            is_fine = end >= 0 and digits != ""
        else:
            digits, after = self.text[self.position : self.position + 2], self.position + 2
            is_fine = len(digits) == 2
        if not is_fine or any(char not in "0123456789abcdefABCDEF" for char in digits) or int(digits, 16) > 0x10FFFF:
            raise BadPattern(INVALID_ESCAPE)
        self.position = after
        return int(digits, 16)

    def _class(self) -> None:
        is_negated = self._take("^")
        found = frozenset[int]()
        is_first = True
        while is_first or not self._at("]"):
            is_first = False
            found |= self._class_part()
        self.position += 1
        self._add(CHARACTER, ALL - found if is_negated else found)

    def _class_part(self) -> frozenset[int]:
        if self._at("[:") and (end := self.text.find(":]", self.position)) >= 0:
            name = self.text[self.position + 2 : end]
            plain = name.removeprefix("^")
            if plain not in POSIX:
                raise BadPattern(INVALID_RANGE)
            self.position = end + 2
            found = self._with_case(POSIX[plain].__contains__)
            return found if plain == name else ALL - found
        if self._take("\\"):
            named = self._named_class()
            if named is not None:
                return named
            self.position -= 1
        low = high = self._class_character()
        if self._at("-") and not self._at("-]"):
            self.position += 1
            high = self._class_character()
            if high < low:
                raise BadPattern(INVALID_RANGE)
        return self._with_case(range(low, high + 1).__contains__)

    def _class_character(self) -> int:
        if self.position >= len(self.text):
            raise BadPattern("missing closing ]")
        return self._escaped() if self._take("\\") else ord(self._next())


def _cases(code: int) -> set[int]:
    """Return the codes that are the same letter: besides upper and lower case the Kelvin sign and the long s."""
    char = chr(code)
    return {code, ord(char.lower()), ord(char.upper()), *{"k": {0x212A}, "s": {0x17F}}.get(char.lower(), set())}
