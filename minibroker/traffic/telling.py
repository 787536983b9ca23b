"""A line for each request as soon as it is answered, for `minibroker proxy -v`."""

from __future__ import annotations

from minibroker.clock import machine_ms
from minibroker.server.large_answer import read_whole
from minibroker.traffic.lines import RequestRow, names_told, summary_of
from minibroker.traffic.tap import Tap, is_token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from minibroker.clock import Clock
    from minibroker.server.connection import Connection, Service
    from minibroker.server.large_answer import AnyChunk


class Telling:
    """Says what passes some listeners."""

    def __init__(self, clock: Clock, say: Callable[[str], None]):
        self.clock = clock
        self.say = say
        self.names: dict[bytes, str] = {}

    def over(self, service: Service, broker: int) -> Service:
        """Return a service that tells of what passes."""
        return _TellingTap(service, self, broker)


class _TellingTap(Tap):
    def __init__(self, service: Service, telling: Telling, broker: int):
        super().__init__(service)
        self._telling = telling
        self._broker = broker

    def asked(self, frame: memoryview, connection: Connection) -> tuple[int, float, bytes]:
        request = b"" if is_token(frame, connection) else bytes(frame)
        return self._telling.clock.now_ms(), machine_ms(), request

    def answered(self, exchange: Any, chunks: Sequence[AnyChunk] | None) -> None:
        self._tell(exchange, None if chunks is None else b"".join(map(read_whole, chunks)), "")

    def failed(self, exchange: Any, failure: Exception) -> None:
        self._tell(exchange, None, f"closed: {failure}")

    def _tell(self, exchange: Any, answer: bytes | None, error: str) -> None:
        time_ms, begun_ms, request = exchange
        names = self._telling.names
        if answer is not None:
            names |= names_told(request, answer[4:])
        said = summary_of(request, answer, names.get)
        took_ms = machine_ms() - begun_ms
        row = RequestRow(time_ms, *said[:4], error or said.error, took_ms, self._broker)
        self._telling.say(str(row))
