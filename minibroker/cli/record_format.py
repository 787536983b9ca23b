"""How `minibroker consume` writes records: as kcat (-f, -K, -J) or as kafka-console-consumer.sh (--property) does.

A format is made once into a function from record to bytes, so that nothing is parsed for each record.
"""

from __future__ import annotations

from struct import Struct

from minibroker.cli.connect import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from minibroker.client.fetching import ConsumedRecord

    Writer = Callable[[ConsumedRecord], bytes]

LENGTH = Struct(">i")
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "0": "\0", "a": "\a", "e": "\x1b"}
CONSOLE_TIMESTAMPS = {0: "CreateTime", 1: "LogAppendTime"}


def unescaped(text: str) -> bytes:
    """Return text with \\n, \\t, \\x1f and their like made into what they stand for."""
    out = bytearray()
    index = 0
    while index < len(text):
        character = text[index]
        following = text[index + 1 : index + 2]
        if character == "\\" and following == "x":
            try:
                out += bytes.fromhex(text[index + 2 : index + 4])
            except ValueError:
                raise Refused(f"{text!r}: \\x needs two hexadecimal digits") from None
            index += 4
        elif character == "\\" and following in ESCAPES and following:
            out += ESCAPES[following].encode()
            index += 2
        else:
            out += character.encode("utf-8", "surrogateescape")
            index += 1
    return bytes(out)


def plain(delimiter: bytes, key_delimiter: bytes | None, null: bytes) -> Writer:
    """The value, perhaps the key before it."""
    if key_delimiter is None:

        def write(record: ConsumedRecord) -> bytes:
            return (null if record.value is None else record.value) + delimiter

        return write
    between = key_delimiter

    def write_with_key(record: ConsumedRecord) -> bytes:
        key = null if record.key is None else record.key
        return key + between + (null if record.value is None else record.value) + delimiter

    return write_with_key


def formatted(text: str, null: bytes) -> Writer:
    """kcat's -f."""
    tokens: dict[str, Writer] = {
        "s": lambda record: null if record.value is None else record.value,
        "S": lambda record: b"%d" % _size(record.value),
        "R": lambda record: LENGTH.pack(_size(record.value)),
        "k": lambda record: null if record.key is None else record.key,
        "K": lambda record: b"%d" % _size(record.key),
        "T": lambda record: b"%d" % record.timestamp,
        "h": lambda record: kcat_headers(record.headers),
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "%": lambda record: b"%",
    }
    pieces: list[bytes | Writer] = []
    first, *rest = text.replace("%%", "%\0").split("%")
    pieces.append(unescaped(first))
    for part in rest:
        letter = "%" if part[:1] == "\0" else part[:1]
        if letter not in tokens:
            raise Refused(f"-f: %{letter} is none of {' '.join('%' + known for known in tokens)}")
        pieces += [tokens[letter], unescaped(part[1:])]

    def write(record: ConsumedRecord) -> bytes:
        return b"".join([piece if isinstance(piece, bytes) else piece(record) for piece in pieces])

    return write


def kcat_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    return b",".join(key.encode() + b"=" + (b"NULL" if value is None else value) for key, value in headers)


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def json_lines(broker_of: Callable[[str, int], int]) -> Writer:
    """kcat's -J, a line a record."""
    from minibroker.tools.json_lines import line_of

    def write(record: ConsumedRecord) -> bytes:
        topic, partition = record.topic, record.partition
        contents = record.key, record.value, record.headers
        line = line_of(
            topic, partition, record.offset, *contents, record.timestamp, record.timestamp_type,
            broker=broker_of(topic, partition),
        )  # fmt: skip
        return line.encode() + b"\n"

    return write


CONSOLE_PROPERTIES = {
    "print.timestamp": "false",
    "print.partition": "false",
    "print.offset": "false",
    "print.headers": "false",
    "print.key": "false",
    "print.value": "true",
    "key.separator": "\\t",
    "line.separator": "\\n",
    "headers.separator": ",",
    "null.literal": "null",
}


def console(given: list[str]) -> Writer:
    """What kafka-console-consumer.sh writes: parts chosen by print.key=true and so on, in its order."""
    settings = dict(CONSOLE_PROPERTIES)
    for text in given:
        name, _, value = text.partition("=")
        if name not in settings:
            raise Refused(f"--property {name}: there are {', '.join(settings)}")
        settings[name] = value
    separator, line, between, null = (
        unescaped(settings[name]) for name in ("key.separator", "line.separator", "headers.separator", "null.literal")
    )

    def bytes_of(data: bytes | None) -> bytes:
        return null if data is None else data

    def timestamp(record: ConsumedRecord) -> bytes:
        kind = CONSOLE_TIMESTAMPS.get(record.timestamp_type)
        return f"{kind}:{record.timestamp}".encode() if kind else b"NO_TIMESTAMP"

    def headers(record: ConsumedRecord) -> bytes:
        return between.join(key.encode() + b":" + bytes_of(value) for key, value in record.headers) or b"NO_HEADERS"

    parts: dict[str, Writer] = {
        "print.timestamp": timestamp,
        "print.partition": lambda record: b"Partition:%d" % record.partition,
        "print.offset": lambda record: b"Offset:%d" % record.offset,
        "print.headers": headers,
        "print.key": lambda record: bytes_of(record.key),
        "print.value": lambda record: bytes_of(record.value),
    }
    chosen = [part for name, part in parts.items() if settings[name].lower() == "true"]

    def write(record: ConsumedRecord) -> bytes:
        return separator.join([part(record) for part in chosen]) + line

    return write
