"""`minibroker transactions`, and `minibroker produce` in transactions, against a broker."""

from __future__ import annotations

import asyncio
import json

import pytest

from minibroker.client import Cluster, Producer
from minibroker.client.transaction_calls import TransactionCalls
from tests.cli.running import Shell


def _rows(lines: list[str]) -> list[list[str]]:
    """Return the cells of a table: columns as wide as what is in them, a tab behind each."""
    assert all(line.endswith("\t") for line in lines)
    widths = {tuple(len(cell) for cell in line.split("\t")) for line in lines}
    assert len(widths) == 1, lines
    return [[cell.strip() for cell in line.split("\t")[:-1]] for line in lines]


@pytest.fixture
def open_transaction(shell: Shell, topic: str) -> str:
    """A transaction of a producer that has gone; its transactional id is the name of the topic."""

    async def leave_open() -> None:
        async with Cluster(shell.address) as cluster:
            producer = Producer(cluster, transactional_id=topic, transaction_timeout_ms=600_000)
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send(topic, b"a")

    asyncio.run(leave_open())
    return topic


@pytest.fixture
def hanging(shell: Shell, topic: str) -> str:
    """A topic whose one transaction no coordinator knows of any more: it was fenced when its batch came late."""

    async def hang() -> None:
        from minibroker.client.produce import form_for, new_producer, send
        from minibroker.log.build import build_batch
        from minibroker.log.records import Record

        async with Cluster(shell.address) as cluster:
            await cluster.topic(topic)
            producer_id, epoch = await new_producer(cluster)
            batch = build_batch(
                2, [Record(b"k", b"v", (), 0)], producer_id=producer_id, producer_epoch=epoch, base_sequence=0,
                transactional=True,
            )  # fmt: skip
            leader = (await cluster.leader_of(topic, 0)).leader_id
            form = await form_for(cluster, leader, [topic], codec=0, version_max=11)
            found, _ = await send(
                cluster, leader, form, {(topic, 0): batch}, acks=-1, timeout_ms=5000, extra_ms=5000,
                transactional_id=topic,
            )  # fmt: skip
            assert not found[topic, 0].error_code, found

    verification = "transaction.partition.verification.enable"
    shell.good("configs", "--entity-type", "brokers", "--entity-default", f"{verification}=false")
    asyncio.run(hang())
    shell.good("configs", "--alter", "--entity-type", "brokers", "--entity-default", "--delete-config", verification)
    return topic


def test_a_list_has_the_ids_that_pass_its_filters(shell: Shell, open_transaction: str) -> None:
    name = open_transaction
    head, *rows = _rows(shell.good("transactions").lines)
    assert head == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    (row,) = [row for row in rows if row[0] == name]
    assert (row[1], row[3]) == ("1", "Ongoing")
    ids = [
        [each["transactional_id"] for each in json.loads(shell.good("transactions", "list", "--json", *words).text)]
        for words in (
            ("--state", "ongoing", "--producer-id", row[2]),
            ("--transactional-id-pattern", name),
            ("--transactional-id-pattern", name[:-1]),
            ("--producer-id", row[2], "--duration-filter", "600000"),
            ("--producer-id", row[2], "--state", "Empty,CompleteCommit"),
        )
    ]
    assert ids == [[name], [name], [], [], []]


def test_a_transaction_is_described(shell: Shell, open_transaction: str) -> None:
    name = open_transaction
    head, row = _rows(shell.good("transactions", "describe", "--transactional-id", name).lines)
    found = dict(zip(head, row))
    assert int(found.pop("TransactionDurationMs")) >= 0
    assert int(found.pop("CurrentTransactionStartTimeMs")) > 1_700_000_000_000
    assert int(found.pop("ProducerId")) >= 0
    assert found == {
        "CoordinatorId": "1",
        "TransactionalId": name,
        "ProducerEpoch": "0",
        "TransactionState": "Ongoing",
        "TransactionTimeoutMs": "600000",
        "TopicPartitions": f"{name}-0",
    }
    (document,) = json.loads(shell.good("transactions", "describe", name, "-J").text)
    assert (document["partitions"], document["timeout_ms"]) == ([{"topic": name, "partition": 0}], 600_000)


def test_a_transactional_id_that_nobody_has_is_not_described(shell: Shell) -> None:
    refused = shell("transactions", "describe", "--transactional-id", "nobody")
    assert (refused.status, refused.output) == (1, b"")
    assert "nobody: TRANSACTIONAL_ID_NOT_FOUND" in refused.errors


