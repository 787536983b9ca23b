"""The Parquet files of an export, written by Spark's tasks from Arrow: a plain folder for all who read Parquet.

    _common_metadata                              the columns, for Spark and for the next run
    topic=orders/date=2026-01-02/00000007-000003-0000.parquet      micro-batch, task, number within the task
    topic=orders/date=2026-01-02/00000001-...-00000009-....parquet   small files together: the first's name, the last's
    .export-RUN/                                  what tasks of a run are writing

A file is written below its run's hidden folder and renamed when it is whole; an object store shows it when it is whole.
What must hold: a micro-batch that is repeated finds no file of its own number, and what is left of the run before
cannot add one any more, as its hidden folder is gone (clean). Of files that were put together those go whose names lie
within another's. So each record is there once, at any time, but between the last two steps of putting files together.
Not here: which micro-batches there are (Spark's checkpoint), where rows come from (export_stream.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from minibroker.spark.arrow_map import map_in_arrow
from minibroker.spark.columns.arrays import by_value
from minibroker.spark.folders import Folder
from minibroker.spark.jobs.tasks import grouped

pc: Any = pyarrow.compute  # its functions are made when it is imported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.spark.arrow_map import ArrowFunction

SCHEMA = "_common_metadata"
HIDDEN, GONE = ".export-", ".gone"
BUFFER_BYTES = 64 << 20  # of rows that wait to be a row group; of all files that a task writes
PIECE_BYTES = 1024  # that some rows take besides what is in them
FILES_MAX = 64  # open at once
FILE_BYTES = 128 << 20  # of small files together
ROW_GROUP_ROWS = 1 << 20
BAD = "bad"  # a column of rows that could not be parsed: counted, not written
RESULTS = "topic string, files bigint, records bigint, bytes bigint, bad bigint"
RESULTS_NAMES = [column.split()[0] for column in RESULTS.split(", ")]
NAME = re.compile(r"(\d{8,}-\d{6,}-\d{4,})(?:-(\d{8,}-\d{6,}-\d{4,}))?\.parquet")
# What rises from record to record; all else gets dictionaries, as long as these are small.
ENCODINGS = {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"}

DAY_US = 86_400_000_000
DATES = (-719_162, 2_932_896)  # 0001-01-01 and 9999-12-31, between which readers of folders know dates

Key = tuple[str, Any]  # topic, date


class Lake:
    """Where the files of one run go; goes to tasks."""

    def __init__(self, folder: Folder, schema: pa.Schema, compression: str, run: str):
        self.folder, self.schema, self.compression = folder, schema, compression
        self.hidden = HIDDEN + run
        leaves = pq.read_metadata(pa.BufferReader(self._metadata(""))).schema
        self.dictionaries = [each.path for each in leaves if each.path not in ENCODINGS]

    def begin(self, query_id: str) -> None:
        """Make ready for tasks, which do not make the hidden folder themselves: who has lost it is to end."""
        self.folder.write(f"{self.hidden}/run", b"")
        if schema_of(self.folder) != self.schema:
            self.folder.write(SCHEMA, self._metadata(query_id))

    def _metadata(self, query_id: str) -> bytes:
        sink = pa.BufferOutputStream()
        pq.write_metadata(self.schema.with_metadata({"query": query_id}), sink)
        return bytes(sink.getvalue())

    def end(self) -> None:
        self.folder.remove(self.hidden)


def schema_of(folder: Folder) -> pa.Schema | None:
    """Return the columns of a folder's files; None if there is no export in it."""
    return pq.read_schema(pa.BufferReader(folder.read(SCHEMA))) if folder.exists(SCHEMA) else None


class ParquetFile:
    """One that is being written; `add` and `flush`, then `close`, and `show` to readers. A flush makes it."""

    def __init__(self, lake: Lake, name: str, attempt: int):
        self.lake, self.name = lake, name
        self.waiting_bytes = 0
        self._waiting: list[pa.RecordBatch] = []
        self._at = f"{lake.hidden}/{attempt}-{name.replace('/', '-')}" if lake.folder.renames else name
        self._sink: Any = None
        self._writer: Any = None

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self.waiting_bytes += rows.nbytes + PIECE_BYTES

    @property
    def written_bytes(self) -> int:
        return 0 if self._sink is None else int(self._sink.tell())

    def flush(self) -> None:
        rows = without_empty(pa.Table.from_batches(self._waiting)).cast(self.lake.schema)
        self._waiting, self.waiting_bytes = [], 0
        if self._sink is None:
            folder = self.lake.folder
            self._sink = folder.files.open_output_stream(folder.path(self._at))
            self._writer = pq.ParquetWriter(
                self._sink,
                self.lake.schema,
                compression=self.lake.compression,
                use_dictionary=self.lake.dictionaries,  # pyright: ignore
                column_encoding=ENCODINGS,
            )
        self._writer.write_table(rows, ROW_GROUP_ROWS)

    def close(self) -> int:
        """Return how many bytes it has."""
        if self._waiting:
            self.flush()
        self._writer.close()
        size_bytes = self.written_bytes
        self._sink.close()
        self._writer = self._sink = None  # they hold what they have written of pages and columns
        return size_bytes

    def show(self) -> None:
        folder = self.lake.folder
        if folder.renames:
            folder.files.create_dir(folder.path(self.name.rpartition("/")[0]))
            folder.move(self._at, self.name)


