"""A replica as a lane of cells, one for each record if there is room, else one for some.

    a b|c         records a and b are below the high watermark, c is not
    . b:c d|      the first one has gone, and c is in another segment than b
    ####-=        of many records: committed, in part, not committed
    a+b!          a marker behind each: the transaction of a was committed, that of b aborted

Pieces of a line are (style, text); painting.py makes a line of them.
What must hold: lanes of one partition have one scale, so what is at the same offset is in the same column.
"""

from __future__ import annotations

from minibroker.watch.painting import wrap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.cluster.snapshot import BrokerState, GroupState, PartitionState, ReplicaState
    from minibroker.watch.painting import Piece

NOBODY = -1
GONE, NOT_COMMITTED, IN_PART, COMMITTED = ".", "=", "-", "#"
MARKERS = {"commit": "+", "abort": "!"}
NAME_WIDTH, FIGURES_WIDTH = 14, 32
LANE_WIDTH_MIN = 11
ASSIGNED, OWNED = "assigned by the coordinator", "believes to own, and reads"


def partition_lines(
    partition: PartitionState, brokers: dict[str, BrokerState], width: int, chosen: int = NOBODY
) -> list[list[Piece]]:
    """Return a heading and a lane for each replica."""
    leader = "nobody leads" if partition["leader"] < 0 else f"broker {partition['leader']} leads"
    in_sync = ",".join(map(str, partition["isr"])) or "nobody"
    eligible = f", eligible: {','.join(map(str, partition['elr']))}" if partition["elr"] else ""
    name = f"{partition['topic']}-{partition['partition']}"
    lines: list[list[Piece]] = [
        [("bold", name), ("", f"  {leader} in epoch {partition['leader_epoch']}, in sync: {in_sync}{eligible}")]
    ]
    scale = Scale(partition, max(width - NAME_WIDTH - FIGURES_WIDTH, LANE_WIDTH_MIN))
    for broker in sorted(partition["replicas"], key=int):
        replica = partition["replicas"][broker]
        mark = ">" if int(broker) == chosen else " "
        role = _role(partition, broker, replica, brokers[broker])
        pieces: list[Piece] = [("bold" if mark == ">" else "", f"{mark} b{broker} {role}".ljust(NAME_WIDTH))]
        if replica is not None:
            pieces += scale.lane(replica)
            stable, committed = replica["last_stable_offset"], replica["high_watermark"]
            lso = f"  lso {stable}" if stable < committed else ""
            pieces.append(("", f"  hw {committed}{lso}  leo {replica['end_offset']}"))
            notes = [f"  e{epoch}@{start}" for epoch, start in replica["epochs"][-3:]]
            if replica["clean_offset"] >= 0:
                notes.append(f"  clean@{replica['clean_offset']}")
            room = width - sum(len(text) for _, text in pieces)
            while notes and sum(map(len, notes)) > room:
                del notes[0]  # rather none than one of which a digit is missing
            pieces.append(("dim", "".join(notes)))
        lines.append(pieces)
    return lines


def _role(partition: PartitionState, broker: str, replica: ReplicaState | None, state: BrokerState) -> str:
    if replica is None or state["state"] != "running":
        return state["state"]
    if partition["leader"] == int(broker):
        return "leader"
    if replica["is_leader"]:
        return "led once"  # and has not heard that another one does
    return "in sync" if int(broker) in partition["isr"] else "behind"


