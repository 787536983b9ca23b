"""`minibroker groups --reset-offsets`: asks what is known, and commits what was planned from it (reset_plan.py).

What must hold: nothing is committed before the plans of all groups stand.
"""

from __future__ import annotations

import sys

from minibroker.cli.connect import Refused, complain, print_json
from minibroker.cli.group_tables import RESET_COLUMNS, described_groups, has_leader, partitions_named, print_table
from minibroker.cli.reset_plan import (
    BY_TIME,
    DATETIME,
    DURATION,
    FILE,
    OFFSET,
    SHIFT,
    Known,
    milliseconds_of,
    plan,
    read_csv,
    written_csv,
)
from minibroker.cli.status import DONE, FAILED
from minibroker.cli.words import PLACES, milliseconds
from minibroker.errors import Error, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

    from minibroker.cli.group_tables import Row
    from minibroker.cli.reset_plan import Reset
    from minibroker.client.cluster import Cluster, TopicPartition
    from minibroker.client.groups import CommittedOffset, Groups

    Committed = dict[TopicPartition, CommittedOffset]

IDLE = ("Empty", "Dead")


async def reset(cluster: Cluster, groups: Groups, names: list[str], options: argparse.Namespace) -> int:
    place, number = _place(options, cluster.clock.now_ms())
    if place != FILE and options.all_topics == bool(options.topics):
        raise Refused("--reset-offsets: which partitions? --topic NAME, or --all-topics")
    if not options.execute and not options.dry_run:
        warning = "WARN: No action will be performed as the --execute option is missing."
        print(f"{warning} Say --dry-run if that is meant: Kafka's tool will ask for one of them.", file=sys.stderr)
    idle, failed = await _idle(groups, names)
    committed = await groups.fetch_offsets(idle)
    wanted = await _wanted(cluster, place, number, names, committed, options)
    for name in [name for name in idle if name not in wanted]:
        complain("groups", f"{options.from_file} has nothing for group {name!r}")
        failed.append(name)
    known = await _known(cluster, place, number, {key for partitions in wanted.values() for key in partitions})
    plans: dict[str, dict[TopicPartition, Reset]] = {}
    try:
        for name, partitions in wanted.items():
            of_group = {key: at.offset for key, at in committed[name].items()}
            facts = {key: known[key]._replace(committed=of_group.get(key)) for key in partitions}
            plans[name] = plan(place, partitions, facts)
    except ValueError as error:
        raise Refused(str(error), FAILED) from None
    done: dict[str, dict[TopicPartition, int]] = {}
    for name, resets in plans.items():
        for planned in resets.values():
            if planned.remark:
                complain("groups", planned.remark)
        offsets = {key: planned.offset for key, planned in resets.items()}
        if options.execute and offsets:
            try:
                await groups.alter_offsets(name, offsets)
            except KafkaError as error:
                complain("groups", f"group {name!r}: {error}")
                failed.append(name)
                continue
        done[name] = offsets
    if options.export:
        print(written_csv(done, with_group=len(names) != 1 or options.all_groups), end="")
    else:
        _print_reset(done, options)
    return FAILED if failed else DONE


def _place(options: argparse.Namespace, now_ms: int) -> tuple[str, int]:
    """Return where to, and the number that says so: an offset, a difference, or ms since 1970."""
    given = {place: getattr(options, place.replace("-", "_")) for place in PLACES}
    place = next((place for place, value in given.items() if value is not None), "")
    if not place:
        raise Refused(f"--reset-offsets: where to? {', '.join(f'--{place}' for place in PLACES)}")
    value = given[place]
    try:
        if place == DATETIME:
            return place, max(0, milliseconds(value))
        if place == DURATION:
            return place, max(0, now_ms - milliseconds_of(value))
    except ValueError:
        form = "2024-05-01T12:00:00.000" if place == DATETIME else "PnDTnHnMnS, as in P1D, PT2H30M or PT90S"
        raise Refused(f"--{place} {value}: say {form}") from None
    return place, value if place in (OFFSET, SHIFT) else 0


