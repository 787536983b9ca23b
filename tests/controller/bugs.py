"""Bugs of the controller that test_invariants.py must find (tests/planting.py says what a bug is)."""

from __future__ import annotations

from copy import copy
from typing import Any

from minibroker.controller import alter_partition, brokers
from minibroker.controller.controller import Controller
from minibroker.controller.partition_change import PartitionChange
from minibroker.controller.placement import is_active
from minibroker.metadata.image import Partition

check, is_eligible, left_behind = alter_partition._check, alter_partition._is_eligible, brokers.left_behind
elect = PartitionChange._elect


def check_no_epoch(controller: Controller, broker_id: int, partition: Partition, asked: Any, version: int) -> list[int]:
    asked = copy(asked)
    asked.partition_epoch = max(asked.partition_epoch, partition.partition_epoch)
    return check(controller, broker_id, partition, asked, version)


def is_fenced_or_eligible(controller: Controller, broker_id: int, broker_epoch: int) -> bool:
    return not is_active(controller.image, broker_id) or is_eligible(controller, broker_id, broker_epoch)


def is_just_active(controller: Controller, broker_id: int, broker_epoch: int) -> bool:
    return is_active(controller.image, broker_id)


def elect_anybody(change: PartitionChange) -> tuple[int, bool]:
    isr, change.isr = change.isr, [*change.replicas, change.before.leader]
    try:
        return elect(change)
    finally:
        change.isr = isr


def left_in_order(controller: Controller, broker_id: int, *, was_clean: bool) -> Any:
    return left_behind(controller, broker_id, was_clean=True)


BUGS: dict[str, list[tuple[object, str, object]]] = {
    "any-broker-epoch": [(alter_partition, "_is_eligible", is_just_active)],
    "any-partition-epoch": [(alter_partition, "_check", check_no_epoch)],
    "anybody-leads": [(PartitionChange, "_elect", elect_anybody)],
    "crash-keeps-eligible": [(brokers, "left_behind", left_in_order)],
    "fenced-joins": [(alter_partition, "_is_eligible", is_fenced_or_eligible)],
}
