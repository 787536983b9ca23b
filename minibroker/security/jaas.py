"""JAAS lines, as Kafka's configuration files have them: read, never carried out.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret" user_bob="other";

One module, a flag, and options. Words and texts are those of Java's StreamTokenizer: a word that begins with a digit
would be a number there and no value, so it has to be quoted.
What must hold: an error says what is wrong, and nothing of what stands in the line: there are passwords in it.
Not here: which modules and options there are (sasl_settings.py).
"""

from __future__ import annotations

from typing import Final, NamedTuple

FLAGS: Final = ("required", "requisite", "sufficient", "optional")
WORD_STARTS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_$")
WORD_LETTERS: Final = WORD_STARTS | frozenset("0123456789.-")
ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a"}
OCTAL: Final = frozenset("01234567")


class JaasLine(NamedTuple):
    """A login module with its options."""

    module: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"JaasLine({self.module})"  # what else is in it is nobody's business


class Token(NamedTuple):
    """A word, a quoted text, or one of = and ;."""

    text: str
    is_sign: bool


def parse_jaas(text: str) -> JaasLine:
    """Return what a line says; ValueError if it is none."""
    tokens = _tokens(text)
    if not tokens:
        raise ValueError("it is empty: a login module is wanted")
    words = iter(tokens)
    module = _word(next(words), "it has to begin with a login module")
    if _word(next(words, None), "behind the login module stands a flag: required").lower() not in FLAGS:
        raise ValueError(f"behind the login module stands a flag: one of {', '.join(FLAGS)}")
    options: dict[str, str] = {}
    for token in words:
        if token == (";", True):
            if next(words, None) is not None:
                raise ValueError("there is something behind the first ;, and one login module is all there can be")
            return JaasLine(module, options)
        key = _word(token, "an option is NAME=VALUE")
        if next(words, None) != ("=", True):
            raise ValueError(f"the option number {len(options) + 1} has no = behind its name")
        if key in options:
            raise ValueError(f"the option number {len(options) + 1} has the name of one before it")
        options[key] = _word(next(words, None), f"the option number {len(options) + 1} has no value")
    raise ValueError("it has to end with ;")


def _word(token: Token | None, wanted: str) -> str:
    if token is None or token.is_sign:
        raise ValueError(wanted)
    return token.text


def _tokens(text: str) -> list[Token]:
    found: list[Token] = []
    position = 0
    while position < len(text):
        letter = text[position]
        if letter.isspace():
            position += 1
        elif letter in "=;":
            found.append(Token(letter, is_sign=True))
            position += 1
        elif letter in "\"'":
            quoted, position = _quoted(text, position)
            found.append(Token(quoted, is_sign=False))
        elif text.startswith("//", position):
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
        elif text.startswith("/*", position):
            end = text.find("*/", position)
            if end < 0:
                raise ValueError("a comment does not end")
            position = end + 2
        elif letter in WORD_STARTS or letter >= "\xa0":
            begin = position
            while position < len(text) and (text[position] in WORD_LETTERS or text[position] >= "\xa0"):
                position += 1
            found.append(Token(text[begin:position], is_sign=False))
        else:
            raise ValueError(f"at character {position + 1} stands what has to be in quotation marks")
    return found


def _quoted(text: str, position: int) -> tuple[str, int]:
    """Return the text within quotation marks, and where it goes on behind them."""
    quote = text[position]
    letters: list[str] = []
    position += 1
    while position < len(text) and text[position] not in "\r\n":
        letter = text[position]
        position += 1
        if letter == quote:
            return "".join(letters), position
        if letter == "\\" and position < len(text):
            letter, position = _escaped(text, position)
        letters.append(letter)
    raise ValueError("a quotation mark is not closed")


def _escaped(text: str, position: int) -> tuple[str, int]:
    letter = text[position]
    if letter not in OCTAL:
        return ESCAPES.get(letter, letter), position + 1
    end = position + 1
    digits_max = 3 if letter <= "3" else 2
    while end < len(text) and end - position < digits_max and text[end] in OCTAL:
        end += 1
    return chr(int(text[position:end], 8)), end
