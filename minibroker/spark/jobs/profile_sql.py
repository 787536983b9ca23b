"""The figures of a profile, in SQL over two tables of the data source: records, and batches (mode=batches).

    rows, keys, batches -> pieces, key_counts, packs: far fewer rows, kept -> PARTS and the others, which are collected

Each topic is read three times: its records with the sizes of keys and values, its keys alone, and headers of batches.
Pieces and packs hold counts that can be added up; only windows go over each record and batch, over narrow columns, in
chunks of offsets that tasks sort by themselves. What crosses the border of two chunks is added in `parts`.
What must hold: every figure is exact but medians and percentiles, which are at most an eighth too high. What is
collected is bounded by the number of partitions, or by a limit.
Not here: what is read, and tables that follow from these (profile.py).
"""

from __future__ import annotations

HOUR_MS = 3_600_000
KEYS_SHOWN = 10
KEY_BYTES_SHOWN = 256
ROWS_MAX = 100_000  # of a table that grows with the data: hours, producers
BROKEN_MAX = 200  # batches that are named

ROWS_SCHEMA = (
    "topic string, partition int, offset bigint, timestamp timestamp, timestampType int, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>"
)
KEYS_SCHEMA = "topic string, partition int, key binary"
BATCHES_SCHEMA = (
    "topic string, partition int, baseOffset bigint, lastOffset bigint, format int, codec string, sizeBytes int, "
    "records int, error string, maxTimestamp timestamp, producerId bigint, producerEpoch int, isTransactional boolean, "
    "isControl boolean, control string, file string, position bigint"
)
RANGES_SCHEMA = "topic string, partition int, first_offset bigint, end_offset bigint"


def _bin(size: str) -> str:
    """Return the largest number of the bin that a size is in: eight of them between two powers of two."""
    return f"({size} | (shiftleft(1L, greatest(int(log2(greatest({size}, 1))) - 3, 0)) - 1))"


PIECES = f"""
with narrow as (
    select topic, partition, offset, offset div {{chunk}} as chunk, timestampType as type,
        if(unix_millis(timestamp) >= 0, unix_millis(timestamp), null) as time,
        octet_length(key) as key_size, octet_length(value) as value_size, coalesce(array_size(headers), 0) as headers,
        coalesce(aggregate(headers, 0L, (sum, each) -> sum + octet_length(each.key) +
            coalesce(octet_length(each.value), 0)), 0) as header_bytes
    from {{rows}}
), ordered as (
    select *, lag(offset) over (partition by topic, partition, chunk order by offset) as offset_before,
        last_value(time, true) over earlier as time_before, max(time) over earlier as newest_before
    from narrow
    window earlier as (partition by topic, partition, chunk order by offset
        rows between unbounded preceding and 1 preceding)
)
select topic, partition, chunk, time div {HOUR_MS} as hour, {_bin("key_size")} as key_bin,
    {_bin("value_size")} as value_bin, count(*) as records, count(time) as timed,
    sum(key_size) as key_bytes, min(key_size) as key_min, max(key_size) as key_max,
    sum(value_size) as value_bytes, min(value_size) as value_min, max(value_size) as value_max,
    count_if(value_size is null) as null_values, count_if(type = 0) as create_time, count_if(type = 1) as append_time,
    sum(headers) as headers, sum(header_bytes) as header_bytes, count_if(time > {{now}}) as in_the_future,
    min(time) as oldest, max(time) as newest, max(if(time_before is null, time, null)) as first_time,
    max_by(time, if(time is null, null, offset)) as last_time, max(if(time is null, null, offset)) as last_timed,
    count_if(time < time_before) as out_of_order, max(newest_before - time) as late_ms_max,
    count_if(offset > offset_before + 1) as holes, max(offset - offset_before - 1) as largest_hole,
    min(offset) as first_seen, max(offset) as last_seen
from ordered group by all
"""

