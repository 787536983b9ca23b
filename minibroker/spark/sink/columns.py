"""The columns of a write, to topics as to a directory: which there must be, and of which types.

Names and rules are those of Spark's Kafka sink: `value` must be there, `topic` as a column or an option, `key`,
`partition` and `headers` may be.
Spark: knows no column `timestamp`, and passes over all that mean nothing. Here those whose names are nearly right are
refused.
Not here: what is in the columns (rows.py). No pyspark: this can be tested without.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from minibroker.spark.option_values import OptionError

COLUMNS = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp", "bigint"),  # the latter is ms since 1970
    "headers": ("array<struct<key:string,value:binary>>",),
}
OF_READING = ("offset", "timestampType")  # columns of what was read from topics; a record gets these anew


def check_columns(fields: Iterable[tuple[str, str]], topic: str | None) -> list[str]:
    """Return which columns are written; raise OptionError unless rows of these can be.

    fields: names and types, in Spark's words. topic: of all rows; it goes before a column.
    """
    types = {name: kind for name, kind in fields if name != "topic" or topic is None}
    if "value" not in types:
        raise OptionError(f"there is no column value, which every record must have; there are {', '.join(types)}")
    if topic is None and "topic" not in types:
        raise OptionError("no topic: set the option topic, or let a column topic say it for each row")
    for name, kind in types.items():
        # Strings may have a collation, or a greatest length.
        plain = "string" if kind.startswith(("string", "varchar(", "char(")) else kind
        if name in COLUMNS and plain not in COLUMNS[name]:
            raise OptionError(f"column {name} is {kind}: it must be {' or '.join(COLUMNS[name])}; cast it")
        near = get_close_matches(name.lower(), COLUMNS.keys() - types, 1, 0.8)
        if near and name not in COLUMNS and name not in OF_READING:
            raise OptionError(f"column {name} would not be written: did you mean {near[0]}? Rename it, or drop it")
    return [name for name in types if name in COLUMNS]
