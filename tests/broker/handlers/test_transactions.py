"""As long as there is no transaction coordinator, nothing of a transaction is taken, and whoever wants one is told."""

from __future__ import annotations

import pytest

from minibroker.errors import Error
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.init_producer_id import InitProducerIdRequest
from minibroker.protocol.messages.list_transactions import ListTransactionsRequest
from minibroker.protocol.messages.produce import ProduceRequest
from tests.server.running import connected, running, said

TRANSACTION = 1
FINAL = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def transactional(transactional_id: str | None) -> ProduceRequest:
    batch = build_batch(
        2, [Record(b"k", b"v", (), 1)], producer_id=9, producer_epoch=0, base_sequence=0, transactional=True
    )
    plain = build_batch(2, [Record(b"k", b"v", (), 1)])
    Topic = ProduceRequest.TopicProduceData
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            Topic(name=name, partition_data=[Topic.PartitionProduceData(index=0, records=data)])
            for name, data in (("orders", batch), ("plain", plain))
        ],
    )


@pytest.mark.parametrize("version", range(1, 7))
async def test_nobody_is_named_as_the_coordinator_of_a_transaction(version: int) -> None:
    async with running() as node, connected(node) as client:
        request = FindCoordinatorRequest(key="t", coordinator_keys=["t"] if version >= 4 else [], key_type=TRANSACTION)
        for _ in range(3):
            answer = await client.ask(request, version)
            found = answer.coordinators[0] if version >= 4 else answer
            assert (found.error_code, found.node_id) == (FINAL, -1)
            assert found.error_message == "minibroker has no transactions yet"
        line = "client 'test' wants transactions (transactional id 't'): minibroker has no transactions yet"
        assert [each for each in said(node) if "transactions" in each] == [line]


@pytest.mark.parametrize("version", range(5))
async def test_no_producer_id_is_given_for_a_transactional_id(version: int) -> None:
    async with running() as node, connected(node) as client:
        for transactional_id, expected in (("t", FINAL), (None, Error.NONE)):
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000)
            answer = await client.ask(request, version)
            assert answer.error_code == expected
            assert (answer.producer_id >= 0) == (expected == Error.NONE)
        assert len([each for each in said(node) if "transactions" in each]) == 1


@pytest.mark.parametrize("transactional_id", ["t", None])
async def test_no_batch_of_a_transaction_is_taken_nor_what_comes_with_it(transactional_id: str | None) -> None:
    async with running() as node, connected(node) as client:
        for topic in ("orders", "plain"):
            node.create_topic(topic, 1)
        answer = await client.ask(transactional(transactional_id), 9)
        codes = [row.error_code for topic in answer.responses for row in topic.partition_responses]
        assert codes == [FINAL, FINAL]
        for topic in ("orders", "plain"):
            log = node.replicas[topic, 0].log
            assert log.log_end_offset == 0
            assert log.last_stable_offset(0) == 0
            assert not log.producers.producers


async def test_what_clients_call_themselves_fills_no_log() -> None:
    async with running() as node, connected(node) as client:
        for each in range(300):
            name = "x" * 20_000 + str(each)
            request = FindCoordinatorRequest(coordinator_keys=[f"{each} {name}"], key_type=TRANSACTION)
            await client.ask(request, 4)
        lines = [line for line in said(node) if "transactions" in line]
        assert len(lines) == 200
        assert max(map(len, lines)) < 400


PATTERNS = {  # of RE2, which takes time in proportion to them; Python's own would need a second for the last
    "": True,
    "a.*": True,
    "(?P<name>.)": True,
    "[": False,
    "(?=a)": False,
    "a" * 1001: False,
    "(?i)" + 199 * "[X-\uffff]": True,
}


@pytest.mark.parametrize("pattern", PATTERNS)
async def test_a_pattern_of_transactional_ids_is_one_that_members_of_groups_could_have(pattern: str) -> None:
    async with running() as node, connected(node) as client:
        request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern)
        answer = await client.ask(request, 2)
        assert (answer.error_code == Error.NONE) == PATTERNS[pattern]
        assert answer.error_code in (Error.NONE, Error.INVALID_REGULAR_EXPRESSION)
