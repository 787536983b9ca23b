"""What `minibroker produce` reads: bytes of stdin and files, cut into lines, made into records.

What must hold: a line that has come is handed on at once, whether or not another follows; nothing waits in a thread,
so Ctrl-C ends it.
"""

from __future__ import annotations

import os

from minibroker.cli.connect import Refused
from minibroker.cli.record_format import unescaped

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    import asyncio
    from collections.abc import AsyncIterator, Callable, Sequence

    Parser = Callable[[bytes], "Draft"]

CHUNK_BYTES = 256 * 1024
READER_PROPERTIES = {
    "parse.key": "false",
    "parse.headers": "false",
    "key.separator": "\\t",
    "headers.delimiter": "\\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
    "null.marker": "",
}


class Draft:
    """A record that is to be written."""

    __slots__ = ("headers", "key", "timestamp", "value")

    def __init__(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp: int | None = None,
    ):
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp = timestamp


async def chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Yield bytes as they come, without blocking where others write them (pipes, terminals, sockets)."""
    import asyncio

    loop = asyncio.get_running_loop()
    while True:
        ready = loop.create_future()

        def wake(ready: asyncio.Future[None] = ready) -> None:
            loop.remove_reader(descriptor)  # called twice for the same bytes, the second read would block everything
            ready.set_result(None)

        try:
            loop.add_reader(descriptor, wake)
        except OSError:
            pass  # a file: always ready
        else:
            try:
                await ready
            finally:
                loop.remove_reader(descriptor)
        data = os.read(descriptor, CHUNK_BYTES)
        if not data:
            return
        yield data


async def lines(descriptor: int, delimiter: bytes) -> AsyncIterator[list[bytes]]:
    """Yield what stands between delimiters, as much as has come."""
    rest = bytearray()
    async for data in chunks(descriptor):
        # Only the seam and what is new can hold a delimiter: a line of megabytes is not searched again and again.
        seam = max(0, len(rest) - len(delimiter) + 1)
        rest += data
        if rest.find(delimiter, seam) >= 0:
            *whole, last = bytes(rest).split(delimiter)
            rest = bytearray(last)
            yield whole
    if rest:
        yield [bytes(rest)]


def parser_of(options: argparse.Namespace) -> Parser:
    """Return what makes a line into a record."""
    headers = [_header(text) for text in options.headers]
    if options.json:
        return _json_line
    if options.console:
        return _console_line(options.console)
    fixed_key = None if options.key is None else os.fsencode(options.key)
    delimiter = None if options.key_delimiter is None else unescaped(options.key_delimiter)
    is_null = options.null

    def parse(line: bytes) -> Draft:
        key: bytes | None = fixed_key
        value: bytes | None = line
        if delimiter is not None:
            before, found, after = line.partition(delimiter)
            if found:
                key, value = before, after
        if is_null:
            key, value = key or None, value or None
        return Draft(key, value, headers)

    if delimiter == b"":
        raise Refused("-K: an empty delimiter divides nothing")
    return parse


def _header(text: str) -> tuple[str, bytes | None]:
    name, separator, value = text.partition("=")
    return name, os.fsencode(value) if separator else None


def _json_line(line: bytes) -> Draft:
    """Read what `minibroker consume -J` and kcat -J write; topic, partition and offset are not looked at."""
    from minibroker.tools.json_lines import read_line

    try:
        found = read_line(line)
    except ValueError as error:
        raise Refused(f"-J: {error}") from None
    return Draft(found["key"], found["payload"], found["headers"], found.get("ts"))


def _console_line(given: list[str]) -> Parser:
    """kafka-console-producer.sh's reader: headers, key, value, as far as they are asked for."""
    settings = dict(READER_PROPERTIES)
    for text in given:
        name, _, value = text.partition("=")
        if name not in settings:
            raise Refused(f"--property {name}: there are {', '.join(settings)}")
        settings[name] = value
    has_key, has_headers = (settings[name].lower() == "true" for name in ("parse.key", "parse.headers"))
    between, behind_headers, between_headers, in_header = (
        unescaped(settings[name])
        for name in ("key.separator", "headers.delimiter", "headers.separator", "headers.key.separator")
    )
    null = unescaped(settings["null.marker"])

    def or_null(data: bytes) -> bytes | None:
        return None if null and data == null else data

    def parse(line: bytes) -> Draft:
        headers: list[tuple[str, bytes | None]] = []
        key = None
        value = line
        if has_headers:
            text, found, value = line.partition(behind_headers)
            if not found:
                raise Refused(f"{line[:60]!r}: no headers.delimiter {behind_headers!r} in it")
            if text and or_null(text) is not None:
                for item in text.split(between_headers):
                    name, _, content = item.partition(in_header)
                    headers.append((name.decode("utf-8", "replace"), or_null(content)))
        if has_key:
            before, found, value = value.partition(between)
            if not found:
                raise Refused(f"{line[:60]!r}: no key.separator {between!r} in it")
            key = or_null(before)
        return Draft(key, or_null(value), headers)

    return parse
