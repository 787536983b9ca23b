"""`minibroker transactions`: what kafka-transactions.sh does, with its verbs, options and tables.

Reasons go to standard error, and whatever could not be done makes the exit status 1, as Kafka's tool has it.
"""

from __future__ import annotations

from minibroker.cli.connect import Refused, print_json, run_with_cluster
from minibroker.cli.connect import add_arguments as add_connection
from minibroker.cli.status import DONE, FAILED

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from minibroker.client.cluster import Cluster, TopicPartition
    from minibroker.client.descriptions import ProducerState
    from minibroker.client.transactions import TransactionDescription, Transactions

DESCRIPTION = "List and describe transactions, find those that hang, and abort them. Without a verb, list."
EPILOG = (
    "A transaction that nobody will ever end holds read_committed consumers back: find-hanging --topic T finds it, "
    "abort --topic T --partition N --start-offset N ends it. force-terminate ends that of a transactional id whose "
    "producer is gone, and fences the producer."
)
LIST, DESCRIBE, PRODUCERS, HANGING, ABORT, TERMINATE = (
    "list", "describe", "describe-producers", "find-hanging", "abort", "force-terminate",
)  # fmt: skip
VERBS = {  # and the options that belong to each
    LIST: ("duration_filter", "transactional_id_pattern", "state", "producer_id"),
    DESCRIBE: ("ids",),
    PRODUCERS: ("topic", "partition", "broker_id"),
    HANGING: ("topic", "partition", "broker_id", "max_transaction_timeout"),
    ABORT: ("topic", "partition", "start_offset", "producer_id", "producer_epoch", "coordinator_epoch"),
    TERMINATE: ("ids",),
}
ALSO = {"forceTerminateTransaction": TERMINATE}  # the name that kafka-transactions.sh gives it
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
LISTED = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
DESCRIBED = (
    "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions",
)  # fmt: skip
OF_PRODUCERS = (
    "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp",
    "CurrentTransactionStartOffset",
)  # fmt: skip
HANGS = (
    "Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp",
    "Duration(min)",
)  # fmt: skip
NONE = "None"
MINUTE_MS = 60_000
TIMEOUT_MINUTES = 15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("verb", nargs="?", default=LIST, choices=(*VERBS, *ALSO), metavar="VERB", help=", ".join(VERBS))
    parser.add_argument("names", nargs="*", metavar="ID", help="transactional ids; the same as --transactional-id")
    parser.add_argument(
        "--transactional-id", "--transactionalId", dest="more_names", action="extend", nargs="+", default=[],
        metavar="ID",
        help="describe, force-terminate: which",
    )  # fmt: skip
    parser.add_argument(
        "--duration-filter", type=int, metavar="MS", help="list: only ids whose last transaction began longer ago"
    )
    parser.add_argument(
        "--transactional-id-pattern", metavar="REGEX", help="list: only ids that it matches as a whole (RE2)"
    )
    parser.add_argument("--state", metavar="STATE,STATE", help="list: only those in these states")
    parser.add_argument("-t", "--topic", metavar="TOPIC")
    parser.add_argument("-p", "--partition", type=int, metavar="N")
    parser.add_argument("--broker-id", type=int, metavar="N", help="what this broker knows; else each leader is asked")
    parser.add_argument(
        "--max-transaction-timeout", type=int, metavar="MINUTES",
        help=f"find-hanging: only those that have written nothing for so long ({TIMEOUT_MINUTES})",
    )  # fmt: skip
    parser.add_argument("--start-offset", type=int, metavar="N", help="abort: where the transaction begins")
    parser.add_argument("--producer-id", type=int, metavar="N", help="abort: instead of --start-offset; list: only its")
    parser.add_argument("--producer-epoch", type=int, metavar="N", help="abort: belongs to --producer-id")
    parser.add_argument("--coordinator-epoch", type=int, metavar="N", help="abort: belongs to --producer-id")
    parser.add_argument("-J", "--json", action="store_true", help="one JSON document")


