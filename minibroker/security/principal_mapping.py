"""Names of principals from the names in certificates: ssl.principal.mapping.rules, as Kafka's SslPrincipalMapper.

    RULE:^CN=(.*?),OU=.*$/$1/L,DEFAULT

The first rule that fits the whole name counts. RULE:pattern/replacement/ replaces; with an L or U behind it the result
is lower or upper case; DEFAULT takes the name as it is. A name that no rule fits belongs to nobody: its connection is
closed.
Patterns are Java's, run by `re`: what both know means the same in both. What only Java has is translated where it is
the same by another name, and refused at the start otherwise.
"""

from __future__ import annotations

import re

# The same grammar as Kafka's, rule by rule: an escaped character or any but a slash, twice, and a letter.
_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)", re.ASCII)
_PARSER = re.compile(_RULE)
_REFERENCE = re.compile(r"\$(\d+)", re.ASCII)
# What Java's patterns have by other names.
_JAVA_ONLY = {r"\z": r"\Z", r"\Z": r"(?=\n?\Z)", r"\h": r"[ \t]", r"\R": r"(?:\r\n|[\n\r])"}
_UNKNOWN = re.compile(r"\\[pPQEGkXNcx]|&&|\[[^\]]*\[|\(\?[a-zA-Z]*[dx]")


class NoRule(ValueError):
    """No rule fits a name."""


class PrincipalMapping:
    """The rules of one listener; ValueError says which of them is none."""

    def __init__(self, rules: str = "DEFAULT"):
        self._rules = [rule for text in _split(rules.strip()) if (rule := _parse(text))]

    def name_of(self, distinguished_name: str) -> str:
        """Return what a principal is called; NoRule if it is not to be called anything."""
        for rule in self._rules:
            if (name := rule.apply(distinguished_name)) is not None:
                return name
        raise NoRule(f"no rule of ssl.principal.mapping.rules fits {distinguished_name}")


class _Rule:
    def __init__(self, pattern: str | None = None, replacement: str = "", case: str = ""):
        self._pattern = None if pattern is None else _compiled(pattern)
        self._replacement = [] if self._pattern is None else _replacement(replacement, self._pattern.groups)
        self._case = case

    def apply(self, name: str) -> str | None:
        if self._pattern is None:
            return name
        if not self._pattern.fullmatch(name):
            return None
        result = self._replaced(self._pattern, name)
        return result.lower() if self._case == "L" else result.upper() if self._case == "U" else result

    def _replaced(self, pattern: re.Pattern[str], name: str) -> str:
        """Replace every match, as Java finds them: behind an empty one it goes a letter on, which Python does not."""
        parts, kept, position = [], 0, 0
        while position <= len(name) and (match := pattern.search(name, position)):
            parts += [name[kept : match.start()], self._expand(match)]
            kept = match.end()
            position = kept + (match.start() == kept)
        return "".join(parts) + name[kept:]

    def _expand(self, match: re.Match[str]) -> str:
        return "".join((match[part] or "") if isinstance(part, int) else part for part in self._replacement)


def _split(rules: str) -> list[str]:
    found, position = [], 0
    while match := _SPLITTER.search(rules, position):
        found.append(match[1])
        if match.end() == len(rules):
            break
        position = match.end() if match.end() > match.start() else match.end() + 1
    return found


def _parse(text: str) -> _Rule | None:
    """Read one rule; an empty one is none."""
    match = _PARSER.match(text)
    assert match is not None  # it matches nothing at all, too
    if match.end() != len(text):
        raise ValueError(f"{text!r} is no rule: RULE:pattern/replacement/, with L or U behind it, or DEFAULT")
    if match[1]:
        return _Rule()
    return None if match[2] is None else _Rule(match[2], match[3], match[4])


def _compiled(pattern: str) -> re.Pattern[str]:
    if found := _UNKNOWN.search(pattern):
        raise ValueError(f"the pattern {pattern!r} has {found[0]!r}, which is Java's and not known here")
    pattern = re.sub(r"\\.", lambda match: _JAVA_ONLY.get(match[0], match[0]), pattern)
    pattern = re.sub(r"\(\?<([A-Za-z]\w*)>", r"(?P<\1>", pattern)
    try:
        return re.compile(pattern, re.ASCII)  # as Java's classes of characters are
    except re.error as error:
        raise ValueError(f"{pattern!r} is no pattern: {error}") from None


def _replacement(text: str, groups: int) -> list[str | int]:
    """Return the parts of a replacement: text, or the number of a group. What names no group is text."""
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        letter = text[position]
        if letter == "\\":
            if position + 1 == len(text):
                raise ValueError(f"the replacement {text!r} ends in the middle of an escape")
            parts.append(text[position + 1])
            position += 2
        elif letter == "$" and (match := _REFERENCE.match(text, position)):
            digits = match[1]
            while len(digits) > 1 and int(digits) > groups:
                digits = digits[:-1]
            if int(digits) > groups:
                if not groups:
                    raise ValueError(f"the replacement {text!r} names group {digits}, and the pattern has none")
                parts.append("$")
                position += 1
            else:
                parts.append(int(digits))
                position += 1 + len(digits)
        elif letter == "$":
            raise ValueError(f"the replacement {text!r} has a $ without a number: a $ itself is \\$")
        else:
            parts.append(letter)
            position += 1
    return parts
