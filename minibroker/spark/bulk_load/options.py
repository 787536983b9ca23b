"""The options of a bulk load, read and checked before anything else happens.

    parse_load({"path": "data", "topic": "orders", "partitions": "12", "config.retention.ms": "-1"}) -> LoadOptions

What must hold: an option that nobody knows is refused, never ignored. Names are taken in any case of letters, as Spark
hands them over in small ones.
Not here: which columns there must be (columns.py), what is in the directory (directory.py).
"""

from __future__ import annotations

from minibroker.log.compression import CODEC_NAMES, LEVELS, check_level
from minibroker.metadata.features import FINALIZED
from minibroker.spark.option_values import OptionError, one_of, positive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Every option, its default, and what it does. docs/spark-writing.md shows this table.
OPTIONS: dict[str, tuple[str, str]] = {
    "path": ("", "the log directory of a broker; one that is not there, or empty, is made"),
    "topic": ("", "the topic of all rows; without it there must be a column `topic`"),
    "partitions": ("1", "how many partitions topics get that are not there yet"),
    "codec": ("none", "none, gzip, snappy, lz4 or zstd"),
    "level": ("", "of the codec, Kafka's default if nothing is said"),
    "batchBytes": ("131072", "how long batches become, before compression"),
    "segmentBytes": ("", "how long segments become, if not as the topic's segment.bytes says"),
    "indexIntervalBytes": ("", "how many bytes lie between two entries of an index, if not as the topic says"),
    "bufferBytes": ("33554432", "how many bytes of rows a task gathers before it writes"),
    "nodeId": ("1", "whose the directory becomes, if it is made"),
    "clusterId": ("", "of which cluster; without it an id is drawn"),
    "release": ("", "of Kafka, for which the directory is made; without it every one from 3.9 on can go on with it"),
}
CONFIG = "config."  # in front of a setting of new topics
CONFIG_ROW = ("config.NAME", "", "a setting of Kafka for new topics, as config.retention.ms")
BATCH_BYTES_MIN = 512


class LoadOptions:
    """What was asked for."""

    path: str
    topic: str | None
    partitions: int | None  # None: nobody said; new topics get one
    codec: int
    level: int | None
    batch_bytes: int
    segment_bytes: int | None
    index_interval_bytes: int | None
    buffer_bytes: int
    node_id: int | None
    cluster_id: str
    release: str | None
    configs: dict[str, str]  # of new topics


def parse_load(given: Mapping[str, str]) -> LoadOptions:
    """Read options; raise OptionError for the first that cannot be used."""
    told, configs = _known(given)
    found = LoadOptions()
    found.path = told.get("path", "").strip()
    if not found.path:
        raise OptionError("path is not set: say in which directory the segments are to be")
    if "://" in found.path and not found.path.startswith("file://"):
        raise OptionError(f"path is {found.path!r}: segments are written to a directory of the machine, no URL")
    found.path = found.path.removeprefix("file://")
    found.topic = told.get("topic", "").strip() or None
    found.partitions = _positive(told, "partitions")
    found.codec = CODEC_NAMES.index(one_of("codec", told.get("codec", "none"), CODEC_NAMES))
    found.level = _level(told.get("level", "").strip(), found.codec)
    found.batch_bytes = _positive(told, "batchBytes") or int(OPTIONS["batchBytes"][0])
    if found.batch_bytes < BATCH_BYTES_MIN:
        raise OptionError(f"batchBytes is {found.batch_bytes}: batches have at least {BATCH_BYTES_MIN}")
    found.segment_bytes = _positive(told, "segmentBytes")
    found.index_interval_bytes = _positive(told, "indexIntervalBytes")
    found.buffer_bytes = _positive(told, "bufferBytes") or int(OPTIONS["bufferBytes"][0])
    found.node_id = _node_id(told.get("nodeId", "").strip())
    found.cluster_id = told.get("clusterId", "").strip()
    release = told.get("release", "").strip()
    found.release = one_of("release", release, tuple(FINALIZED)) if release else None
    found.configs = configs
    return found


def _known(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options by their true names, and the settings of new topics."""
    from difflib import get_close_matches

    names = {name.lower(): name for name in OPTIONS}
    told: dict[str, str] = {}
    configs: dict[str, str] = {}
    for name, value in given.items():
        lower = name.lower()
        if lower in names:
            told[names[lower]] = str(value)
        elif lower.startswith(CONFIG) and len(lower) > len(CONFIG):
            configs[lower.removeprefix(CONFIG)] = str(value)
        else:
            near = get_close_matches(lower, names, 1)
            hint = f": did you mean {names[near[0]]}?" if near else "; docs/spark-writing.md has a table of all"
            raise OptionError(f"there is no option {name!r} to write to a directory{hint}")
    return told, configs


def _positive(told: Mapping[str, str], name: str) -> int | None:
    return positive(name, told[name]) if told.get(name, "").strip() else None


def _node_id(text: str) -> int | None:
    return 0 if text == "0" else positive("nodeId", text) if text else None


def _level(text: str, codec: int) -> int | None:
    if not text:
        return None
    try:
        return check_level(codec, int(text))
    except ValueError as error:
        least, most, _ = LEVELS.get(codec, (0, 0, 0))
        reason = f"a number from {least} to {most}" if codec in LEVELS else "nothing: this codec has no levels"
        raise OptionError(f"level is {text!r}, it can be {reason}") from error