def run(options: argparse.Namespace) -> int:
    verb: str = ALSO.get(options.verb) or options.verb
    options.ids = list(dict.fromkeys([*options.names, *options.more_names]))

    async def work(cluster: Cluster) -> int:
        from minibroker.client.transactions import Transactions

        _check(verb, options)
        works = {
            LIST: _list, DESCRIBE: _describe, PRODUCERS: _describe_producers, HANGING: _find_hanging, ABORT: _abort,
            TERMINATE: _terminate,
        }  # fmt: skip
        await works[verb](cluster, Transactions(cluster), options)
        return DONE

    return run_with_cluster("transactions", options, work)


def _check(verb: str, options: argparse.Namespace) -> None:
    """Refuse what makes no sense, with the words of what would."""
    for option in dict.fromkeys(option for known in VERBS.values() for option in known):
        value = getattr(options, option)
        if option not in VERBS[verb] and value is not None and value != []:
            name = "transactional id" if option == "ids" else f"--{option.replace('_', '-')}"
            homes = ", ".join(each for each, known in VERBS.items() if option in known)
            raise Refused(f"{verb} takes no {name}: that is for {homes}")
    if verb in (DESCRIBE, TERMINATE) and not options.ids:
        raise Refused(f"{verb}: which? --transactional-id ID; minibroker transactions shows what there is")
    if verb in (PRODUCERS, ABORT):
        for option in ("topic", "partition"):
            if getattr(options, option) is None:
                raise Refused(f"{verb} needs --{option}")
    if verb == ABORT:
        by_id = [options.producer_id, options.producer_epoch, options.coordinator_epoch]
        if options.start_offset is None and None in by_id:
            raise Refused(
                "abort: which transaction? --start-offset N, or all of --producer-id, --producer-epoch and "
                "--coordinator-epoch (for brokers below 3.0)"
            )
        if options.start_offset is not None and by_id != [None, None, None]:
            raise Refused("abort: either --start-offset or --producer-id and the epochs, not both")
    if verb == HANGING and options.topic is None:
        if options.broker_id is None:
            raise Refused("find-hanging: where? --topic TOPIC or --broker-id N")
        if options.partition is not None:
            raise Refused("find-hanging: --partition needs --topic")


# What coordinators know


async def _list(cluster: Cluster, transactions: Transactions, options: argparse.Namespace) -> None:
    spelled = {name.lower(): name for name in STATES}
    states = [word.strip() for word in options.state.split(",")] if options.state else []
    for word in states:
        if word.lower() not in spelled:
            raise Refused(f"--state {word}: there are {', '.join(STATES)}")
    listed = await transactions.list_transactions(
        states=[spelled[word.lower()] for word in states],
        producer_ids=[] if options.producer_id is None else [options.producer_id],
        duration_ms=-1 if options.duration_filter is None else options.duration_filter,
        pattern=options.transactional_id_pattern,
    )
    if options.json:
        print_json([each._asdict() for each in listed])
    else:
        _print_table(LISTED, listed)


async def _describe(cluster: Cluster, transactions: Transactions, options: argparse.Namespace) -> None:
    described = await transactions.describe_transactions(options.ids)
    now_ms = cluster.clock.now_ms()
    if options.json:
        print_json([_document(each) for each in described.values()])
        return
    _print_table(
        DESCRIBED,
        [
            (
                each.coordinator_id,
                each.transactional_id,
                each.producer_id,
                each.producer_epoch,
                each.state,
                each.timeout_ms,
                each.start_ms if each.start_ms >= 0 else NONE,
                now_ms - each.start_ms if each.start_ms >= 0 else NONE,
                ",".join(f"{topic}-{number}" for topic, number in each.partitions),
            )
            for each in described.values()
        ],
    )


def _document(described: TransactionDescription) -> dict[str, object]:
    return described._asdict() | {
        "start_ms": described.start_ms if described.start_ms >= 0 else None,
        "partitions": [{"topic": topic, "partition": number} for topic, number in described.partitions],
    }


