"""Which records of topics belong to a slice: those of some entities, in all topics alike.

An entity is what records are about: by default their key, or a field of the JSON in their value or key. Whether one is
in the slice is a hash of it and the seed, so an order is there if and only if its customer is, whatever topic they are
in, and tomorrow's slice has the same ones.
What must hold: the entity is compared as text, so a key `17`, a field 17 and a field "17" are the same.
Not here: what becomes of the records (slice_masking.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minibroker.spark.option_values import OptionError

SHARES = 1 << 30  # into how many parts entities fall


class By:
    """What a record is about: `[TOPIC:]key[.PATH]` or `value.PATH`."""

    def __init__(self, text: str):
        self.topic, _, rest = text.rpartition(":")
        self.place, dot, self.path = rest.partition(".")
        if self.place not in ("key", "value") or (dot and not self.path) or (self.place == "value" and not self.path):
            raise OptionError(f"--by {text}: write it as key, key.FIELD or value.FIELD, perhaps with TOPIC: in front")

    def column(self, sql: Any) -> Any:
        text = sql.col(self.place).cast("string")
        if not self.path:
            return text
        steps = "".join("['" + step.replace("'", "") + "']" for step in self.path.split("."))
        return sql.get_json_object(text, f"${steps}")


def entity(by: Sequence[By]) -> Any:
    """Return the column with what a record is about; null if it does not say."""
    from pyspark.sql import functions as sql  # pyright: ignore

    common = [each for each in by if not each.topic]
    if len(common) > 1 or len({each.topic for each in by}) < len(by):
        raise OptionError("--by: a topic can be sampled by one thing only")
    rest = (common[0] if common else By("key")).column(sql)
    for each in by:
        if each.topic:
            rest = sql.when(sql.col("topic") == each.topic, each.column(sql)).otherwise(rest)
    return rest


def sampled(
    frame: Any, *, share: float, by: Sequence[By], seed: int, entities: Sequence[str], keep_others: bool
) -> Any:
    """Return the rows of a share of the entities, or of those that are named.

    keep_others: whether rows that are about nothing are sampled one by one; else they are left out.
    """
    from pyspark.sql import functions as sql  # pyright: ignore

    if not 0 < share <= 1:
        raise OptionError(f"--sample is {share}: it must be above 0 and at most 1")
    about = entity(by)
    if entities:
        return frame.where(about.isin(list(entities)))

    def is_in(*columns: Any) -> Any:
        return sql.pmod(sql.xxhash64(sql.lit(seed), *columns), sql.lit(SHARES)) < sql.lit(round(share * SHARES))

    others = is_in("topic", "partition", "offset") if keep_others else sql.lit(False)
    if share == 1:
        return frame if keep_others else frame.where(about.isNotNull())
    return frame.where(sql.when(about.isNotNull(), is_in(about)).otherwise(others))


def newest(frame: Any, count: int) -> Any:
    """Return the last rows of each partition."""
    from pyspark.sql import Window  # pyright: ignore
    from pyspark.sql import functions as sql  # pyright: ignore

    order = Window.partitionBy("topic", "partition").orderBy(sql.col("offset").desc())
    return frame.withColumn("_row", sql.row_number().over(order)).where(sql.col("_row") <= count).drop("_row")
