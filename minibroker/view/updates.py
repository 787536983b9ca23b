"""Bringing the tables of a state up to date: which rows have to be looked at, and what they are now.

Where rows are few all are looked at. Where they can be many, events say which have changed: topics and their health,
groups, transactions. Rows of partitions change with every record, so they are made of those that somebody looks at.
What must hold: whatever changes a row that is many has an event that is marked here, or the row is looked at again and
again, as that of a transaction that ends.
"""

from __future__ import annotations

from minibroker.errors import KafkaError, ProtocolError
from minibroker.event_kinds import is_internal
from minibroker.view.contents import Contents
from minibroker.view.rows import cell_of, key_of, log_face, log_key, log_row, partition_row, topic_row
from minibroker.view.table import LISTED, RowTable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Generator, Iterable

    from minibroker.events import Event
    from minibroker.log.partition_log import PartitionLog
    from minibroker.view.state import ViewState

    Place = tuple[str, int]
    Work = Generator[int, None, None]

CONTROLLER_ID = 3000  # in events
TOPIC_KINDS = frozenset(("topic", "replicas", "isr", "leader"))
TOPIC_TABLES, COORDINATED_TABLES = frozenset(("topics", "cells")), frozenset(("groups", "transactions"))
ENDING = ("PrepareCommit", "PrepareAbort")  # with each marker there is a partition less, and no event
CELLS_TOGETHER, SUMS_TOGETHER = 500, 100
# Microseconds that a piece of work takes, about.
SMALL_US, ROWS_US, TOPIC_US, COORDINATED_US, SUM_US, CONTENTS_US, RECORD_US = 300, 120, 40, 30, 5, 50, 10