async def _terminate(cluster: Cluster, transactions: Transactions, options: argparse.Namespace) -> None:
    # Kafka's InitProducerId makes an id that it does not know, and whoever mistypes one would not notice.
    await transactions.describe_transactions(options.ids)
    fenced = {name: await transactions.fence(name) for name in options.ids}
    if options.json:
        print_json(
            [{"transactional_id": name, "producer_id": of[0], "producer_epoch": of[1]} for name, of in fenced.items()]
        )


# What leaders know


async def _place(cluster: Cluster, options: argparse.Namespace) -> TopicPartition:
    topic = await cluster.topic(options.topic)
    if options.partition not in topic.partitions:
        reason = f"{topic.name} has {len(topic.partitions)} partitions, there is no {options.partition}"
        raise Refused(reason, FAILED)
    return topic.name, options.partition


async def _describe_producers(cluster: Cluster, transactions: Transactions, options: argparse.Namespace) -> None:
    from minibroker.client.admin import Admin

    place = await _place(cluster, options)
    producers = (await Admin(cluster).describe_producers([place], broker=options.broker_id))[place]
    if options.json:
        print_json([_producer(each) for each in producers])
        return
    _print_table(
        OF_PRODUCERS,
        [
            (
                each.producer_id,
                each.producer_epoch,
                each.coordinator_epoch,
                each.last_sequence,
                each.last_timestamp,
                each.transaction_start_offset if each.transaction_start_offset >= 0 else NONE,
            )
            for each in producers
        ],
    )


def _producer(state: ProducerState) -> dict[str, object]:
    start = state.transaction_start_offset
    return {**state._asdict(), "transaction_start_offset": start if start >= 0 else None}


async def _find_hanging(cluster: Cluster, transactions: Transactions, options: argparse.Namespace) -> None:
    given = options.max_transaction_timeout
    minutes = TIMEOUT_MINUTES if given is None else given
    hanging = await transactions.hanging(
        await _partitions(cluster, options), longer_than_ms=minutes * MINUTE_MS, broker=options.broker_id
    )
    if options.json:
        print_json(
            [
                {"topic": each.partition[0], "partition": each.partition[1]} | _producer(each.producer)
                for each in hanging
            ]
        )
        return
    now_ms = cluster.clock.now_ms()
    _print_table(
        HANGS,
        [
            (
                *each.partition,
                each.producer.producer_id,
                each.producer.producer_epoch,
                each.producer.coordinator_epoch,
                each.producer.transaction_start_offset,
                each.producer.last_timestamp,
                (now_ms - each.producer.last_timestamp) // MINUTE_MS,
            )
            for each in hanging
        ],
    )


async def _partitions(cluster: Cluster, options: argparse.Namespace) -> list[TopicPartition]:
    """Return the partitions to search: of a topic, or of all those that a broker has a replica of."""
    if options.partition is not None:
        return [await _place(cluster, options)]
    from minibroker.client.admin import Admin

    topics = await Admin(cluster).describe_topics(None if options.topic is None else [options.topic])
    return [
        (topic.name, each.id)
        for topic in topics.values()
        for each in topic.partitions.values()
        if options.broker_id is None or options.broker_id in each.replica_ids
    ]


async def _abort(cluster: Cluster, transactions: Transactions, options: argparse.Namespace) -> None:
    place = await _place(cluster, options)
    producer = (options.producer_id, options.producer_epoch, options.coordinator_epoch)
    if options.start_offset is not None:
        found = [
            each.producer
            for each in await transactions.open_transactions([place])
            if each.producer.transaction_start_offset == options.start_offset
        ]
        if not found:
            raise Refused(
                f"no transaction that is open begins at offset {options.start_offset} of {place[0]}-{place[1]}; "
                f"minibroker transactions describe-producers --topic {place[0]} --partition {place[1]} shows all",
                FAILED,
            )
        producer = (found[0].producer_id, found[0].producer_epoch, found[0].coordinator_epoch)
    await transactions.abort(place, *producer)
    if options.json:
        names = ("topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch")
        print_json(dict(zip(names, (*place, *producer))))


def _print_table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print as Kafka's tool does: columns as wide as what is in them, and a tab behind each."""
    cells = [list(names), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(names))]
    for line in cells:
        print("".join(f"{cell:{width}}\t" for cell, width in zip(line, widths)))