class LakeWriter:
    """Writes the rows of one task, a file for each topic and date."""

    def __init__(self, lake: Lake, batch: int, task: int, attempt: int):
        self.lake, self.attempt = lake, attempt
        self.prefix = f"{batch:08d}-{task:06d}"
        self._files: dict[Key, ParquetFile] = {}
        self._open: dict[Key, ParquetFile] = {}  # those of them that are on the disk already
        self._waiting_bytes = 0  # of all files
        self._closed: list[ParquetFile] = []
        self._numbers: dict[Key, int] = {}  # of files that were begun
        self._done: dict[str, list[int]] = {}  # topic -> as in RESULTS

    def write(self, rows: pa.RecordBatch) -> None:
        for topic, of_topic in by_value(rows, "topic"):
            bad = of_topic[BAD].true_count if BAD in rows.schema.names else 0
            self._count(topic, records=len(of_topic), bad=bad)
            for date, each in by_value(of_topic, "date"):
                key = topic, date
                if key not in self._files:
                    self._files[key] = self._begun(key)
                before = self._files[key].waiting_bytes
                self._files[key].add(each.select(self.lake.schema.names))
                self._waiting_bytes += self._files[key].waiting_bytes - before
        if self._waiting_bytes > BUFFER_BYTES:
            self._make_room()

    def _make_room(self) -> None:
        """Write the most of what waits, until half of it is left: dates of which little comes wait for more."""
        for key, file in sorted(self._files.items(), key=lambda item: -item[1].waiting_bytes):
            self._waiting_bytes -= file.waiting_bytes
            file.flush()
            self._open[key] = file
            if len(self._open) > FILES_MAX:  # later rows of that date get a file of their own
                self._close(max(self._open, key=lambda key: self._open[key].written_bytes))
            if self._waiting_bytes <= BUFFER_BYTES // 2:
                return

    def close(self) -> Iterator[pa.RecordBatch]:
        self._close_all()
        # Last of all: an attempt that comes to no end has shown nothing, and files of the next one may end elsewhere.
        for file in self._closed:
            file.show()
        if self._done:
            rows = [(topic, *counts) for topic, counts in self._done.items()]
            yield pa.RecordBatch.from_arrays([pa.array(column) for column in zip(*rows, strict=True)], RESULTS_NAMES)

    def _begun(self, key: Key) -> ParquetFile:
        topic, date = key
        number = self._numbers[key] = self._numbers.get(key, -1) + 1
        return ParquetFile(self.lake, f"topic={topic}/date={date}/{self.prefix}-{number:04d}.parquet", self.attempt)

    def _close_all(self) -> None:
        for key in [*self._files]:
            self._close(key)

    def _close(self, key: Key) -> None:
        file = self._files.pop(key)
        self._open.pop(key, None)
        self._waiting_bytes -= file.waiting_bytes
        self._count(key[0], files=1, size_bytes=file.close())
        self._closed.append(file)

    def _count(self, topic: str, *, files: int = 0, records: int = 0, size_bytes: int = 0, bad: int = 0) -> None:
        found = self._done.setdefault(topic, [0, 0, 0, 0])
        for place, count in enumerate((files, records, size_bytes, bad)):
            found[place] += count


def writing(lake: Lake, batch: int, rows: ArrowFunction | None = None) -> ArrowFunction:
    """Return what writes all that a task gets, and yields RESULTS; rows: makes rows of it; None: it gets them."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = LakeWriter(lake, batch, *_this_task())
        for each in batches if rows is None else rows(batches):
            writer.write(each)
        yield from writer.close()

    return write


def _this_task() -> tuple[int, int]:
    """Return the number of the task that runs here, and of its attempt, which no other of the session has."""
    from pyspark import TaskContext  # pyright: ignore

    context = TaskContext.get()
    assert context is not None, "this runs in Spark's workers only"
    return context.partitionId(), context.taskAttemptId()


# Columns


def as_text(values: pa.Array) -> tuple[pa.Array, int]:
    """Return bytes as text, and how many are none: there are replacement characters, for readers refuse all else."""
    try:
        return values.cast(pa.string()), 0
    except pa.ArrowInvalid:
        texts, changed = [], 0
        for value in values.to_pylist():
            text = None if value is None else value.decode(errors="replace")
            changed += text is not None and text.encode() != value
            texts.append(text)
        return pa.array(texts, pa.string()), changed


def without_empty(rows: pa.Table) -> pa.Table:
    """Return rows with none where headers are empty: those that come through Spark are (arrow_map.py)."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_list(field.type):
            lists = rows.column(place)
            are_empty = pc.equal(pc.list_value_length(lists), 0)
            if pc.any(are_empty).as_py():
                kept = pc.if_else(are_empty, pa.scalar(None, field.type), lists)
                rows = rows.set_column(place, field, kept)
    return rows


