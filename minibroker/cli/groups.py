"""`minibroker groups`: what kafka-consumer-groups.sh does, with its options and tables.

Reasons go to standard error, and whatever could not be done makes the exit status 1, where Kafka's tool says 0.
Not here: --reset-offsets (reset_offsets.py), what tables look like (group_tables.py).
"""

from __future__ import annotations

from minibroker.cli.connect import Refused, complain, print_json, run_with_cluster
from minibroker.cli.connect import add_arguments as add_connection
from minibroker.cli.status import DONE, FAILED
from minibroker.cli.words import PLACES

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from minibroker.cli.group_tables import Row
    from minibroker.client.cluster import Cluster, TopicPartition
    from minibroker.client.groups import CommittedOffset, Groups
    from minibroker.errors import KafkaError

    Committed = dict[TopicPartition, CommittedOffset]

DESCRIPTION = (
    "List, describe and delete consumer groups, and change their offsets. Without a verb, list; with names, describe."
)
EPILOG = (
    "--reset-offsets needs a place (--to-..., --by-duration, --shift-by, --from-file) and, but for --from-file, "
    "partitions: --all-topics (those with a committed offset) or --topic. The group must have no members."
)
VERBS = {
    "list": "ids, one a line",
    "describe": "how far they are, or --members or --state",
    "reset-offsets": "let groups go on elsewhere: shown only, unless --execute is said",
    "delete": "delete groups with all that they have committed",
    "delete-offsets": "forget what one group has committed for --topic",
}
STATES = ("Assigning", "CompletingRebalance", "Dead", "Empty", "PreparingRebalance", "Reconciling", "Stable")
REBALANCING = ("Assigning", "CompletingRebalance", "PreparingRebalance", "Reconciling")
TYPES = ("Classic", "Consumer")
UNKNOWN = "Unknown"  # the broker is too old to tell
LIST_MARGIN = 10  # what Kafka's tool leaves behind the longest id


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("names", nargs="*", metavar="GROUP", help="which; the same as --group")
    parser.add_argument("-g", "--group", dest="more_names", action="append", default=[], metavar="GROUP")
    parser.add_argument("--all-groups", action="store_true", help="every consumer group there is")
    verbs = parser.add_mutually_exclusive_group()
    for verb, text in VERBS.items():
        verbs.add_argument(f"--{verb}", dest="verb", action="store_const", const=verb, help=text)
    verbs.add_argument(
        "--validate-regex",
        metavar="REGEX",
        help="say whether a pattern of topics is one, as a broker would; needs no broker",
    )
    parser.add_argument("--offsets", action="store_true", help="--describe: how far they are; nobody need say so")
    parser.add_argument("--members", action="store_true", help="--describe: who is in them, and has what")
    parser.add_argument(
        "--state", nargs="?", const="", metavar="STATE,STATE",
        help="--describe: coordinator and state; --list: with states, or only groups in these",
    )  # fmt: skip
    parser.add_argument(
        "--type", nargs="?", const="", metavar="TYPE,TYPE",
        help="--list: with types, or only classic or consumer groups",
    )  # fmt: skip
    parser.add_argument("-v", "--verbose", action="store_true", help="--describe: with epochs and assignments")
    parser.add_argument(
        "-t", "--topic", dest="topics", action="append", default=[], metavar="TOPIC[:0,1]",
        help="all or some partitions",
    )  # fmt: skip
    parser.add_argument("--all-topics", action="store_true", help="--reset-offsets: wherever the group has an offset")
    places = parser.add_mutually_exclusive_group()
    for place, (value, text) in PLACES.items():
        if value:
            places.add_argument(f"--{place}", type=int if value == "N" else str, metavar=value, help=text)
        else:
            places.add_argument(f"--{place}", action="store_const", const="", help=text)
    manners = parser.add_mutually_exclusive_group()
    manners.add_argument("--dry-run", action="store_true", help="only show what would be")
    manners.add_argument("--execute", action="store_true", help="commit the new offsets")
    parser.add_argument("--export", action="store_true", help="print them as CSV")
    parser.add_argument("--timeout", type=int, metavar="MS", help="how long to wait for an answer of a broker (10000)")
    parser.add_argument("-J", "--json", action="store_true", help="one JSON document")


