"""Frames: a picture of a state, line by line."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from minibroker.cluster.snapshot import ClusterState, PartitionState, ReplicaState
from minibroker.watch.frame import frame


def replica(start: int, high_watermark: int, end: int, text: str = "", **more: object) -> ReplicaState:
    found: ReplicaState = {
        "start_offset": start,
        "high_watermark": high_watermark,
        "last_stable_offset": high_watermark,
        "end_offset": end,
        "leader_epoch": 0,
        "is_leader": False,
        "epochs": [(0, 0)],
        "segments": [0],
        "clean_offset": -1,
        "texts": {str(start + index): letter for index, letter in enumerate(text)},
        "markers": {},
        "gaps": [],
    }
    return {**found, **more}  # type: ignore[typeddict-item]


def partition(*replicas: ReplicaState | None, isr: tuple[int, ...] = (1, 2, 3), leader: int = 1) -> PartitionState:
    return {
        "topic": "orders",
        "partition": 0,
        "leader": leader,
        "leader_epoch": 2,
        "isr": list(isr),
        "elr": [],
        "replicas": {str(number): each for number, each in enumerate(replicas, 1)},
    }


def state(*partitions: PartitionState, states: str = "running running running") -> ClusterState:
    return {
        "bootstrap": "127.0.0.1:9092",
        "now_ms": 45_296_789,
        "is_frozen": True,
        "controller": "running",
        "brokers": [
            {
                "id": number,
                "address": f"127.0.0.1:{9091 + number}",
                "state": each,
                "is_fenced": False,
                "rack": "",
                "is_cut_from_clients": False,
            }
            for number, each in enumerate(states.split(), 1)
        ],
        "cuts": [],
        "links": [],
        "disks": [],
        "held": [],
        "partitions": list(partitions),
        "groups": [],
        "said": [],
    }


LOGS = partition(
    replica(0, 2, 4, "abcd", is_leader=True, epochs=[(0, 0), (2, 3)]),
    replica(0, 1, 3, "abx"),
    replica(1, 1, 2, "b"),
    isr=(1, 2),
)


def test_replicas_are_lanes() -> None:
    assert frame(state(LOGS), 74) == [
        "12:34:56.789 (frozen)  127.0.0.1:9092",
        "b1 running  b2 running  b3 running",
        "",
        "orders-0  broker 1 leads in epoch 2, in sync: 1,2",
        "  b1 leader    a b|c d                      hw 2  leo 4  e0@0  e2@3",
        "  b2 in sync   a|b x                        hw 1  leo 3  e0@0",
        "  b3 behind    .|b                          hw 1  leo 2  e0@0",
        "",
    ]


def test_what_is_wrong_with_brokers_links_and_gates_is_seen() -> None:
    shown = state(
        partition(replica(0, 1, 1, "a", is_leader=True), None, replica(0, 1, 1, "a", is_leader=True), leader=3),
        states="paused killed running",
    )
    shown["brokers"][2]["is_cut_from_clients"] = True
    shown["cuts"] = [("1", "2"), ("2", "1"), ("3", "1")]
    shown["held"] = [("fetch", "FetchRequest 1->3"), ("fetch", "FetchRequest 2->3")]
    shown["controller"] = "killed"
    assert frame(shown, 74, chosen=3) == [
        "12:34:56.789 (frozen)  127.0.0.1:9092",
        "b1 paused  b2 killed  >b3 running  controller killed",
        "cut: 1-2, 3->1, 3-clients",
        "fetch waits: FetchRequest 1->3, FetchRequest 2->3",
        "",
        "orders-0  broker 3 leads in epoch 2, in sync: 1,2,3",
        "  b1 paused    a|                           hw 1  leo 1  e0@0",
        "  b2 killed",
        "> b3 leader    a|                           hw 1  leo 1  e0@0",
        "",
    ]


def test_groups_are_below_the_replicas_and_topics_of_the_brokers_themselves_are_not_shown() -> None:
    offsets = partition(replica(0, 0, 0))
    offsets["topic"] = "__consumer_offsets"
    shown = state(offsets)
    shown["groups"] = [
        {
            "id": "readers",
            "state": "PreparingRebalance",
            "coordinator": 2,
            "protocol": "Classic",
            "epoch": 4,
            "assignor": "range",
            "members": {
                "anna": {"assigned": [], "owned": ["orders-0", "orders-1"]},
                "ben": {"assigned": [], "owned": []},
            },
            "committed": {"orders-0": 7},
        },
        {
            "id": "writers",
            "state": "Empty",
            "coordinator": 1,
            "protocol": "Consumer",
            "epoch": 0,
            "assignor": "",
            "members": {},
            "committed": {},
        },
    ]
    assert frame(shown, 100)[3:] == [
        "readers  PreparingRebalance in generation 4 on b2",
        "        assigned by the coordinator  believes to own, and reads",
        "  anna  nothing                      orders-0, orders-1",
        "  ben   nothing                      nothing",
        "  committed orders-0@7",
        "writers  Empty in epoch 0 on b1, nobody is in",
        "",
    ]


def test_a_leader_that_does_not_know_that_it_is_none_is_told_from_the_other() -> None:
    shown = frame(state(partition(replica(0, 0, 1, "z", is_leader=True), replica(0, 0, 0), leader=2)), 74)
    assert [line[:14].strip() for line in shown[4:6]] == ["b1 led once", "b2 leader"]


def test_segments_gaps_and_the_clean_tail_are_seen() -> None:
    more: dict[str, Any] = {"segments": [0, 4, 6], "clean_offset": 4, "gaps": [(0, 2), (3, 4)]}
    lines = frame(state(partition(replica(0, 6, 6, "??a?b-", **more), replica(0, 5, 6, "abacb-"))), 84)
    assert lines[4:6] == [
        "  b1 leader    . . a .:b -|                           hw 6  leo 6  e0@0  clean@4",
        "  b2 in sync   a b a c b|-                            hw 5  leo 6  e0@0",
    ]
    bar: dict[str, Any] = {"segments": [0, 40], "clean_offset": 40, "gaps": [(0, 20)]}
    (line,) = [line for line in frame(state(partition(replica(0, 100, 100, **bar))), 74) if "leader  " in line]
    assert line.split()[2] == "." * 5 + "#" * 20


def test_markers_and_the_last_stable_offset_are_seen() -> None:
    more: dict[str, Any] = {"markers": {"1": "commit", "3": "abort"}, "last_stable_offset": 4}
    lines = frame(state(partition(replica(0, 5, 6, "a?b?cd", **more), replica(0, 4, 6, "a?b?cd", **more))), 84)
    assert lines[4:6] == [
        "  b1 leader    a + b ! c|d                            hw 5  lso 4  leo 6  e0@0",
        "  b2 in sync   a + b !|c d                            hw 4  leo 6  e0@0",
    ]


def test_a_long_log_is_a_bar_to_scale() -> None:
    lines = frame(state(partition(replica(0, 500, 1000), replica(500, 500, 750))), 74)
    lanes = [line[14:42] for line in lines[4:6]]
    assert lanes == ["#" * 13 + "-" + "=" * 14, "." * 13 + "=" * 8 + " " * 7]


def test_the_last_things_that_happened_are_at_the_bottom_as_far_as_there_is_room() -> None:
    shown = state(LOGS)
    shown["said"] = [(45_000_000 + number, f"Thing number {number} happened.") for number in range(50)]
    lines = frame(shown, 74, 12)
    assert len(lines) == 12
    assert lines[-1] == "12:30:00.049  Thing number 49 happened."
    assert lines[8] == "12:30:00.046  Thing number 46 happened."


@pytest.mark.parametrize("height", [1, 5, 10, 24])
@pytest.mark.parametrize("width", [30, 80, 200])
def test_there_are_never_more_lines_or_columns_than_there_are(width: int, height: int) -> None:
    shown = state(*[LOGS] * 20)
    shown["said"] = [(0, "A sentence that is long enough to be wrapped more than once. " * 3)] * 20
    for colour in (False, True):
        lines = frame(shown, width, height, colour=colour, words=["Words of a lesson. " * 20], keys="s step  q quit")
        assert len(lines) <= height
        assert all(len(re.sub(r"\x1b\[\d+m", "", line)) <= width for line in lines)


def test_colours_are_epochs_and_change_no_letter() -> None:
    plain, coloured = frame(state(LOGS), 74), frame(state(LOGS), 74, colour=True)
    assert "\x1b[36mc\x1b[0m" in coloured[4]
    assert "\x1b[35md\x1b[0m" in coloured[4]
    assert [re.sub(r"\x1b\[\d+m", "", line).rstrip() for line in coloured] == plain


def test_a_state_is_what_json_takes() -> None:
    shown = state(LOGS)
    assert frame(json.loads(json.dumps(shown)), 74) == frame(shown, 74)


def test_links_that_delay_or_hold_back_and_disks_in_trouble_are_seen() -> None:
    shown = state(partition(replica(0, 0, 0)))
    usual = {"delay_ms": 0.0, "jitter_ms": 0.0, "bytes_per_s": 0.0, "lost_share": 0.0}
    for source, target, more in (
        ("1", "2", {"delay_ms": 50.0}),
        ("2", "1", {"delay_ms": 50.0}),
        ("3", "1", {"bytes_per_s": 2000.0, "lost_share": 0.25}),
    ):
        shown["links"].append({"source": source, "target": target, **usual, **more})  # type: ignore[typeddict-item]
    shown["disks"] = [("2", "slow", 20.0), ("3", "full", 0.0)]
    assert frame(shown, 80)[2:6] == [
        "1-2 delayed by 50 ms",
        "3->1 2000 bytes/s, loses 25%",
        "disk of 2 takes 20 ms for each write",
        "disk of 3 is full",
    ]


def test_a_number_is_whole_or_not_there() -> None:
    """e1@219 once ended as e1@21."""
    shown = state(partition(replica(0, 1032, 1034, epochs=[(0, 0), (1, 219)])))
    for width in range(57, 90):
        line = frame(shown, width)[4]
        assert re.fullmatch(r"(  e0@0)?(  e1@219)?", line.partition("leo 1034")[2]), (width, line)


def test_a_cell_that_is_committed_in_part_is_not_shown_as_one_that_is_not() -> None:
    (line,) = [
        each for each in frame(state(partition(replica(0, 1032, 1034))), 80) if "b1" in each and "leader" in each
    ]
    assert line.split()[2].strip("#") == "-"


def test_one_topic_is_shown_and_partitions_are_scrolled_past() -> None:
    partitions = []
    for number in range(15):
        partitions.append(partition(replica(0, 0, 0)))
        partitions[-1]["partition"] = number
    partitions.append({**partition(replica(0, 0, 0)), "topic": "__consumer_offsets"})
    text = "\n".join(frame(state(*partitions), 80, 40, first=12))
    assert "orders-12 " in text
    assert "orders-11 " not in text
    text = "\n".join(frame(state(*partitions), 80, 40, topic="__consumer_offsets"))
    assert "__consumer_offsets-0 " in text
    assert "orders-" not in text


def test_eligible_replicas_are_named() -> None:
    shown = state({**partition(replica(0, 0, 0), isr=()), "elr": [1, 2], "leader": -1})
    assert "orders-0  nobody leads in epoch 2, in sync: nobody, eligible: 1,2" in frame(shown, 80)