def dates_of(timestamps: pa.Array) -> pa.Array:
    """Return days of UTC. Who sends nanoseconds for milliseconds has records of the year 294247, which would make the
    column one of texts for those who read the names of folders."""
    days = np.floor_divide(timestamps.view(pa.int64()).to_numpy(), DAY_US)
    return pa.array(np.clip(days, *DATES).astype(np.int32)).view(pa.date32())


# What a run leaves that was killed


def files_of(folder: Folder) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield the folders of dates, with the files in each, in their order, and how many bytes they have."""
    for topic in folder.list():
        if topic.base_name.startswith("topic="):
            for date in folder.list(topic.base_name):
                where = f"{topic.base_name}/{date.base_name}"
                found = [each for each in folder.list(where) if NAME.fullmatch(each.base_name)]
                found.sort(key=lambda each: _limits(each.base_name))
                yield where, {each.base_name: each.size for each in found}


def clean(folder: Folder, unfinished: int | None) -> bool:
    """Remove what a run left that was killed; return whether there was something. unfinished: its micro-batch."""
    left = [each.base_name for each in folder.list() if each.base_name.startswith(HIDDEN)]
    for place, name in enumerate(left):
        if folder.renames:  # all at once: from here on no task that still lives can rename its file
            left[place] = name + GONE
            folder.move(name, left[place])
    if left or unfinished is not None:
        for where, files in files_of(folder):
            for name in surplus(files, unfinished):
                folder.remove(f"{where}/{name}")
    for name in left:
        folder.remove(name)
    return bool(left)


def surplus(names: Iterable[str], unfinished: int | None = None) -> list[str]:
    """Return the files of a micro-batch that is repeated, and those whose rows are in another one too."""
    found: list[str] = []
    reached: tuple[int, ...] = ()
    by_end = sorted(names, key=lambda name: _limits(name)[1], reverse=True)
    for name in sorted(by_end, key=lambda name: _limits(name)[0]):  # of those that begin alike the longest first
        first, last = _limits(name)
        if last <= reached or (first == last and first[0] == unfinished):
            found.append(name)
        else:
            reached = last
    return found


def _limits(name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return micro-batch, task and number of the first and the last file of which rows are in it."""
    first, last = _ends(name)
    return tuple(map(int, first.split("-"))), tuple(map(int, last.split("-")))


def _ends(name: str) -> tuple[str, str]:
    match = NAME.fullmatch(name)
    assert match is not None, name
    return match[1], match[2] or match[1]


# Small files


class SmallFiles:
    """Small files of one folder that become one; goes to tasks."""

    def __init__(self, where: str, names: list[str]):
        self.where, self.names = where, names
        self.name = f"{where}/{_ends(names[0])[0]}-{_ends(names[-1])[1]}.parquet"


def small_files(folder: Folder, small_bytes: int) -> Iterator[SmallFiles]:
    """Yield which small files that follow each other go together, at most FILE_BYTES in one."""
    for where, files in files_of(folder):
        for is_small, some in groupby(files.items(), lambda file: file[1] < small_bytes):
            for group in grouped(some, lambda file: file[1], FILE_BYTES) if is_small else ():
                if len(group) > 1:
                    yield SmallFiles(where, [name for name, _ in group])


def put_together(spark: Any, lake: Lake, groups: list[SmallFiles], columns: Any) -> None:
    """Write each group as one file, then remove the small ones; columns: the schema as Spark has it."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for name in groups[number].names:
                    with lake.folder.files.open_input_file(lake.folder.path(f"{groups[number].where}/{name}")) as file:
                        for rows in pq.ParquetFile(file).iter_batches():
                            yield from with_all_columns(rows, lake.schema)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task, attempt = _this_task()
        file = ParquetFile(lake, groups[task].name, attempt)
        for rows in batches:
            file.add(rows)
            if file.waiting_bytes > BUFFER_BYTES:
                file.flush()
        size_bytes = file.close()
        file.show()
        yield pa.RecordBatch.from_pydict({"bytes": [size_bytes]})

    numbers = spark.range(0, len(groups), 1, len(groups))
    rows = map_in_arrow(numbers, read, columns).sortWithinPartitions("partition", "offset")
    map_in_arrow(rows, write, "bytes bigint").collect()
    for group in groups:
        for name in group.names:
            lake.folder.remove(f"{group.where}/{name}")


def with_all_columns(rows: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows of a file that may be older than some columns."""
    table = pa.Table.from_batches([rows])
    for field in schema:
        if field.name not in table.schema.names:
            table = table.append_column(field, pa.nulls(len(table), field.type))
    yield from table.select(schema.names).cast(schema).to_batches()
