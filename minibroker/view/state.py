"""The tables of what there is to see, as of a frame, and what was said."""

from __future__ import annotations

from minibroker.view.rows import COLUMNS, REPLICA_COLUMNS
from minibroker.view.said import Said
from minibroker.view.table import CHOSEN, LISTED, SMALL, RowTable, encode, write_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from minibroker.view.source import ViewSource


class ViewState:
    """One from when somebody begins to look to when nobody does any more."""

    def __init__(self, source: ViewSource, boot: str):
        self.source = source
        self.boot = boot
        self.seq = 0  # of the last frame that is complete
        self.said = Said()
        self.is_quiet = False  # nothing is told of what happens all the time, for it is too much
        self.tables: dict[str, RowTable] = {name: RowTable() for name in (*SMALL, *LISTED, *CHOSEN)}

    def head(self, seq: int) -> str:
        """Return how a state and a frame begin, as JSON."""
        return f'"seq":{seq},"t":{self.source.now_ms()},"steady_ms":{self.source.steady_ms()}'

    def write(
        self, pieces: list[str], chosen: Mapping[str, Mapping[str, str]], seq: int, left_out: Mapping[str, int]
    ) -> Generator[int, None, None]:
        """Write all of it, as JSON; what changes meanwhile is told with the next frame.

        chosen: the tables of which each viewer has others.
        """
        columns = encode({**COLUMNS, "replica_states": REPLICA_COLUMNS})
        pieces.append(
            f'{{"v":1,"boot":{encode(self.boot)},{self.head(seq)},"columns":{columns},"left_out":{encode(left_out)}'
        )
        for name in (*SMALL, *LISTED):
            yield from write_table(name, self.tables[name].texts, pieces)
        for name in CHOSEN:
            yield from write_table(name, chosen[name], pieces)
        pieces.append("}")