def run(options: argparse.Namespace) -> int:
    if options.validate_regex is not None:
        return _validate_regex(options.validate_regex)
    names = list(dict.fromkeys([*options.names, *options.more_names]))
    verb = options.verb or ("describe" if names or options.all_groups else "list")

    async def work(cluster: Cluster) -> int:
        from minibroker.client.groups import Groups

        _check(verb, names, options)
        if options.timeout:
            cluster.timeout_ms = options.timeout
        groups = Groups(cluster)
        if verb == "list":
            return await _list(groups, options)
        wanted = names or [group.id for group in await _consumer_groups(groups)]
        if verb == "reset-offsets":
            from minibroker.cli.reset_offsets import reset

            return await reset(cluster, groups, wanted, options)
        works = {"describe": _describe, "delete": _delete, "delete-offsets": _delete_offsets}
        return await works[verb](cluster, groups, wanted, options)

    return run_with_cluster("groups", options, work)


def _check(verb: str, names: list[str], options: argparse.Namespace) -> None:
    """Refuse what makes no sense."""
    if verb != "list" and not names and not options.all_groups:
        raise Refused(f"--{verb}: which group? --group NAME{'' if verb == 'delete-offsets' else ' or --all-groups'}")
    if names and (options.all_groups or verb == "list"):
        raise Refused("either --group or --all-groups, not both" if options.all_groups else "--list takes no group")
    if verb != "reset-offsets":
        for option in (*PLACES, "dry-run", "execute", "export", "all-topics"):
            value = getattr(options, option.replace("-", "_"))
            if value is not None and value is not False:  # 0 is a number
                raise Refused(f"--{option} belongs to --reset-offsets: say that too")
    if verb == "describe" and options.members + options.offsets + (options.state is not None) > 1:
        raise Refused("--describe takes one of --offsets, --members and --state")
    if verb == "describe" and options.state:
        raise Refused(f"--state {options.state}: only --list takes states; a group is named by --group")
    if verb == "delete" and options.topics:
        raise Refused("--delete takes whole groups; --delete-offsets is for a topic")
    if verb == "delete-offsets" and (len(names) != 1 or not options.topics):
        raise Refused("--delete-offsets takes one --group, and --topic at least once")


