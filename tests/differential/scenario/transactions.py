"""The transaction coordinator: every request in every state of a transactional id, by its producer and by others."""

from __future__ import annotations

from collections.abc import Callable

from minibroker.protocol.headers import Request
from minibroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from minibroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from minibroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from minibroker.protocol.messages.end_txn import EndTxnRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.init_producer_id import InitProducerIdRequest
from minibroker.protocol.messages.list_transactions import ListTransactionsRequest
from minibroker.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.differential.play import Play
from tests.differential.scenario.build import create_request, new_topic
from tests.differential.scenario.transaction_data import play_data
from tests.differential.scenario.transaction_talk import (
    BATCHES_SINCE,
    EXPECTED_SINCE,
    NOBODY,
    OTHER,
    SHORT_MS,
    SOMEBODY,
    STATES,
    TOPIC,
    Identity,
    Producer,
    Transaction,
)
from tests.differential.scenario.transactional_offsets import play_offsets

GROUP_TYPE, TRANSACTION_TYPE = 0, 1
ODD_NAMES = (None, "", " ", "ü", "a\nb", "n" * 2000)
TIMEOUTS_MS = (0, -1, 1, 900_000, 900_001, (1 << 31) - 1)  # 15 minutes is the most
APIS = (InitProducerIdRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, EndTxnRequest, TxnOffsetCommitRequest)
SILENCE = 0.5  # s
STATE_NAMES = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"]

Question = Callable[[Producer], Request]
# What a producer asks, one after the other; each on an id of its own in every state.
QUESTIONS: dict[str, tuple[Question, ...]] = {
    "some that are not there": (lambda it: it.add({TOPIC: [0, 9], OTHER: [0], "no-such-topic": [0]}),),
    "one of groups": (lambda it: it.add({"__consumer_offsets": [0], TOPIC: [0]}),),
    "one twice": (lambda it: it.add({TOPIC: [1, 1]}),),
    "nothing": (lambda it: it.add({}), lambda it: it.add({TOPIC: []})),
    "partitions": (lambda it: it.add({TOPIC: [0]}), lambda it: it.add({TOPIC: [0], OTHER: [0]})),
    "offsets": (lambda it: it.add_offsets(), lambda it: it.commit_offsets(), lambda it: it.end()),
    "offsets, not added": (lambda it: it.commit_offsets(), lambda it: it.end(commit=False)),
    "records": (lambda it: it.produce(), lambda it: it.end()),
    "commit twice": (lambda it: it.end(), lambda it: it.end()),
    "commit, abort": (lambda it: it.end(), lambda it: it.end(commit=False)),
    "abort twice": (lambda it: it.end(commit=False), lambda it: it.end(commit=False)),
    "abort, commit": (lambda it: it.end(commit=False), lambda it: it.end()),
    "commit, and again as before": (lambda it: it.end(), lambda it: it.end(it.before)),
    "commit, and abort as before": (lambda it: it.end(), lambda it: it.end(it.before, commit=False)),
    "abort, and again as before": (lambda it: it.end(commit=False), lambda it: it.end(it.before, commit=False)),
    "abort, and commit as before": (lambda it: it.end(commit=False), lambda it: it.end(it.before)),
    "another comes": (lambda it: it.init(), lambda it: it.init()),
    "it comes again": (lambda it: it.init(expected=it.known), lambda it: it.init(expected=it.known)),
    "it comes again as before": (lambda it: it.init(expected=it.known), lambda it: it.init(expected=it.known_before)),
}


def play_transactions(play: Play) -> None:
    """Play everything at every level that both sides know."""
    if not play.versions(InitProducerIdRequest):
        return
    play.ask("create the topics of transactions", create_request(new_topic(TOPIC, 2), new_topic(OTHER)))
    play.settle(TOPIC, OTHER)
    find_coordinators(play)
    for level in _levels(play):
        begin(play, level)
        for state in STATES:
            ask_others(play, state, level)
        after_a_timeout(play, level)
    look(play)
    # All that versions change for the producer itself.
    for level in (1, BATCHES_SINCE - 1, _levels(play)[-1]):
        for state in STATES:
            for question in QUESTIONS:
                ask(play, state, question, level)
    play_data(play)
    play_offsets(play)


def _levels(play: Play) -> range:
    return range(max(len(play.versions(api)) for api in APIS))


def ask_before_there_is_a_coordinator(play: Play) -> None:
    """Ask everything of a broker that nobody has asked for a coordinator."""
    look(play)
    for level in _levels(play):
        producer = Producer(play, "too early", level)
        for request in _requests(producer, SOMEBODY):
            producer.ask("asked", request)


def find_coordinators(play: Play) -> None:
    """Have the topics of coordinators made, and ask who looks after a transaction."""
    for kind, name in ((GROUP_TYPE, "a group"), (TRANSACTION_TYPE, "a transaction")):
        request = FindCoordinatorRequest(key="k", key_type=kind, coordinator_keys=["k"])
        play.wait_for(
            f"a coordinator of {name}",
            request,
            lambda answer: (answer.coordinators[0] if answer.coordinators else answer).error_code == 0,
        )
    for version in play.versions(FindCoordinatorRequest, 1):
        for keys in [["t"], [""], ["n" * 2000], *([["a", "b", "a", ""], []] if version >= 4 else [])]:
            request = FindCoordinatorRequest(
                key=keys[0] if keys else "", key_type=TRANSACTION_TYPE, coordinator_keys=keys
            )
            play.ask(f"coordinator of transactions of {len(keys)}", request, version)