# The marker that ends a batch's transaction is the next one of its producer; what is in none need not be sorted as one.
PACKS = f"""
with marked as (
    select *, last_value(if(control in ('commit', 'abort'), control, null), true) over (
        partition by topic, partition, producerId, if(isTransactional or isControl, 0, lastOffset div {{chunk}})
        order by lastOffset desc) as marker
    from (select * except (control, isControl), split_part(control, ',', 1) as control,
        coalesce(isControl, false) as isControl from {{batches}} join {{ranges}} using (topic, partition))
)
select topic, partition, format, codec, producerId, producerEpoch, coalesce(isTransactional, false) as isTransactional,
    isControl, marker, {_bin("sizeBytes")} as size_bin, {_bin("records")} as records_bin,
    if(error is null, null, concat(topic, '-', partition,
        if(lastOffset is null, '', concat(', offsets ', coalesce(baseOffset, lastOffset), ' to ', lastOffset)),
        if(position is null, ', from ', concat(', byte ', position, ' of ')), file, ': ', error)) as broken,
    count(*) as batches, sum(sizeBytes) as bytes, min(sizeBytes) as size_min, max(sizeBytes) as size_max,
    sum(records) as records, min(records) as records_min, max(records) as records_max,
    sum(case when baseOffset >= first_offset then records
        when records = lastOffset - baseOffset + 1 then lastOffset - first_offset + 1 end) as shown,
    bool_or(records is null or (baseOffset < first_offset and records <= lastOffset - baseOffset)) as is_vague,
    min(unix_millis(maxTimestamp)) as oldest, max(unix_millis(maxTimestamp)) as newest
from marked group by all
"""

KEY_COUNTS = "select topic, partition, key, count(*) as records from {keys} group by all"

SUMS = ["records", "timed", "key_bytes", "value_bytes", "null_values", "headers", "header_bytes", "in_the_future"]
SUMS += ["create_time", "append_time", "out_of_order", "holes"]  # of pieces, chunks, partitions, topics
OF_BATCHES = ["batches", "stored_bytes", "control_records", "aborted", "in_open_transactions", "null_keys"]

PARTS = f"""
with chunks as (
    select topic, partition, chunk, {", ".join(f"sum({name}) as {name}" for name in SUMS)},
        min(oldest) as oldest, max(newest) as newest, max(first_time) as first_time,
        max_by(last_time, last_timed) as last_time, max(late_ms_max) as late_ms_max,
        max(largest_hole) as largest_hole, min(first_seen) as first_seen, max(last_seen) as last_seen
    from {{pieces}} group by topic, partition, chunk
), bordered as (
    select *, lag(last_seen) over (partition by topic, partition order by chunk) as seen_before,
        last_value(last_time, true) over earlier as time_before, max(newest) over earlier as newest_before
    from chunks
    window earlier as (partition by topic, partition order by chunk rows between unbounded preceding and 1 preceding)
), of_rows as (
    select topic, partition, {", ".join(f"sum({name}) as {name}" for name in SUMS[:-2])},
        sum(out_of_order) + count_if(first_time < time_before) as out_of_order, min(oldest) as oldest,
        max(newest) as newest, greatest(max(late_ms_max), max(newest_before - oldest)) as late_ms_max,
        sum(holes) + count_if(first_seen > seen_before + 1) as holes,
        greatest(max(largest_hole), max(first_seen - seen_before - 1)) as largest_hole,
        min(first_seen) as first_seen, max(last_seen) as last_seen
    from bordered group by topic, partition
), of_batches as (
    select topic, partition, sum(if(isControl, 0, batches)) as batches, sum(bytes) as stored_bytes,
        sum(if(isControl, records, 0)) as control_records,
        sum(if(isTransactional and not isControl and marker = 'abort', records, 0)) as aborted,
        sum(if(isTransactional and not isControl and marker is null, records, 0)) as in_open_transactions,
        if(bool_or(is_vague), null, sum(if(isControl, 0, shown))) as promised
    from {{packs}} where broken is null group by topic, partition
), of_keys as (
    select topic, partition, count(key) as distinct_keys, sum(if(key is null, records, 0)) as null_keys
    from {{key_counts}} group by topic, partition
)
select topic, partition, first_offset, end_offset, oldest, newest, coalesce(distinct_keys, 0) as distinct_keys,
    {", ".join(f"coalesce({name}, 0) as {name}" for name in [*SUMS[:-1], *OF_BATCHES])},
    greatest(late_ms_max, 0) as late_ms_max,
    coalesce(holes + int(first_seen > first_offset) + int(last_seen < end_offset - 1), 1) as holes,
    greatest(largest_hole, coalesce(first_seen, end_offset) - first_offset, end_offset - 1 - last_seen) as largest_hole,
    promised
from {{ranges}} left join of_rows using (topic, partition) left join of_batches using (topic, partition)
    left join of_keys using (topic, partition)
order by topic, partition
"""

