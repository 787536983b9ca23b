"""The entries of a recording as requests with their answers, and as lines for people."""

from __future__ import annotations

from minibroker.traffic.lines import RequestRow, names_told, summary_of
from minibroker.traffic.recording import ANSWER, CONNECTION, REQUEST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from minibroker.traffic.recording import Entry


class RecordedExchange:
    """A request, and its answer if there is one."""

    def __init__(self, request: Entry):
        self.request = request
        self.answer: Entry | None = None


def paired(entries: Iterable[Entry]) -> list[tuple[Entry, RecordedExchange]]:
    """Return requests and answers in their order, each with the exchange that it belongs to."""
    waiting: dict[int, list[RecordedExchange]] = {}
    found = []
    for entry in entries:
        if entry.kind == REQUEST:
            exchange = RecordedExchange(entry)
            waiting.setdefault(entry.connection, []).append(exchange)
            found.append((entry, exchange))
        elif entry.kind == ANSWER:
            of_connection = waiting.get(entry.connection, [])
            for place, exchange in enumerate(of_connection):
                if not exchange.request.payload or exchange.request.correlation_id == entry.correlation_id:
                    exchange.answer = entry
                    del of_connection[: place + 1]  # those before it get none
                    found.append((entry, exchange))
                    break
    return found


def topic_names(entries: Iterable[tuple[Entry, RecordedExchange]]) -> dict[bytes, str]:
    """Return the names of topics by their ids, as answers to Metadata tell them."""
    found: dict[bytes, str] = {}
    for entry, exchange in entries:
        if entry.kind == ANSWER and not entry.is_masked:
            found |= names_told(exchange.request.payload, entry.payload)
    return found


def rows(entries: list[Entry]) -> Iterator[tuple[int, RequestRow]]:
    """Yield connection and row of each request."""
    brokers = {each.connection: int(each.payload.split(b"\t")[0]) for each in entries if each.kind == CONNECTION}
    found = paired(entries)
    names = topic_names(found)
    for entry, exchange in found:
        if entry.kind == REQUEST:
            yield entry.connection, row_of(exchange, names, brokers.get(entry.connection, -1))


def row_of(exchange: RecordedExchange, names: dict[bytes, str], broker: int = -1) -> RequestRow:
    """Return an exchange for people."""
    request, answer = exchange.request, exchange.answer
    framed = None if answer is None else len(answer.payload).to_bytes(4) + answer.payload
    said = summary_of(request.payload, None if answer is not None and answer.is_masked else framed, names.get)
    took_ms = None if answer is None else (answer.time_us - request.time_us) / 1000
    return RequestRow(request.time_us // 1000, *said[:5], took_ms, broker)