async def _idle(groups: Groups, names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the groups that nobody is in, among them those that do not exist yet; and the others."""
    described, missing = await described_groups(groups, names)
    idle, failed = [], []
    for name in names:
        group, error = described.get(name), missing.get(name)
        if group is not None and group.state not in IDLE:
            what = f"the group '{name}' is inactive, but the current state is {group.state}"
            complain("groups", f"Assignments can only be reset if {what}: stop its members first.")
            failed.append(name)
        elif error is not None and (isinstance(error, str) or error.code != Error.GROUP_ID_NOT_FOUND):
            complain("groups", f"group {name!r}: {error}")
            failed.append(name)
        else:
            idle.append(name)
    return idle, failed


async def _wanted(
    cluster: Cluster,
    place: str,
    number: int,
    names: list[str],
    committed: Mapping[str, Committed],
    options: argparse.Namespace,
) -> dict[str, dict[TopicPartition, int]]:
    """Return the partitions to reset of each group, with the number that says where to."""
    if place == FILE:
        try:
            with open(options.from_file, encoding="utf-8", newline="") as file:
                planned = read_csv(file.read(), names)
        except OSError as error:
            raise Refused(f"--from-file {options.from_file}: {error.strerror}", FAILED) from None
        except ValueError as error:
            raise Refused(f"--from-file {options.from_file}: {error}") from None
        wanted = {name: planned[name] for name in committed if name in planned}
    elif options.all_topics:
        wanted = {name: dict.fromkeys(offsets, number) for name, offsets in committed.items()}
    else:
        partitions = await partitions_named(cluster, options.topics)
        wanted = {name: dict.fromkeys(partitions, number) for name in committed}
    await _refuse_missing(cluster, {key for partitions in wanted.values() for key in partitions})
    return wanted


async def _refuse_missing(cluster: Cluster, partitions: Iterable[TopicPartition]) -> None:
    wanted = sorted(partitions)
    topics = await cluster.metadata({topic for topic, _ in wanted}) if wanted else {}
    missing = [f"{topic}-{number}" for topic, number in wanted if number not in topics[topic].partitions]
    if missing:
        raise Refused(f"there is no partition {', '.join(missing)}; minibroker topics --describe shows them", FAILED)
    leaderless = [f"{topic}-{number}" for topic, number in wanted if not has_leader(topics[topic], number)]
    if leaderless:
        raise Refused(f"{', '.join(leaderless)} has no leader to ask; is a broker down?", FAILED)


async def _known(
    cluster: Cluster, place: str, number: int, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Known]:
    """Ask where partitions begin and end and, if the place is a moment, which offset it has."""
    from minibroker.client.admin import Admin
    from minibroker.client.offsets import AtTime

    wanted, admin = sorted(partitions), Admin(cluster)
    starts = await admin.list_offsets(dict.fromkeys(wanted, "earliest"))
    ends = await admin.list_offsets(dict.fromkeys(wanted, "latest"))
    found = await admin.list_offsets(dict.fromkeys(wanted, AtTime(number))) if place in BY_TIME else {}
    at_time = {key: at.offset for key, at in found.items() if at.offset >= 0}
    return {key: Known(starts[key].offset, ends[key].offset, at_time=at_time.get(key)) for key in wanted}


def _print_reset(done: Mapping[str, Mapping[TopicPartition, int]], options: argparse.Namespace) -> None:
    rows: list[Row] = [
        {"GROUP": name, "TOPIC": topic, "PARTITION": partition, "NEW-OFFSET": offset}
        for name, offsets in done.items()
        for (topic, partition), offset in offsets.items()
    ]
    if options.json:
        print_json([{column.lower().replace("new-", ""): value for column, value in row.items()} for row in rows])
    elif rows:
        print_table(RESET_COLUMNS, rows)