BINS = """
select topic, 'key_bytes' as what, 1 as place, key_bin as bin, sum(records) as count, sum(key_bytes) as total,
    min(key_min) as smallest, max(key_max) as largest from {pieces} where key_bin is not null group by all
union all select topic, 'value_bytes', 2, value_bin, sum(records), sum(value_bytes), min(value_min), max(value_max)
    from {pieces} where value_bin is not null group by all
union all select topic, 'batch_bytes', 3, size_bin, sum(batches), sum(bytes), min(size_min), max(size_max)
    from {packs} where not isControl and broken is null group by all
union all select topic, 'batch_records', 4, records_bin, sum(batches), sum(records), min(records_min), max(records_max)
    from {packs} where not isControl and broken is null and records_bin is not null group by all
order by topic, place, bin
"""

# The most frequent keys of each topic, and beside each what there is to say of all.
TOP_KEYS = f"""
select topic, rank, substring(key, 1, {KEY_BYTES_SHOWN}) as key, records, keyed, distinct_keys, in_several
from (
    select *, row_number() over (partition by topic order by records desc, key) as rank,
        sum(records) over (partition by topic) as keyed, count(*) over (partition by topic) as distinct_keys,
        count_if(places > 1) over (partition by topic) as in_several
    from (
        select topic, key, sum(records) as records, count(*) as places
        from {{key_counts}} where key is not null group by topic, key
    )
) where rank <= {KEYS_SHOWN} order by topic, rank
"""

CODECS = """
select topic, format, codec, sum(batches) as batches, sum(bytes) as stored_bytes, sum(records) as records
from {packs} where not isControl and broken is null group by topic, format, codec
order by topic, format, array_position(array('none', 'gzip', 'snappy', 'lz4', 'zstd'), codec)
"""

PRODUCERS = f"""
select topic, producerId as producer_id, count(distinct if(isControl, null, producerEpoch)) as epochs,
    count(distinct if(isControl, null, partition)) as partitions,
    sum(if(isControl, 0, batches)) as batches, sum(if(isControl, 0, records)) as records,
    sum(if(isTransactional and not isControl, records, 0)) as transactional,
    sum(if(isTransactional and not isControl and marker = 'commit', records, 0)) as committed,
    sum(if(isTransactional and not isControl and marker = 'abort', records, 0)) as aborted,
    sum(if(isTransactional and not isControl and marker is null, records, 0)) as open,
    min(if(isControl, null, oldest)) as oldest, max(if(isControl, null, newest)) as newest
from {{packs}} where format = 2 and broken is null and (not isControl or marker is not null)
group by topic, producerId order by records desc, topic, producerId limit {ROWS_MAX + 1}
"""

HOURS = f"""
select topic, partition, hour * {HOUR_MS} as hour, sum(records) as records,
    sum(coalesce(key_bytes, 0) + coalesce(value_bytes, 0)) as bytes
from {{pieces}} where hour is not null group by topic, partition, hour
order by hour desc, topic, partition limit {ROWS_MAX + 1}
"""

BROKEN = f"select broken from {{packs}} where broken is not null order by broken limit {BROKEN_MAX + 1}"
