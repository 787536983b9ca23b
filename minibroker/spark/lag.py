"""Lag of running queries as a table, and the group in which brokers show it.

    lag(spark).show()            all running queries
    lag(query, servers="...")    one; brokers are asked for the newest offsets

With `commitOffsets` a query commits its offsets to a group, `kafka.group.id` or one named after what it reads, so that
everything that shows groups shows it too: `minibroker groups --describe`, the broker's pages, anybody's tools.
What must hold: numbers are those of the query's last progress. Before Spark 4.2 that has no newest offsets but the end
of the micro-batch, so the lag is then what brokers say, if there are some to ask, and null if not.
Spark: its Kafka source commits nothing, its group has another name at each start.
Not here: when offsets are committed (streams/reader.py), and how (brokers/planning.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from minibroker.spark.option_values import Numbers, TopicPartition
from minibroker.spark.streams.offsets import from_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pyspark.sql import DataFrame  # pyright: ignore

    Row = tuple[str, str | None, str, int, int | None, int, int | None, int | None]

COLUMNS = "query string, name string, topic string, partition int, start long, end long, latest long, lag long"


def lag(of: Any, *, servers: str = "", settings: Mapping[str, str] | None = None) -> DataFrame:
    """Return topic, partition, start, end, latest and lag of a query, or of all that run in a session.

    servers: brokers to ask for the newest offsets, for versions of Spark that do not know them; settings: what they
    want for TLS and SASL, as {"security.protocol": "SSL"}.
    """
    from pyspark.sql import SparkSession  # pyright: ignore

    is_session = hasattr(of, "streams")
    spark = of if is_session else SparkSession.active()
    # Before 4.2 Spark does not know the newest offsets of Python's sources, and repeats the end.
    knows_latest = tuple(map(int, spark.version.split(".")[:2])) >= (4, 2)
    rows: list[Row] = []
    for query in of.streams.active if is_session else [of]:
        rows += _rows(query, servers, settings or {}, knows_latest)
    return spark.createDataFrame(rows, COLUMNS)


def _rows(query: Any, servers: str, settings: Mapping[str, str], knows_latest: bool) -> Iterable[Row]:
    progress = query.lastProgress
    for source in progress.sources if progress is not None else ():
        end = _offsets(source.endOffset)
        if end is None:
            continue  # no source of topics
        start, known = _offsets(source.startOffset) or {}, _offsets(source.latestOffset) or {}
        latest: Mapping[TopicPartition, int] = asked(servers, settings, end) if servers else known
        if not servers and not knows_latest and "Python" in source.description:
            latest = {}
        for (topic, partition), offset in end.items():
            newest = latest.get((topic, partition))
            behind = None if newest is None else max(newest - offset, 0)
            first = start.get((topic, partition))
            yield str(query.id), query.name, topic, partition, first, offset, newest, behind


def _offsets(text: str | None) -> Numbers | None:
    """Return offsets of topics; None if these are something else."""
    try:
        return from_json(json.loads(text or ""))
    except (ValueError, TypeError, AttributeError):
        return None


def asked(servers: str, settings: Mapping[str, str], partitions: Iterable[TopicPartition]) -> Numbers:
    """Ask brokers for the newest offsets; a partition that has none is left out."""
    from minibroker.client.cluster import Cluster
    from minibroker.client.offsets import find_offsets
    from minibroker.client.security import Security
    from minibroker.errors import KafkaError
    from minibroker.spark.brokers.planning import run

    async def ask() -> Numbers:
        async with Cluster(servers, security=Security.of(settings)) as cluster:
            found = await find_offsets(cluster, dict.fromkeys(partitions, "latest"))
            return {key: each.offset for key, each in found.items() if not isinstance(each, KafkaError)}

    return run(ask)
