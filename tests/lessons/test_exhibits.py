"""What lessons show of bytes: made and read by what brokers use, and refused where there is nothing to see."""

from __future__ import annotations

import pytest

from minibroker.lessons.running import check
from minibroker.lessons.scenario import parse_scenario

pytestmark = pytest.mark.outside

HEAD = """# Bytes

Words.

    start 1 brokers
    topic orders
"""


def play(text: str) -> None:
    check(parse_scenario(HEAD + text, "bytes.txt"))


def test_fields_can_be_chosen_by_their_path_or_by_their_name() -> None:
    play("""
    produce orders-0 "a" "b"
    bytes orders-0 1 attributes
    bytes orders-0 1 records[1].attributes,offset_delta
    ----
    told: 21-23 attributes: 0 (no codec, CreateTime) [00 00]
    told: * records[1].attributes: 0 [00]
    told: * records[0].offset_delta: 0 *
    told: * records[1].offset_delta: 1 (02 = 2, zigzag 1) [02]
""")


def test_all_fields_are_told_if_none_is_named() -> None:
    play("""
    produce orders-0 "a"
    bytes orders-0 0
    ----
    told: 0-8 base_offset: 0, set by the broker [00 00 00 00 00 00 00 00]
    told: 16-17 magic: 2 [02]
    told: * records[0].headers: 0 elements *
""")


def test_what_a_leader_changed_is_told_of_what_this_lesson_sent() -> None:
    play("""
    produce orders-0 "a"
    produce orders-0 "b" "c" codec=snappy
    changed orders-0 2
    fill orders-0 1
    changed orders-0 3
    ----
    told: 5 of * bytes changed, in base_offset and partition_leader_epoch; *
    told: base_offset: 0 -> 1
    error: no producer of this lesson sent it
""")


def test_what_is_not_there_is_refused() -> None:
    play("""
    produce orders-0 "a"
    bytes orders-0 5
    bytes orders-0 0 nonsense
    0.7 fetch 368
    lookup orders-0 9
    lookup orders-0 since 0s
    ----
    error: the log ends at 1
    error: it has none of nonsense
    error: the log has offsets from 368 to 368
    told: the log holds 0 to 0, 9 is not there
    told: segment 0: the first whose largest timestamp is not older
""")


def test_a_log_is_weighed_and_its_index_told_in_short() -> None:
    play("""
    topic small index.interval.bytes=100
    fill small-0 30 bytes=50 every=1s
    weigh small-0
    index small-0
    lookup small-0 since 5s
    lookup small-0 since 1h
    ----
    told: 30 records in 30 batches, 3,540 bytes; codec: none
    told: segment 0: 3,540 bytes, 30 batches, 29 index entries
    told: 1 is at byte 118
    told: ...
    told: 29 is at byte 3,422
    told: then record by record, until one is not older: offset 24
    told: time index: none of 29 entries is older: begin at 0
    state: small-0 b1 leo=30
""")


def test_a_gap_of_compaction_leads_to_the_next_segment() -> None:
    play("""
    topic prices cleanup.policy=compact
    produce prices-0 "a=1" keyed
    produce prices-0 "b=1" keyed
    roll prices-0
    produce prices-0 "b=2" keyed
    roll prices-0
    compact prices-0
    lookup prices-0 1
    ----
    told: segment 0: *
    told: the batch of 2 begins *
""")


def test_old_formats_need_an_old_release() -> None:
    check(
        parse_scenario("""# Old

Words.

    start 2 brokers as=2.8
    topic old replicas=1,2 message.format.version=0.9.0
    produce old-0 "k=v" keyed format=0 times=3
    bytes old-0 2 magic,key.size
    consume old-0 from=1
    ----
    told: 16-17 magic: 0 [00]
    told: 18-22 key.size: 1 *
    told: broker 1 answers 2 records from 1; *
    state: old-0 b2 leo=3
""")
    )
