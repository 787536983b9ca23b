"""Findings of a profile, in sentences: each with its figure, and what one may do about it.

Nothing here is an error of the data; what is one are `problems`.
"""

from __future__ import annotations

from collections.abc import Iterator

from minibroker.log.compression import CODEC_NAMES, LZ4, NONE, ZSTD
from minibroker.spark.jobs.page import bytes_text, count_text, duration_text, share_text, time_text
from minibroker.spark.jobs.profile_counts import HOURS_MAX, MANY, PRODUCERS_MAX, TopicCounts
from minibroker.spark.jobs.profile_keys import shown
from minibroker.spark.jobs.profile_tables import Profile

SECONDS_MAX = 100_000_000_000  # a time below it would be before March 1973; in seconds it is of today
RECORDS_MIN = 1000  # of fewer nothing follows
HOT_SHARE = 0.1  # of a topic's records with one key
HOT_TIMES = 3  # as many as it would be if all keys had the same
SKEW = 2.0  # the largest partition against the mean
SMALL_BATCH_BYTES = 2048
PACKED_RATIO = 1.5
BIG_RECORD_BYTES = 1_000_000


def findings(profile: Profile) -> list[str]:
    found = []
    for name, topic in profile.topics.items():
        for sentence in (
            *_keys(profile, name),
            *_partitions(profile, name, topic),
            *_batches(topic),
            *_times(profile, name, topic),
            *_transactions(profile, name, topic),
        ):
            found.append(f"{name}: {sentence}" if len(profile.topics) > 1 else sentence[0].upper() + sentence[1:])
    return found


def _keys(profile: Profile, name: str) -> Iterator[str]:
    keys = profile.keys[name]
    if keys.count < RECORDS_MIN:
        return
    key, count = keys.top(1)[0]
    if count > HOT_SHARE * keys.count and count * keys.distinct > HOT_TIMES * keys.count:
        yield (
            f"the key {shown(key)} has {share_text(count, keys.count)} of the records that have a key: one partition, "
            "and one task of whoever groups by key, gets all of them."
        )
    parts = [part.keys for part in profile.topics[name].partitions.values()]
    if keys.is_exact and all(part.is_exact for part in parts):
        twice = sum(part.distinct for part in parts) - keys.distinct
        if twice:
            yield (
                f"{count_text(twice)} of {count_text(keys.distinct)} keys were found in more than one partition: the "
                "number of partitions has grown, or not all producers choose partitions by the same hash."
                if twice < keys.distinct
                else "keys lie in several partitions: producers do not choose partitions by key, so the order of a "
                "key's records is not kept."
            )


def _partitions(profile: Profile, name: str, topic: TopicCounts) -> Iterator[str]:
    counts = {number: part.records for number, part in topic.partitions.items()}
    total = sum(counts.values())
    if total < RECORDS_MIN:
        return
    largest = max(counts, key=lambda number: counts[number])
    if len(counts) > 1 and counts[largest] * len(counts) > SKEW * total:
        times, share = counts[largest] * len(counts) / total, share_text(counts[largest], total)
        yield f"partition {largest} holds {share} of the records, {times:.1f} times the mean."
    removed = sum(profile.gaps(name, number).removed for number in counts)
    if removed:
        share = share_text(removed, removed + total)
        yield f"{count_text(removed)} offsets ({share}) have no record any more: compaction has removed them."
    if topic.value_sizes.count and topic.value_sizes.largest > BIG_RECORD_BYTES:
        yield (
            f"the largest value has {bytes_text(topic.value_sizes.largest)}: near or above the limits that brokers "
            "and clients come with (1 MiB)."
        )


def _batches(topic: TopicCounts) -> Iterator[str]:
    sizes, records = topic.batch_sizes, sum(part.records for part in topic.partitions.values())
    if records < RECORDS_MIN or not sizes.count:
        return
    if (sizes.mean or 0) < SMALL_BATCH_BYTES:
        yield (
            f"batches are small, {bytes_text(sizes.mean or 0)} with {records / sizes.count:.1f} records in the mean: "
            "a larger linger.ms and batch.size of the producers save requests, and compress better."
        )
    plain = sum(counted[1] for (_, codec), counted in topic.codecs.items() if codec == NONE)
    stored = sum(counted[1] for counted in topic.codecs.values())
    packed = topic.sample.get(ZSTD, 0)
    if stored and plain > stored / 2 and packed and topic.sampled_bytes > PACKED_RATIO * packed:
        with_lz4 = topic.sampled_bytes / max(topic.sample.get(LZ4, 0), 1)
        yield (
            f"{share_text(plain, stored)} of the bytes are stored without compression; of a sample of the values zstd "
            f"makes {topic.sampled_bytes / packed:.1f} times less, lz4 {with_lz4:.1f} times (minibroker spark codecs "
            "says which to take)."
        )
    if len(names := sorted({codec for _, codec in topic.codecs})) > 1:
        yield f"batches have different codecs: {', '.join(CODEC_NAMES[codec] for codec in names if codec < 5)}."
    if old := sorted({magic for magic, _ in topic.codecs if magic < 2}):
        yield (
            f"there are messages of format {' and '.join(f'v{magic}' for magic in old)}: brokers of today read them, "
            "and have no headers, producers and transactions for them."
        )


def _times(profile: Profile, name: str, topic: TopicCounts) -> Iterator[str]:
    stretches = profile.of_topic(name)
    timed, backward = sum(each.timed for each in stretches), sum(each.backward for each in stretches)
    oldest, newest = profile.span(name)
    if topic.future:
        yield (
            f"{count_text(topic.future)} records have a time in the future, up to {time_text(newest)}: retention by "
            "time keeps their segments until then."
        )
    if oldest is not None and oldest < SECONDS_MAX:
        yield f"the oldest time is {time_text(oldest)}: one that was never set, or seconds where milliseconds belong."
    if timed >= RECORDS_MIN and backward > 0.05 * timed:
        late = duration_text(max(each.late_ms_max for each in stretches))
        yield (
            f"{share_text(backward, timed)} of the records are older than the one before them, the latest by {late}: a "
            "watermark must wait as long, or leave them out."
        )
    if topic.timeless:
        yield f"{count_text(topic.timeless)} records have no timestamp."
    if hourless := sum(part.hourless for part in topic.partitions.values()):
        yield (
            f"times are so scattered that only {count_text(HOURS_MAX)} hours of a partition were told apart; "
            f"{count_text(hourless)} records are in none of them."
        )


def _transactions(profile: Profile, name: str, topic: TopicCounts) -> Iterator[str]:
    ended = [ending.ended() for each in profile.of_topic(name) for ending in each.endings.values()]
    committed, aborted, is_open = (sum(each[index] for each in ended) for index in range(3))
    if aborted:
        yield (
            f"{count_text(aborted)} records, {share_text(aborted, committed + aborted)} of those in transactions that "
            "have ended, were aborted: readers of read_committed get them and throw them away."
        )
    if is_open:
        yield (
            f"{count_text(is_open)} records are in transactions without an end: readers of read_committed stop before "
            "the first of them."
        )
    if any(MANY in part.producers for part in topic.partitions.values()):
        yield f"there are more than {count_text(PRODUCERS_MAX)} producers in a partition; the others count as one."
