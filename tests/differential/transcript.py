"""Writes down what was asked and how it was answered, for those who want to read what Kafka says."""

from __future__ import annotations

from typing import Any

from minibroker.protocol.registry import APIS
from minibroker.schema.message import Struct
from tests.differential.play import Exchange

HIDDEN = ("throttle_time_ms",)


class Transcript:
    """The exchanges of a play; the same one in several versions is written once."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str, str], list[int]] = {}

    def add(self, exchange: Exchange) -> None:
        """Take an exchange."""
        api = APIS[exchange.request.api]
        asked = f"{exchange.who or '-'} {shown(exchange.request)}"
        answer = exchange.outcome if exchange.answer is None else shown(exchange.answer)
        self._rows.setdefault((exchange.step, api, asked, answer), []).append(exchange.version)

    def text(self) -> str:
        """Return everything, in order."""
        return "".join(
            f"{step}\n    {api} v{','.join(map(str, versions))}\n    > {asked}\n    < {answer}\n\n"
            for (step, api, asked, answer), versions in self._rows.items()
        )


def shown(value: Any) -> str:
    """Return a message in one line, without what is null, empty or hidden."""
    if isinstance(value, Struct):
        fields = [(name, getattr(value, name)) for name in value.__fields_all__() if name not in HIDDEN]
        return "{" + ", ".join(f"{name}={shown(item)}" for name, item in fields if _tells(name, item)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    if isinstance(value, memoryview):
        value = bytes(value)
    return value.hex() if isinstance(value, bytes) and len(value) == 16 else repr(value)


def _tells(name: str, value: Any) -> bool:
    return name == "error_code" or value not in (None, [], -(1 << 31))
