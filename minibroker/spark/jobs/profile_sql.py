"""Hours and producers of a profile, in SQL over the facts that its tasks have counted.

What must hold: what is collected is bounded by the number of partitions, or by a limit.
Not here: facts (profile_counting.py), keys (profile_keys.py), tables that follow from all that (profile_tables.py).
"""

from __future__ import annotations

HOUR_MS = 3_600_000
ROWS_MAX = 100_000  # of a table that grows with the data: hours, producers
BROKEN_MAX = 200  # batches that are named

STRETCHES = "select topic, partition, chunk, stretch from {facts} where stretch is not null"

HOURS = f"""
select topic, partition, hour * {HOUR_MS} as hour, sum(records) as records, sum(bytes) as bytes
from {{facts}} where hour is not null group by topic, partition, hour
order by hour desc, topic, partition limit {ROWS_MAX + 1}
"""

# Of each partition, and of each producer of a topic. What is open at the end of what a task has read is ended by the
# first marker of the same producer that others have met behind it.
PRODUCERS = f"""
with ended as (
    select *, last_value(nullif(marker, 0), true) over (
        partition by topic, partition, producer order by chunk desc range between unbounded preceding and 1 preceding
    ) as later from {{facts}} where producer is not null
)
select topic, partition, producer as producer_id, array_size(collect_set(if(batches > 0, epoch, null))) as epochs,
    array_size(collect_set(if(batches > 0, partition, null))) as partitions, sum(batches) as batches,
    sum(records) as records, sum(transactional) as transactional, sum(committed + if(later = 1, open, 0)) as committed,
    sum(aborted + if(later = 2, open, 0)) as aborted, sum(if(later is null, open, 0)) as open,
    min(oldest) as oldest, max(newest) as newest
from ended group by grouping sets ((topic, partition), (topic, producer))
order by producer_id is not null, records desc, topic, producer_id limit {{partitions}} + {ROWS_MAX + 1}
"""