class Updates:
    """Of one state."""

    def __init__(self, state: ViewState):
        self.state = state
        self.source = state.source
        self._topics: dict[str, None] = {}  # what may have changed
        self._coordinated: dict[str, dict[str, None]] = {name: {} for name in COORDINATED_TABLES}
        self._serving: object = None  # who answered for groups and transactions when they were looked at last
        self._faces: dict[str, tuple[object, ...]] = {}  # of logs, by their keys: what their rows were made of
        self._contents: dict[str, tuple[PartitionLog, Contents]] = {}  # what was read of logs, by their keys
        self._all: set[str] = set(LISTED)  # tables of which anything may have

    def mark(self, event: Event) -> None:
        """Note what an event says has changed."""
        kind = event.kind
        if kind in TOPIC_KINDS:
            topic: str = event.topic  # type: ignore[attr-defined]
            self._topics[topic] = None
            if kind == "leader" and is_internal(topic):
                self._all |= COORDINATED_TABLES
        elif kind == "config":
            if event.resource == "topic":  # type: ignore[attr-defined]
                self._topics[event.name] = None  # type: ignore[attr-defined]
            elif event.resource == "broker":  # type: ignore[attr-defined]
                self._all |= TOPIC_TABLES
        elif kind in ("group", "members"):
            self._coordinated["groups"][event.group] = None  # type: ignore[attr-defined]
        elif kind == "transaction":
            self._coordinated["transactions"][event.id] = None  # type: ignore[attr-defined]
        elif kind == "coordinator":
            self._all |= COORDINATED_TABLES
        elif kind == "broker":
            self._all |= COORDINATED_TABLES
            if event.broker == CONTROLLER_ID:  # type: ignore[attr-defined]
                self._all |= TOPIC_TABLES

    # What everybody sees

    def run(self, seq: int) -> Work:
        """Have all tables as they are now that everybody gets; what changes belongs to a frame."""
        for name, rows in self.source.small_tables().items():
            self.state.tables[name].replace(rows, seq)
        if (serving := self.source.serving) != self._serving:
            self._serving = serving
            self._all |= COORDINATED_TABLES
        yield SMALL_US
        yield from self._update_topics(seq)
        yield from self._update_coordinated("groups", self.source.group_ids, self.source.group_row, seq)
        ids, row_of = self.source.transaction_ids, self.source.transaction_row
        yield from self._update_coordinated("transactions", ids, row_of, seq)

    def _update_topics(self, seq: int) -> Work:
        image, topics, cells = self.source.image, self.state.tables["topics"], self.state.tables["cells"]
        names, self._topics = self._topics, {}
        if not self._all.isdisjoint(TOPIC_TABLES):
            self._all -= TOPIC_TABLES
            names = {**dict.fromkeys(topics.rows), **dict.fromkeys(image.topics)}
        for name in names:
            topic = image.topics.get(name)
            if topic is None:
                topics.remove(name, seq)
                cells.remove(name, seq)
                continue
            topics.put(name, topic_row(self.source, topic), seq)
            min_in_sync = self.source.min_in_sync(name)
            letters = []
            for start in range(0, len(topic.partitions), CELLS_TOGETHER):
                some = topic.partitions[start : start + CELLS_TOGETHER]
                letters += [cell_of(each, min_in_sync) for each in some]
                yield TOPIC_US + 2 * len(some)
            cells.put(name, "".join(letters), seq)

    def _update_coordinated(
        self, name: str, ids: Callable[[], Iterable[str]], row_of: Callable[[str], list[object] | None], seq: int
    ) -> Work:
        table = self.state.tables[name]
        keys, self._coordinated[name] = self._coordinated[name], {}
        if name in self._all:
            self._all.discard(name)
            keys = {**dict.fromkeys(table.rows), **dict.fromkeys(ids())}
            yield len(keys)
        for key in keys:
            row = row_of(key)
            table.put(key, row, seq)
            if row is not None and row[0] in ENDING:
                self._coordinated[name][key] = None
            yield COORDINATED_US

    # What somebody has chosen

    def rows(self, places: Collection[Place], seq: int, rows: RowTable, logs: RowTable) -> Work:
        """Have the rows of some partitions, and of their replicas' logs, as they are now."""
        for place in places:
            self._put_rows(*place, rows, logs, seq)
            yield ROWS_US

    def forget_others(self, places: Collection[Place], shown: Collection[Place], read: Collection[Place]) -> None:
        """Forget rows of partitions that nobody looks at, and of those that were looked at now what is there no more.

        shown: what somebody looks at; read: those of which somebody wants the records.
        """
        tables, image = self.state.tables, self.source.image
        looked, wanted = {key_of(*place) for place in places}, {key_of(*place) for place in shown}
        wanted_contents = {key_of(*place) for place in read}
        alive: set[str] = set()
        for name, number in places:
            topic = image.topics.get(name)
            if topic is not None and number < len(topic.partitions):
                brokers = topic.partitions[number].replicas
                alive.add(key_of(name, number))
                for broker, replica in zip(brokers, self.source.replicas(name, number, brokers), strict=True):
                    if replica is not None:
                        alive.add(log_key(name, number, broker))
        for name in ("rows", "logs", "contents"):
            table, partitions = tables[name], wanted_contents if name == "contents" else wanted
            for key in list(table.rows):
                partition = key.partition("@")[0]
                if partition not in partitions or (partition in looked and key not in alive):
                    table.forget(key)
        for known, name in ((self._faces, "logs"), (self._contents, "contents")):
            for key in [key for key in known if key not in tables[name].rows]:
                del known[key]

    def _put_rows(self, name: str, number: int, rows: RowTable, logs: RowTable, seq: int) -> None:
        topic = self.source.image.topics.get(name)
        if topic is None or number >= len(topic.partitions):
            return  # it has been deleted just now
        partition = topic.partitions[number]
        replicas = self.source.replicas(name, number, partition.replicas)
        rows.put(key_of(name, number), partition_row(name, partition, replicas), seq)
        for replica in replicas:
            if replica is not None:
                key = log_key(name, number, replica.node_id)
                clean_offset = self.source.clean_offset(replica)
                face = log_face(replica.log, clean_offset)
                if key not in logs.rows or self._faces.get(key) != face:
                    if logs is self.state.tables["logs"]:
                        self._faces[key] = face
                    logs.put(key, log_row(replica.log, clean_offset), seq)

    def contents(self, places: Collection[Place], seq: int, contents: RowTable) -> Work:
        """Have the records of short logs of some partitions as they are now."""
        for name, number in places:
            topic = self.source.image.topics.get(name)
            partition = None if topic is None or number >= len(topic.partitions) else topic.partitions[number]
            brokers = () if partition is None else partition.replicas
            for replica in self.source.replicas(name, number, brokers):
                if replica is None:
                    continue
                key = log_key(name, number, replica.node_id)
                log, known = replica.log, self._contents.get(key)
                read = known[1] if known is not None and known[0] is log else Contents()
                self._contents[key] = log, read
                try:
                    count = read.look(log)
                except (KafkaError, ProtocolError):  # it is damaged, or its disk fails: nobody knows what is in it
                    del self._contents[key]
                    contents.remove(key, seq)
                    yield CONTENTS_US
                    continue
                contents.put(key, read.row(), seq)
                yield CONTENTS_US + count * RECORD_US

    def members(self, groups: Iterable[str], shown: Container[str], seq: int, members: RowTable) -> Work:
        """Have the views of some groups as they are now; none but what is shown."""
        for group in groups:
            view: dict[str, object] | None = None
            for step in self.source.group_view(group):
                if isinstance(step, int):
                    yield step
                else:
                    view = step
            members.put(group, view, seq)
        for key in [key for key in members.rows if key not in shown]:
            members.forget(key)

    def sums(self, seq: Callable[[], int], table: RowTable) -> Work:
        """Add up offsets and bytes of each topic, as the leaders have them. seq: of the frame that is made by then."""
        source = self.source
        for name, topic in list(source.image.topics.items()):
            starts = ends = size_bytes = 0
            for count, partition in enumerate(list(topic.partitions), 1):
                (replica,) = source.replicas(name, partition.id, (partition.leader,))
                if replica is not None:
                    log = replica.log
                    starts += log.log_start_offset
                    ends += log.log_end_offset
                    size_bytes += log.size_bytes
                if count % SUMS_TOGETHER == 0:
                    yield SUMS_TOGETHER * SUM_US
            if name in source.image.topics:
                table.put(name, [starts, ends, size_bytes], seq())
            yield TOPIC_US + len(topic.partitions) % SUMS_TOGETHER * SUM_US
        for name in [name for name in table.rows if name not in source.image.topics]:
            table.remove(name, seq())

    def clients(self, seq: int, table: RowTable) -> Work:
        rows: dict[str, object] = {}
        for key, row in self.source.client_rows():
            rows[key] = row
            yield COORDINATED_US
        table.replace(rows, seq)