def group_lines(group: GroupState, width: int) -> list[list[Piece]]:
    """Return a group: its state, what each member is to have and what it believes to have, and what is committed.

    The two differ while a group rebalances: members read on until they hear of it.
    """
    members, epoch = group["members"], "generation" if group["protocol"] == "Classic" else "epoch"
    lines: list[list[Piece]] = [
        [("bold", group["id"]), ("", f"  {group['state']} in {epoch} {group['epoch']} on b{group['coordinator']}")]
    ]
    if members:
        rows = [(name, _places(each["assigned"]), _places(each["owned"])) for name, each in members.items()]
        rows.insert(0, ("", ASSIGNED, OWNED))
        first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
        second = max(min(second, width - first - len(OWNED) - 6), len(ASSIGNED))
        for number, row in enumerate(rows):
            text = f"  {row[0].ljust(first)}  {_cut(row[1], second).ljust(second)}  "
            lines.append([("" if number else "dim", text + _cut(row[2], width - len(text)))])
    else:
        lines[0].append(("", ", nobody is in"))
    committed = [f"{place}@{offset}" for place, offset in group["committed"].items()]
    if committed:
        lines += [[("dim", line)] for line in wrap(f"committed {', '.join(committed)}", width, "    ", first="  ")]
    return lines


def _places(places: list[str]) -> str:
    return ", ".join(places) or "nothing"


def _cut(text: str, width: int) -> str:
    """Return a text that fits, and says so if it is not all."""
    return text if len(text) <= width else text[: max(width - 3, 0)].rpartition(",")[0] + " ..."


class Scale:
    """From offsets to columns."""

    def __init__(self, partition: PartitionState, width: int):
        replicas = [each for each in partition["replicas"].values() if each is not None]
        self.start = min((each["start_offset"] for each in replicas), default=0)
        self.end = max((each["end_offset"] for each in replicas), default=0)
        self.width = width
        count = self.end - self.start
        self.shows_each = 2 * count + 1 <= width
        self.step = -(-count // width) or 1  # offsets in one cell

    def lane(self, replica: ReplicaState) -> list[Piece]:
        pieces = self._records(replica) if self.shows_each else self._bar(replica)
        used = sum(len(text) for _, text in pieces)
        return [*pieces, ("", " " * (self.width - used))]

    def _records(self, replica: ReplicaState) -> list[Piece]:
        pieces: list[Piece] = []
        for offset in range(self.start, self.end + 1):
            is_mark = offset == replica["high_watermark"]
            begins = offset in replica["segments"] and offset > self.start
            pieces.append(("bold", "|") if is_mark else ("dim", ":") if begins else ("", " "))
            if offset < replica["start_offset"] or _is_gap(replica, offset, offset):
                pieces.append(("dim", GONE))
            elif offset < replica["end_offset"]:
                text = MARKERS.get(replica["markers"].get(str(offset), "")) or replica["texts"].get(str(offset), "")
                shown = text[:1] if text[:1].isprintable() and text[:1] != " " else ""
                is_committed = offset < replica["high_watermark"]
                pieces.append((_style(replica, offset), shown or (COMMITTED if is_committed else NOT_COMMITTED)))
            elif offset < self.end:
                pieces.append(("", " "))
        return pieces

    def _bar(self, replica: ReplicaState) -> list[Piece]:
        pieces: list[Piece] = []
        for offset in range(self.start, self.end, self.step):
            last = min(offset + self.step, self.end) - 1
            if last < replica["start_offset"] or _is_gap(replica, offset, last):
                pieces.append(("dim", GONE))
            elif offset >= replica["end_offset"]:
                pieces.append(("", " "))
            else:
                high_watermark = replica["high_watermark"]
                mark = NOT_COMMITTED if max(offset, replica["start_offset"]) >= high_watermark else IN_PART
                if min(last, replica["end_offset"] - 1) < high_watermark:
                    mark = COMMITTED
                pieces.append((_style(replica, offset), mark))
        return pieces


def _is_gap(replica: ReplicaState, first: int, last: int) -> bool:
    """Whether compaction has taken all records from one offset to another."""
    return any(start <= first and last < end for start, end in replica["gaps"])


def _style(replica: ReplicaState, offset: int) -> str:
    """Return the colour of the epoch in which a record was written."""
    found = 0
    for epoch, start_offset in replica["epochs"]:
        if start_offset <= offset:
            found = epoch
    return f"epoch{found % 6}"
