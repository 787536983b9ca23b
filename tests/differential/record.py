"""Records what Kafka answers to the scenario of transactions: `python -m tests.differential.record VERSION FILE`.

Both sides are played as ever, for what is asked next depends on answers; kept are the bytes of the expected one. Of
a question that was asked until its answer was right (`waited`) only that answer is kept. sessions.py replays all. The
first line says when it was.
"""

from __future__ import annotations

import json
import lzma
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from minibroker.protocol.registry import APIS
from tests.differential.kafka import SETTINGS, Kafka
from tests.differential.ours import ours
from tests.differential.play import Exchange, Play
from tests.differential.scenario.produce import await_producer_ids
from tests.differential.scenario.transactions import play_transactions
from tests.differential.wire import ANSWER_SECONDS_MAX, Outcome, Side

API_VERSIONS = 18


class RecordingSide(Side):
    """A broker's side that keeps what was asked and answered, over all its connections."""

    rows: list[dict[str, Any]] = []
    is_repeated = False  # the last one was asked in the same words before

    def send(self, request: bytes) -> None:
        self._request = request
        super().send(request)

    def receive(self, seconds_max: float = ANSWER_SECONDS_MAX) -> Outcome:
        outcome = super().receive(seconds_max)
        number, version = (int.from_bytes(self._request[at : at + 2], "big") for at in (0, 2))
        row = {"name": "", "api": APIS[number], "version": version, "result": outcome.kind, "waited": True}
        row |= {"request": self._request.hex(), "response": outcome.frame.hex()}
        last = self.rows[-1] if self.rows else {}
        RecordingSide.is_repeated = last.get("name") == "" and last["request"] == row["request"]
        if self.is_repeated:
            self.rows.pop()
        if number != API_VERSIONS:
            self.rows.append(row)
        return outcome


def name_last(exchange: Exchange) -> None:
    """Note what the last question was for, if it was compared, and not only waited for."""
    RecordingSide.rows[-1] |= {"name": exchange.step, "waited": RecordingSide.is_repeated}


def main(version: str, target: Path) -> None:
    started_ms = int(time.time() * 1000)
    like = ("--memory", "--as-version", version[:3])
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        with Kafka(version, work / "kafka") as kafka, ours(work / "ours.txt", *like, settings=SETTINGS) as address:
            play = Play(RecordingSide(kafka.address), Side(address))
            play.watch = name_last
            await_producer_ids(play)
            play_transactions(play)
    rows = [{"recorded_ms": started_ms}, *({"step": step, **row} for step, row in enumerate(RecordingSide.rows, 1))]
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    target.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