def begin(play: Play, level: int) -> None:
    """Ask for producer ids in every way, good and bad."""
    producer = Producer(play, "begin", level)
    for name in ODD_NAMES:
        producer.ask(f"an id for {name!r:.20}", producer.init(name=name))
    for timeout_ms in TIMEOUTS_MS:
        producer.ask(f"an id for {timeout_ms} ms", producer.init(timeout_ms=timeout_ms))
        producer.describe(f"an id for {timeout_ms} ms")
    if not producer.has(InitProducerIdRequest, EXPECTED_SINCE):
        return
    producer_id, epoch = producer.identity
    for step, expected in {
        "an id without an epoch": Identity(producer_id, -1),
        "an epoch without an id": Identity(-1, epoch),
        "negative ones": Identity(-2, -2),
        "another id": SOMEBODY,
        "an epoch that is to come": Identity(producer_id, epoch + 1),
        "an epoch of the past": Identity(producer_id, epoch - 1),
        "the right ones": producer.identity,
        "what were the right ones": producer.identity,
        "what were the right ones, again": producer.identity,
    }.items():
        for name in ("", "begin-new-" + step.replace(" ", "-") + str(level), None):
            own = "its own" if name == "" else "no" if name is None else "a new"
            producer.ask(f"with {step} for {own} name", producer.init(expected=expected, name=name))
    producer.describe("all")


def ask_others(play: Play, state: str, level: int) -> None:
    """Ask as one who has not the right id and epoch."""
    producer = Producer(play, f"{state}, others", level)
    STATES[state](producer)
    right = producer.identity
    for who, identity in {
        "an older epoch": right._replace(epoch=right.epoch - 1),
        "a newer epoch": right._replace(epoch=right.epoch + 1),
        "another id": SOMEBODY,
        "nobody": NOBODY,
    }.items():
        for number, request in enumerate(_requests(producer, identity)):
            producer.ask(f"{who}, {number}", request)
        producer.describe(who)


def after_a_timeout(play: Play, level: int) -> None:
    """Ask as one whose transaction was aborted because it took too long."""
    producer = Producer(play, "timed out", level)
    producer.ask("an id for a short time", producer.init(timeout_ms=SHORT_MS))
    producer.ask("partitions for a short time", producer.add({TOPIC: [0]}))
    producer.wait_for("CompleteAbort")
    producer.describe("timed out")
    for number, request in enumerate(_requests(producer, producer.identity)):
        producer.ask(f"its own, {number}", request)
    producer.describe("all")


def _requests(producer: Producer, of: Identity) -> list[Request]:
    """Return one of each request."""
    return [
        producer.add({TOPIC: [0]}, of),
        producer.add({TOPIC: [0]}, of, verify_only=True),
        producer.add_offsets(of),
        producer.commit_offsets(of=of),
        producer.produce(of=of),
        producer.end(of),
        producer.end(of, commit=False),
        *([producer.init(expected=of)] if producer.has(InitProducerIdRequest, EXPECTED_SINCE) else []),
    ]


def ask(play: Play, state: str, question: str, level: int) -> None:
    """Ask as the producer, in a state that nothing else has changed."""
    producer = Producer(play, f"{state}, {question}", level)
    STATES[state](producer)
    for number, request in enumerate(QUESTIONS[question]):
        producer.ask(f"{number}", request(producer))
    producer.describe("all")


def look(play: Play) -> None:
    """Describe and list transactions, by every filter; ask for partitions of several."""
    producer = Producer(play, "ongoing, look", 0)
    for version in play.versions(DescribeTransactionsRequest):
        for step, names in {
            "none": [],
            "one": ["ongoing, others-1"],
            "one twice": ["ongoing, others-1"] * 2,
            "all sorts": ["nobody", "committed, others-1", "", "n" * 2000],
        }.items():
            play.ask(f"described: {step}", DescribeTransactionsRequest(transactional_ids=names), version)
    for version in play.versions(ListTransactionsRequest):
        for states in ([], ["Ongoing"], ["Ongoing", "Sleeping", "Empty"], ["Sleeping"], ["ongoing"], STATE_NAMES, [""]):
            request = ListTransactionsRequest(state_filters=states, producer_id_filters=[])
            play.ask(f"listed: in {states}", request, version)
        for ids in ([producer.identity.producer_id], [-1], [SOMEBODY.producer_id, 1, 1]):
            request = ListTransactionsRequest(state_filters=[], producer_id_filters=ids)
            play.ask(f"listed: of {len(ids)} producers", request, version)
        for duration in (-2, 0, 1 << 62) if version >= 1 else ():
            request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], duration_filter=duration)
            play.ask(f"listed: longer than {duration} ms", request, version)
        for pattern in ("", "a.*", "(", ".*others-1", "others", "ongoing, [a-z]*-1") if version >= 2 else ():
            request = ListTransactionsRequest(
                state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern
            )
            play.ask(f"listed: like {pattern!r}", request, version)
    for version in play.versions(AddPartitionsToTxnRequest, BATCHES_SINCE):
        topics = [AddPartitionsToTxnTopic(name=name, partitions=[0, 1]) for name in (TOPIC, "no-such-topic")]
        several = [
            Transaction(transactional_id=name, producer_id=5, producer_epoch=0, verify_only=only, topics=rows)
            for name, rows in {
                "nobody": topics,
                "empty, others-1": topics[:1],
                "ongoing, others-1": [],
                "": topics[1:],
            }.items()
            for only in (False, True)
        ]
        for step, transactions in {
            "several": several[::2],
            "several, only asked": several[1::2],
            "one twice": several[:1] * 2,
        }.items():
            play.ask(f"partitions of {step}", AddPartitionsToTxnRequest(transactions=transactions), version)
    play.ask_silence("partitions of none", AddPartitionsToTxnRequest(), play.newest(AddPartitionsToTxnRequest), SILENCE)
