"""The producers of a lesson: what becomes of requests that are late, lost or repeated, in both protocols."""

from __future__ import annotations

import pytest

from minibroker.lessons.running import check
from minibroker.lessons.scenario import parse_scenario

pytestmark = pytest.mark.outside

START = """# Made up

    start 1 brokers
    topic orders partitions=2 replicas=1/1

"""


def played(step: str) -> None:
    check(parse_scenario(START + "\n".join(f"    {line}" for line in step.splitlines()), "made.txt"))


def test_what_is_late_arrives_in_the_order_in_which_it_was_sent_and_as_it_was() -> None:
    played(
        "init anna\n"
        'produce orders-0 "a" as=anna delayed\nproduce orders-0 "b" "c" as=anna delayed\nproduce orders-1 "x" as=anna\n'
        "arrive anna\narrive anna\nbatches orders-0\n----\n"
        'told: "a" of anna is on its way\n'
        'told: broker 1 answers: "x" is at offset 0\n'
        'told: "a" of anna arrives\n'
        "told: batch 0..0: 1 record of producer 0 in epoch 0, sequence 0\n"
        "told: batch 1..2: 2 records of producer 0 in epoch 0, sequence 1\n"
        "state: orders-0 b1 records=a,b,c\nstate: orders-1 b1 records=x"
    )


def test_classic_producers_keep_their_epoch_and_go_on_counting() -> None:
    played(
        'init anna for shop classic\nproduce orders-0 "a" as=anna\nproduce orders-0 "b" as=anna\ncommit anna\n'
        'produce orders-0 "c" as=anna\nabort anna\nbatches orders-0\n----\n'
        "told: broker 1 answers: orders-0 is in the transaction\n"
        'told: broker 1 answers: "b" is at offset 1\n'
        "told: broker 1 answers: the transaction is committed\n"
        "told: broker 1 answers: orders-0 is in the transaction\n"  # the next transaction has its own partitions
        "told: broker 1 answers: the transaction is aborted\n"
        "told: batch 3..3: 1 record of producer 0 in epoch 0, sequence 2\n"
        "told: batch 4..4: a marker: abort of producer 0 in epoch 0\n"
        "state: orders-0 b1 markers=2,4"
    )


def test_producers_of_v2_begin_to_count_anew_in_each_epoch() -> None:
    played(
        'init anna for shop\nproduce orders-0 "a" as=anna\ncommit anna\n'
        'produce orders-0 "b" as=anna\nbatches orders-0\n'
        "----\nnever: * in the transaction\ntold: batch 2..2: 1 record of producer 0 in epoch 1, sequence 0"
    )


@pytest.mark.parametrize("flag", ["", " classic"])
def test_offsets_of_a_transaction_count_when_it_is_committed(flag: str) -> None:
    played(
        f"init anna for shop{flag}\n"
        'produce orders-0 "a" "b"\ncommit orders-0 1 for readers as=anna\nconsume orders-0 for readers\ncommit anna\n'
        "consume orders-0 for readers\n----\n"
        "error: UNSTABLE_OFFSET_COMMIT: *\ntold: * what readers has committed, answers: 1\ntold: 1 b\n"
        "state: group readers committed=orders-0@1"
    )


def test_a_transaction_that_is_open_for_too_long_is_aborted_after_its_own_timeout() -> None:
    played(
        'init anna for shop timeout=5s\nproduce orders-0 "a" as=anna\nadvance 11s\ncommit anna\n----\n'
        "transaction b1 shop Ongoing->PrepareAbort *\nmarker b1 orders-0 abort *\nerror: INVALID_TXN_STATE: *"
    )


def test_a_plain_producer_whose_answer_is_lost_has_written_all_the_same() -> None:
    played(
        'produce orders-0 "a" lost\nproduce orders-0 "b"\n----\nerror: NETWORK_EXCEPTION: broker 1 does not answer\n'
        'told: broker 1 answers: "b" is at offset 1\nstate: orders-0 b1 records=a,b'
    )


def test_a_producer_that_is_begun_anew_with_other_settings_is_another_one() -> None:
    played(
        'init anna for shop\nproduce orders-0 "a" as=anna\ncommit anna delayed\ncommit anna\n'
        "init anna for bank classic timeout=5s\n"
        'produce orders-0 "b" as=anna\narrive anna\ninit anna for bank\ncommit anna\ninit anna for bank\n'
        "----\n"
        "transaction b1 bank ->Empty producer=1 epoch=0\n"
        "transaction b1 bank Ongoing->PrepareAbort producer=1 epoch=1\n"
        "told: broker 1 answers: the transaction is committed; anna goes on in epoch 1\n"
        "told: broker 1 answers: anna is producer 1 in epoch 0\n"
        "told: broker 1 answers: orders-0 is in the transaction\n"  # classic
        "told: the commit of anna in epoch 0 arrives\n"
        "told: broker 1 answers: the transaction is committed; and nobody hears it\n"
        "error: CONCURRENT_TRANSACTIONS: *\n"  # still the same one: it aborts what was open
        "error: PRODUCER_FENCED: *\n"
        "told: broker 1 answers: anna is producer 1 in epoch 2"
    )
