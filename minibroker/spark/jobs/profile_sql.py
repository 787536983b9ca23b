"""The figures of a profile that grow with the data, in SQL over the facts that its tasks have counted.

What must hold: keys are counted, not estimated. What is collected is bounded by the number of partitions, or by a
limit.
Not here: facts (profile_counting.py), tables that follow from these figures (profile_tables.py).
"""

from __future__ import annotations

HOUR_MS = 3_600_000
KEYS_SHOWN = 10
KEY_BYTES_SHOWN = 256
ROWS_MAX = 100_000  # of a table that grows with the data: hours, producers
BROKEN_MAX = 200  # batches that are named

STRETCHES = "select topic, partition, chunk, stretch from {facts} where stretch is not null"

# Of each partition, of each topic, and the most frequent of each topic. All of a key go to one task, and from there
# on nothing is sent but what is shown.
KEYS = f"""
with counts as (
    select topic, partition, key, sum(records) as records from (
        select topic, partition, key, records from {{facts}} where key is not null distribute by topic, key
    ) group by topic, partition, key
), keys as (
    select topic, key, sum(records) as records, count(*) as places from counts group by topic, key
)
select topic, partition, 0 as rank, null as key, sum(records) as records, count(*) as distinct_keys, 0 as in_several
from counts group by topic, partition
union all select topic, null, 0, null, sum(records), count(*), count_if(places > 1) from keys group by topic
union all select topic, null, rank, substring(key, 1, {KEY_BYTES_SHOWN}), records, null, null
from (select *, row_number() over (partition by topic order by records desc, key) as rank from keys)
where rank <= {KEYS_SHOWN}
"""

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