async def _consumer_groups(groups: Groups, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[Any]:
    from minibroker.client.groups import CONSUMER_PROTOCOL

    listed = await groups.list_groups(states=states, types=types)
    return [group for group in listed if group.protocol_type in ("", CONSUMER_PROTOCOL)]


# List


async def _list(groups: Groups, options: argparse.Namespace) -> int:
    states, types = _chosen(options.state, STATES, "state"), _chosen(options.type, TYPES, "type")
    listed = await _consumer_groups(groups, states, types)
    if options.json:
        print_json([{"group": group.id, "type": group.type or None, "state": group.state or None} for group in listed])
    elif options.state is None and options.type is None:
        for group in listed:
            print(group.id)
    else:
        from minibroker.cli.group_tables import table

        columns = {"GROUP": max(15, *(len(group.id) for group in listed), 0) + LIST_MARGIN}
        columns |= {"TYPE": 20} if options.type is not None else {}
        columns |= {"STATE": 20} if options.state is not None else {}
        rows = [{"GROUP": group.id, "TYPE": group.type or UNKNOWN, "STATE": group.state or UNKNOWN} for group in listed]
        print("\n".join(table(columns, rows)))
    return DONE


def _chosen(text: str | None, known: Sequence[str], what: str) -> list[str]:
    """Return names as the broker spells them, of a list in any case."""
    spelled = {name.lower(): name for name in known}
    wanted = [word.strip() for word in text.split(",")] if text else []
    for word in wanted:
        if word.lower() not in spelled:
            raise Refused(f"--{what} {word}: there are {', '.join(known)}")
    return [spelled[word.lower()] for word in wanted]


# Describe


async def _describe(cluster: Cluster, groups: Groups, names: list[str], options: argparse.Namespace) -> int:
    from minibroker.cli.group_tables import (
        OFFSET_COLUMNS,
        STATE_COLUMNS,
        described_groups,
        document,
        member_columns,
        member_row,
        offset_row,
        print_table,
        progress,
        state_row,
    )

    described, missing = await described_groups(groups, names)
    for name, error in missing.items():
        complain("groups", f"group {name!r}: {_said(error)}")
    show_offsets = not options.members and options.state is None
    committed: dict[str, Committed] = {}
    ends: dict[TopicPartition, int] = {}
    if show_offsets:
        committed = await groups.fetch_offsets(described)
        assigned = {key for group in described.values() for member in group.members for key in member.assignment}
        ends = await _ends(cluster, assigned.union(*committed.values()))
    offsets = {name: progress(group, committed[name], ends) for name, group in described.items() if show_offsets}
    if options.json:
        print_json([document(group, offsets.get(name)) for name, group in described.items()])
        return FAILED if missing else DONE
    for name, group in described.items():
        if group.state == "Empty":
            complain("groups", f"Consumer group '{name}' has no active members.")
        elif group.state in REBALANCING:
            complain("groups", f"Warning: Consumer group '{name}' is rebalancing.")
        if show_offsets:
            columns, rows = OFFSET_COLUMNS, [offset_row(name, at) for at in offsets[name]]
        elif options.members:
            columns, rows = member_columns(group), [member_row(group, member) for member in group.members]
        else:
            columns, rows = STATE_COLUMNS, [state_row(group, cluster.nodes.get(group.coordinator_id))]
        if rows or options.members:
            print_table(columns, rows, options.verbose)
    return FAILED if missing else DONE


def _said(error: KafkaError | str) -> str:
    from minibroker.errors import Error

    if not isinstance(error, str) and error.code == Error.GROUP_ID_NOT_FOUND:
        return "there is none; minibroker groups --list shows what there is"
    return str(error)


async def _ends(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return where partitions end, of those that have a leader to tell."""
    from minibroker.cli.group_tables import has_leader
    from minibroker.client.admin import Admin

    wanted = sorted(partitions)
    topics = await cluster.metadata({topic for topic, _ in wanted}) if wanted else {}
    led = [key for key in wanted if has_leader(topics[key[0]], key[1])]
    found = await Admin(cluster).list_offsets(dict.fromkeys(led, "latest"))
    return {key: at.offset for key, at in found.items()}


# Delete


async def _delete(cluster: Cluster, groups: Groups, names: list[str], options: argparse.Namespace) -> int:
    from minibroker.client.descriptions import SomeFailed

    deleted, status = names, DONE
    try:
        await groups.delete_groups(names)
    except SomeFailed as failed:
        deleted, status = list(failed.results), FAILED
        for name, error in failed.errors.items():
            complain("groups", f"group {name!r} could not be deleted: {_said(error)}")
    quoted = ", ".join(f"'{name}'" for name in deleted)
    if options.json:
        print_json({"deleted": deleted})
    elif status == DONE:
        print(f"Deletion of requested consumer groups ({quoted}) was successful.")
    elif deleted:
        print(f"These consumer groups were deleted successfully: {quoted}")
    return status


async def _delete_offsets(cluster: Cluster, groups: Groups, names: list[str], options: argparse.Namespace) -> int:
    from minibroker.cli.group_tables import DELETED_COLUMNS, partitions_named, print_table
    from minibroker.client.descriptions import SomeFailed
    from minibroker.errors import KafkaError

    (name,) = names
    partitions = await partitions_named(cluster, options.topics)
    errors: Mapping[TopicPartition, KafkaError] = {}
    try:
        await groups.delete_offsets(name, partitions)
    except SomeFailed as failed:
        errors = failed.errors
        complain("groups", "some offsets could not be deleted: see the table")
    except KafkaError as error:
        complain("groups", f"group {name!r}: {_said(error)}")
        return FAILED
    else:
        if not options.json:
            print(f"Request succeeded for deleting offsets from group {name}.")
    rows = [(key, errors.get(key)) for key in sorted(partitions)]
    if options.json:
        print_json(
            [
                {"topic": topic, "partition": partition, "error": error and error.code.name}
                for (topic, partition), error in rows
            ]
        )
    else:
        table: list[Row] = [
            {"TOPIC": topic, "PARTITION": partition, "STATUS": f"Error: {error}" if error else "Successful"}
            for (topic, partition), error in rows
        ]
        print_table(DELETED_COLUMNS, table)
    return FAILED if errors else DONE


def _validate_regex(text: str) -> int:
    from minibroker.groups.patterns import BadPattern, compiled  # what the broker asks

    shown = text.encode(errors="backslashreplace").decode()
    try:
        compiled(text)
    except BadPattern as error:
        print(f"The regular expression `{shown}` is invalid: {error}.")
        return FAILED
    print(f"The regular expression `{shown}` is valid.")
    return DONE
