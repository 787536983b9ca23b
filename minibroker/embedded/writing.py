"""Records that a test puts into topics: one by one, or those of a file.

Values and keys are bytes, text, or what JSON has; None is null. Files are JSON lines, CSV with a first line of names,
or Parquet, where pyarrow is installed: a record for each row, with the row as JSON for its value.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack

from minibroker.embedded.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from minibroker.client import Producer

PENDING_MAX = 10_000  # records under way
API_VERSIONS = 18


class Writer:
    """A producer of our own client, for as long as it takes."""

    def __init__(self, settings: Mapping[str, str], as_version: str | None):
        """settings: as the library minibroker has them. as_version: the release that the broker appears as."""
        self._settings = settings
        self._asks_versions = as_version is None or tells_versions(as_version)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Producer:
        from minibroker.client import Cluster, Producer
        from minibroker.client.security import Security

        security = Security.of(self._settings) if len(self._settings) > 1 else None
        cluster = Cluster(
            self._settings["bootstrap.servers"],
            client_id="minibroker-embedded",
            ask_versions=self._asks_versions,
            security=security,
        )
        return await self._stack.enter_async_context(Producer(await self._stack.enter_async_context(cluster)))

    async def __aexit__(self, *failure: Any) -> None:
        await self._stack.__aexit__(*failure)


def tells_versions(release: str) -> bool:
    """Whether brokers of a release could say which versions they serve: since 0.10."""
    from minibroker.broker.releases import ranges_of, release_named

    return API_VERSIONS in ranges_of(release_named(release))


async def produce(
    producer: Producer,
    topic: str,
    value: Any,
    key: Any,
    headers: Mapping[str, Any],
    partition: int | None,
    timestamp: int | None,
) -> Record:
    """Return a record as it has been written."""
    pairs = tuple((name, as_bytes(each)) for name, each in headers.items())
    data = as_bytes(key), as_bytes(value)
    written = await producer.send(topic, data[1], data[0], pairs, partition, timestamp)
    return Record(written.partition, written.offset, *data, pairs, written.timestamp)


async def load(producer: Producer, topic: str, rows: Iterable[Any], key: str | None) -> int:
    """Write a record for each row, return how many; key: the field that is its key."""
    import asyncio

    count = 0
    pending: list[Any] = []
    for row in rows:
        if key is not None and (not isinstance(row, dict) or key not in row):
            raise ValueError(f"row {count + 1} has no {key!r}: {row!r:.120}")
        of_key = None if key is None else as_bytes(row[key])
        pending.append(await producer.enqueue(topic, as_bytes(row), of_key))
        count += 1
        if len(pending) >= PENDING_MAX:
            await asyncio.gather(*pending)
            pending.clear()
    await asyncio.gather(*pending)
    return count


def as_bytes(given: Any) -> bytes | None:
    """Return what is written for a value or a key."""
    if given is None:
        return None
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    if isinstance(given, str):
        return given.encode()
    import json

    return json.dumps(given, ensure_ascii=False, separators=(",", ":"), default=_plain).encode()


def _plain(value: Any) -> str:
    """Return what stands in JSON for what Parquet has besides: dates, decimals."""
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    if type(value).__name__ in ("Decimal", "UUID"):
        return str(value)
    raise TypeError(f"{value!r} is nothing that JSON has")


def rows_of(source: Any) -> Iterator[Any]:
    """Yield the rows of a file, by the ending of its name, or of anything that has rows."""
    if not isinstance(source, str | os.PathLike):
        yield from source
        return
    path = os.fspath(source)
    ending = os.path.splitext(path)[1].lower()
    if ending in (".jsonl", ".ndjson", ".json"):
        yield from _json_lines(path)
    elif ending in (".csv", ".tsv"):
        import csv

        with open(path, encoding="utf-8-sig", newline="") as file:
            yield from csv.DictReader(file, delimiter="\t" if ending == ".tsv" else ",", strict=True)
    elif ending == ".parquet":
        yield from _parquet(path)
    else:
        raise ValueError(f"{path} is none of .jsonl, .csv, .tsv, .parquet: its name says how it is to be read")


def _json_lines(path: str) -> Iterator[Any]:
    import json

    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise ValueError(f"{path}:{number} is no JSON: {error}") from None


def _parquet(path: str) -> Iterator[Any]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise ValueError(f"{path} needs a package that is not installed: pip install pyarrow") from None
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches():
            yield from batch.to_pylist()
