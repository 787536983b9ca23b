"""The options of a bulk load, read and checked before anything else happens.

    parse_load({"path": "data", "topic": "orders", "partitions": "12", "config.retention.ms": "-1"}) -> LoadOptions

What must hold: an option that nobody knows is refused, never ignored. Names are taken in any case of letters, as Spark
hands them over in small ones.
Not here: which columns there must be (columns.py), what is in the directory (directory.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from minibroker.log.compression import CODEC_NAMES
from minibroker.metadata.features import FINALIZED
from minibroker.spark.option_table import OptionTable
from minibroker.spark.option_values import OptionError, number, positive
from minibroker.spark.sink.options import level_of

CONFIG = "config."  # in front of a setting of new topics
BATCH_BYTES_MIN = 512

# docs/spark-writing.md shows this table.
OPTIONS = OptionTable(
    f"""
    path | path: word | | the log directory of a broker; one that is not there, or empty, is made
    topic | topic: word | | the topic of all rows; without it there must be a column `topic`
    partitions | | 1 | how many partitions topics get that are not there yet
    codec | codec_name: one of {", ".join(CODEC_NAMES)} | none | none, gzip, snappy, lz4 or zstd
    level | | | of the codec, Kafka's default if nothing is said
    batchBytes | batch_bytes: positive | 131072 | how long batches become, before compression
    segmentBytes | segment_bytes: positive | | how long segments become, if not as the topic's segment.bytes says
    indexIntervalBytes | index_interval_bytes: positive |
    | how many bytes lie between two entries of an index, if not as the topic says
    bufferBytes | buffer_bytes: positive | 33554432 | how many bytes of rows a task gathers before it writes
    nodeId | | 1 | whose the directory becomes, if it is made
    clusterId | cluster_id: word | | of which cluster; without it an id is drawn
    release | release: one of {", ".join(FINALIZED)} |
    | of Kafka, for which the directory is made; without it every one from 3.9 on can go on with it
    config.NAME | | | a setting of Kafka for new topics, as config.retention.ms
    """,
    refusal="there is no option {!r} to write to a directory",
    page="docs/spark-writing.md",
)


class LoadOptions:
    """What was asked for."""

    path: str
    topic: str | None
    partitions: int | None  # None: nobody said; new topics get one
    codec_name: str
    codec: int
    level: int | None
    batch_bytes: int
    segment_bytes: int | None
    index_interval_bytes: int | None
    buffer_bytes: int
    partition_counts: dict[str, int]  # of new topics that get another number of them
    node_id: int | None  # None: nobody said; a new directory gets 1
    cluster_id: str
    release: str | None
    configs: dict[str, str]  # of new topics
    default_configs: dict[str, str]  # of new topics too, where `configs` does not say otherwise

    @property
    def new_configs(self) -> dict[str, str]:
        return self.default_configs | self.configs


def parse_load(given: Mapping[str, str], default_configs: Mapping[str, str] | None = None) -> LoadOptions:
    """Read options; raise OptionError for the first that cannot be used. A blank one is as if it were not."""
    configs = {name: value for name, value in given.items() if name.lower().startswith(CONFIG) and name[len(CONFIG) :]}
    texts = {name: str(value).strip() for name, value in given.items() if name not in configs}
    told = OPTIONS.by_true_names({name: text for name, text in texts.items() if text})
    found = LoadOptions()
    vars(found).update(OPTIONS.values(told))
    if not found.path:
        raise OptionError("path is not set: say in which directory the segments are to be")
    if "://" in found.path and not found.path.startswith("file://"):
        raise OptionError(f"path is {found.path!r}: segments are written to a directory of the machine, no URL")
    found.path = found.path.removeprefix("file://")
    found.topic = found.topic or None
    if found.batch_bytes < BATCH_BYTES_MIN:
        raise OptionError(f"batchBytes is {found.batch_bytes}: batches have at least {BATCH_BYTES_MIN}")
    found.partitions = positive("partitions", told["partitions"]) if "partitions" in told else None
    found.partition_counts = {}
    found.node_id = number("nodeId", told["nodeId"]) if "nodeId" in told else None
    found.codec = CODEC_NAMES.index(found.codec_name)
    found.level = level_of("level", told.get("level", ""), found.codec_name)
    found.configs = {name.lower().removeprefix(CONFIG): str(value) for name, value in configs.items()}
    found.default_configs = dict(default_configs or {})
    return found
