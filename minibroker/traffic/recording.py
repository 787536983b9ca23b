"""A file of frames, as they crossed a listener: only ever appended to, and read as far as it is whole.

    file    "minibroker record 1\\n" | entry...
    entry   size uint32 | CRC-32 uint32 | kind uint8 | flags uint8 | connection uint32 | time_us uint64 | payload

All numbers are big-endian; size and CRC are of what follows the CRC, time_us counts since 1970, connections are
numbered from 1 and their numbers are not used again. Kinds:

    1 CONNECTION   payload: "broker id, address of the listener, address of the client", with tabs between them
    2 REQUEST      payload: the frame without its length in front
    3 ANSWER       the same; it answers the first request of its connection with this correlation id

Flag 1, MASKED: of the frame only the header is here, of a token without one nothing, and the rest is not known: what
logins say, tokens, passwords, settings that look like these.
What must hold: a broker goes on if nothing can be written any more. Whatever is behind the last whole entry is no part
of the file, and is cut off by whoever appends next.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import NamedTuple
from zlib import crc32

from minibroker.clock import machine_ms
from minibroker.server.large_answer import read_whole
from minibroker.traffic.tap import SECRETS, Tap, is_token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from io import FileIO
    from typing import Any

    from minibroker.clock import Clock
    from minibroker.server.connection import Connection, Service
    from minibroker.server.large_answer import AnyChunk

MAGIC = b"minibroker record 1\n"
CONNECTION, REQUEST, ANSWER = 1, 2, 3
MASKED = 1
FRONT, HEAD = Layout(">II"), Layout(">BBIQ")
HEADER_BYTES = 8  # of a masked request: API, version, correlation id
ANSWER_BYTES = 4  # of a masked answer: correlation id
# APIs whose settings may be passwords: CreateTopics, AlterConfigs, IncrementalAlterConfigs; and how these begin.
OF_SETTINGS = frozenset((b"\0\x13", b"\0\x21", b"\0\x2c"))
SECRET_WORDS = (b"password", b"jaas", b"secret", b"keystore", b"credential")


class Entry(NamedTuple):
    """One of a file."""

    kind: int
    is_masked: bool
    connection: int
    time_us: int
    payload: bytes

    @property
    def correlation_id(self) -> bytes:
        return self.payload[4:8] if self.kind == REQUEST else self.payload[:4]


class BrokenRecording(ValueError):
    """A file that is no recording."""


class Recording(NamedTuple):
    """What a file holds."""

    entries: list[Entry]
    end: int  # where the last whole entry ends
    torn_bytes: int  # behind that


def read_recording(data: bytes) -> Recording:
    """Return the entries of a file; what is behind the last whole one is counted."""
    if not data.startswith(MAGIC):
        raise BrokenRecording("it does not begin as a recording does")
    entries, position = [], len(MAGIC)
    while position + FRONT.size <= len(data):
        size, checksum = FRONT.unpack_from(data, position)
        begin, end = position + FRONT.size, position + FRONT.size + size
        if size < HEAD.size or end > len(data) or crc32(data[begin:end]) != checksum:
            break
        kind, flags, connection, time_us = HEAD.unpack_from(data, begin)
        entries.append(Entry(kind, bool(flags & MASKED), connection, time_us, data[begin + HEAD.size : end]))
        position = end
    return Recording(entries, position, len(data) - position)


class Recorder:
    """Writes what passes the listeners of some brokers."""

    def __init__(self, file: FileIO, clock: Clock, say: Callable[[str], None], next_connection: int = 1):
        """file: appended to, until `close`. say: tells people that nothing can be written any more."""
        self._file: FileIO | None = file
        self._say = say
        # By the machine's clock from here on, to the microsecond, for what lies between two frames is of interest.
        self._begun_us = clock.now_ms() * 1000 - int(machine_ms() * 1000)
        self._next_connection = next_connection
        self._connections: dict[Connection, int] = {}

    def close(self) -> None:
        """Write nothing more."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def over(self, service: Service, broker: int) -> Service:
        """Return a service that writes down what passes."""
        return _RecordingTap(service, self, broker)

    def number(self, connection: Connection, broker: int) -> int:
        """Return the number of a connection; a new one is written down."""
        number = self._connections.get(connection)
        if number is None:
            for gone in [each for each in self._connections if each.is_closing]:
                del self._connections[gone]
            number = self._connections[connection] = self._next_connection
            self._next_connection += 1
            ends = (f"{host}:{port}" for host, port in (connection.local_address, connection.remote_address))
            self.put(CONNECTION, number, "\t".join([str(broker), *ends]).encode())
        return number

    def put(self, kind: int, connection: int, payload: bytes, *, is_masked: bool = False) -> None:
        if self._file is None:
            return
        time_us = self._begun_us + int(machine_ms() * 1000)
        rest = HEAD.pack(kind, MASKED if is_masked else 0, connection, time_us) + payload
        try:
            self._file.write(FRONT.pack(len(rest), crc32(rest)) + rest)
        except OSError as failure:
            self.close()
            self._say(f"the recording ends here, nothing can be written: {failure.strerror}")


class _RecordingTap(Tap):
    """The service of one broker's listener."""

    def __init__(self, service: Service, recorder: Recorder, broker: int):
        super().__init__(service)
        self._recorder = recorder
        self._broker = broker

    def asked(self, frame: memoryview, connection: Connection) -> tuple[int, int]:
        """Return the number of the connection, and how much of the answer may be kept; -1: all."""
        number = self._recorder.number(connection, self._broker)
        if is_token(frame, connection):
            payload, of_answer = b"", 0
        elif _is_secret(frame):
            payload, of_answer = bytes(frame[:HEADER_BYTES]), ANSWER_BYTES
        else:
            payload, of_answer = bytes(frame), -1
        self._recorder.put(REQUEST, number, payload, is_masked=of_answer >= 0)
        return number, of_answer

    def answered(self, exchange: Any, chunks: Sequence[AnyChunk] | None) -> None:
        if chunks is None:
            return
        number, of_answer = exchange
        frame = b"".join(read_whole(chunk) for chunk in chunks)[4:]
        self._recorder.put(ANSWER, number, frame if of_answer < 0 else frame[:of_answer], is_masked=of_answer >= 0)


def _is_secret(frame: memoryview) -> bool:
    api = bytes(frame[:2])
    if api in SECRETS:
        return True
    return api in OF_SETTINGS and any(word in bytes(frame).lower() for word in SECRET_WORDS)
