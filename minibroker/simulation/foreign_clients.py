"""What foreign clients have beside the world that they run in: clocks of compiled parts, counters of their modules.

aiokafka's compiled builder of batches gives a record without a timestamp the machine's time: in a simulation it is told
the time, by the class around it, which is Python. Its producers are numbered in the names by which they call
themselves: in each simulation from the beginning. Where it was not imported there is nothing to do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from minibroker.simulation.strays import Replaced

PRODUCERS_COUNTED = "_PRODUCER_CLIENT_ID_SEQUENCE"


def of_clients(now_ms: Callable[[], int]) -> list[Replaced]:
    """Return what has to stand in the place of what would differ from run to run."""
    replaced: list[Replaced] = []
    producer = getattr(sys.modules.get("aiokafka.producer.producer"), "AIOKafkaProducer", None)
    if hasattr(producer, PRODUCERS_COUNTED):
        replaced.append((producer, PRODUCERS_COUNTED, 0))
    builder = getattr(sys.modules.get("aiokafka.producer.message_accumulator"), "BatchBuilder", None)
    if builder is not None:
        append = builder.append

        def append_now(self: Any, *, timestamp: int | None, **named: Any) -> Any:
            return append(self, timestamp=now_ms() if timestamp is None else timestamp, **named)

        replaced.append((builder, "append", append_now))
    return replaced