def test_producers_of_a_partition_are_described(shell: Shell, open_transaction: str) -> None:
    words = ("transactions", "describe-producers", "--topic", open_transaction, "--partition", "0")
    for more in ((), ("--broker-id", "1")):
        head, row = _rows(shell.good(*words, *more).lines)
        found = dict(zip(head, row))
        assert (found["ProducerEpoch"], found["LastSequence"], found["CurrentTransactionStartOffset"]) == (
            "0",
            "0",
            "0",
        )
    (producer,) = json.loads(shell.good(*words, "--json").text)
    assert producer["transaction_start_offset"] == 0
    missing = shell("transactions", "describe-producers", "--topic", open_transaction, "--partition", "7")
    assert missing.status == 1
    assert f"{open_transaction} has 1 partitions, there is no 7" in missing.errors


def test_what_hangs_is_found_and_what_is_open_is_not(shell: Shell, open_transaction: str, hanging: str) -> None:
    assert hanging == open_transaction  # one partition has both
    words = ("transactions", "find-hanging", "--topic", hanging)
    head, row = _rows(shell.good(*words, "--max-transaction-timeout", "-1").lines)
    found = dict(zip(head, row))
    assert (found["Topic"], found["Partition"], found["StartOffset"]) == (hanging, "0", "1")
    assert len(_rows(shell.good(*words).lines)) == 1 + (int(found["Duration(min)"]) > 15)
    (same,) = json.loads(shell.good(*words, "--partition", "0", "--max-transaction-timeout", "-1", "--json").text)
    assert str(same["producer_id"]) == found["ProducerId"]
    everywhere = shell.good("transactions", "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "-1")
    assert row in _rows(everywhere.lines)


@pytest.mark.parametrize("by", ["start offset", "producer id"])
def test_what_hangs_is_aborted(shell: Shell, hanging: str, by: str) -> None:
    (producer,) = json.loads(
        shell.good("transactions", "describe-producers", "--topic", hanging, "--partition", "0", "--json").text
    )
    words = ("--start-offset", "0")
    if by == "producer id":
        words = ("--producer-id", str(producer["producer_id"]), "--producer-epoch", "0", "--coordinator-epoch", "-1")
    assert shell.good("transactions", "abort", "--topic", hanging, "--partition", "0", *words).text == ""
    end = shell.good("offsets", "--topic", hanging, "--time", "latest").lines
    assert end == [f"{hanging}:0:2"]  # the record and the marker
    hidden = shell.good("consume", hanging, "-eq", "--isolation-level", "read_committed")
    assert hidden.lines == []
    gone = shell("transactions", "abort", "--topic", hanging, "--partition", "0", "--start-offset", "0")
    assert gone.status == 1
    assert f"no transaction that is open begins at offset 0 of {hanging}-0" in gone.errors


def test_a_pattern_that_is_none_is_named(shell: Shell) -> None:
    refused = shell("transactions", "list", "--transactional-id-pattern", "shop-(")
    assert refused.status == 1
    assert "INVALID_REGULAR_EXPRESSION" in refused.errors
    assert "'shop-('" in refused.errors


@pytest.mark.parametrize("verb", [("force-terminate",), ("forceTerminateTransaction", "--transactionalId")])
def test_a_producer_that_is_gone_is_fenced_and_its_transaction_aborted(
    shell: Shell, open_transaction: str, verb: tuple[str, ...]
) -> None:
    assert len(shell.good("consume", open_transaction, "-eq").lines) == 1
    assert shell.good("-C", "-t", open_transaction, "-eq").lines == []  # as kcat, by librdkafka's default
    assert len(shell.good("-eqCt", open_transaction, "-X", "isolation.level=read_uncommitted").lines) == 1
    assert shell.good("transactions", *verb, open_transaction).text == ""
    assert shell.good("consume", open_transaction, "-eq", "--isolation-level", "read_committed").lines == []
    (found,) = json.loads(shell.good("transactions", "describe", open_transaction, "--json").text)
    assert (found["state"], found["producer_epoch"] > 0, found["start_ms"]) == ("Empty", True, None)
    unknown = shell("transactions", "force-terminate", "nobody")
    assert "nobody: TRANSACTIONAL_ID_NOT_FOUND" in unknown.errors
    assert shell("transactions", "describe", "nobody").status == 1  # not made by asking


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("list", "--topic", "a"), "list takes no --topic: that is for describe-producers, find-hanging, abort"),
        (("list", "a"), "list takes no transactional id: that is for describe, force-terminate"),
        (("list", "--state", "Open"), "--state Open: there are Empty, Ongoing"),
        (("describe",), "describe: which? --transactional-id ID"),
        (("describe-producers", "--topic", "a"), "describe-producers needs --partition"),
        (("find-hanging",), "find-hanging: where? --topic TOPIC or --broker-id N"),
        (("find-hanging", "--broker-id", "1", "--partition", "0"), "find-hanging: --partition needs --topic"),
        (("abort", "--topic", "a", "--partition", "0", "--producer-id", "1"), "abort: which transaction?"),
        (
            ("abort", "-t", "a", "-p", "0", "--start-offset", "1", "--producer-epoch", "1"),
            "abort: either --start-offset or --producer-id",
        ),
        (("begin",), "invalid choice: 'begin'"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_would(shell: Shell, words: tuple[str, ...], said: str) -> None:
    refused = shell("transactions", *words)
    assert (refused.status, refused.output) == (2, b"")
    assert said in refused.errors


# minibroker produce


def _committed(shell: Shell, topic: str) -> list[str]:
    return shell.good("consume", topic, "-eq", "--isolation-level", "read_committed").lines


@pytest.mark.parametrize("option", [("--transactional-id", "of-lines"), ("-X", "transactional.id=of-lines")])
def test_lines_are_written_in_one_transaction(shell: Shell, topic: str, option: tuple[str, str]) -> None:
    shell.good("produce", "-t", topic, *option, stdin=b"a\nb\n")
    shell.good("produce", "-t", topic, *option, "--abort", stdin=b"never\n")
    shell.good("produce", "-t", topic, *option, stdin=b"c\n")
    assert _committed(shell, topic) == ["a", "b", "c"]
    assert shell.good("offsets", "--topic", topic).lines == [f"{topic}:0:7"]  # four records, three markers


def test_a_transaction_has_as_many_records_as_was_said(shell: Shell, topic: str) -> None:
    shell.good("produce", "-t", topic, "--transactional-id", topic, "--transaction-size", "2", stdin=b"a\nb\nc\nd\ne\n")
    assert _committed(shell, topic) == ["a", "b", "c", "d", "e"]
    assert shell.good("offsets", "--topic", topic).lines == [f"{topic}:0:8"]  # a marker for each two, and for the rest


def test_what_was_committed_before_a_failure_stays(shell: Shell, topic: str) -> None:
    lines = b"a\nb\nc\n" + bytes(2_000_000) + b"\n"
    failed = shell("produce", "-t", topic, "--transactional-id", topic, "--transaction-size", "2", stdin=lines)
    assert failed.status == 1
    assert "2 of 4 records were committed, then: MESSAGE_TOO_LARGE" in failed.errors
    assert _committed(shell, topic) == ["a", "b"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--abort",), "--transaction-size and --abort need --transactional-id"),
        (("--transaction-size", "3"), "--transaction-size and --abort need --transactional-id"),
        (("--transactional-id", "a", "--transaction-size", "0"), "--transaction-size: at least 1"),
        (("--transactional-id", "a", "--acks", "1"), "--transactional-id needs acks all"),
        (("--transactional-id", "a", "-X", "enable.idempotence=False"), "not with enable.idempotence=false"),
        (("--transactional-id", ""), "--transactional-id: it is empty; leave it out"),
        (("--transactional-id", "", "--abort"), "--transactional-id: it is empty; leave it out"),
        (("-X", "transactional.id="), "--transactional-id: it is empty; leave it out"),
    ],
)
def test_produce_refuses_transactions_that_could_not_be(shell: Shell, words: tuple[str, ...], said: str) -> None:
    refused = shell("produce", "-t", "orders", *words, stdin=b"a\n")
    assert (refused.status, said in refused.errors) == (2, True), refused.errors


def test_a_producer_whose_id_was_taken_says_so(shell: Shell, topic: str) -> None:
    async def with_zombie() -> None:
        async with Cluster(shell.address) as cluster:
            zombie = TransactionCalls(cluster, topic, timeout_ms=60_000)
            producer = await zombie.init_producer()
            await asyncio.to_thread(shell.good, "produce", "-t", topic, "--transactional-id", topic, stdin=b"a\n")
            with pytest.raises(Exception, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
                await zombie.commit_offsets(producer, topic, {})
                await zombie.end(producer, commit=True)

    asyncio.run(with_zombie())
    assert _committed(shell, topic) == ["a"]
