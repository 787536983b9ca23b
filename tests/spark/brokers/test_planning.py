"""How long planning asks while brokers are away, and whom it tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from minibroker import Broker
from minibroker.client.cluster import Cluster
from minibroker.clock import SESSION
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from minibroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from minibroker.spark.brokers import planning
from minibroker.spark.brokers.planning import BrokerLogs, NoBroker
from minibroker.spark.filters import Filters
from minibroker.spark.options import parse
from tests.client.scripted import ScriptedBroker, TestClock, metadata

pytestmark = [pytest.mark.outside, pytest.mark.filterwarnings("ignore:minibroker.Broker")]

KEY = ("orders", 0)
NOBODY = "127.0.0.1:1"
BATCH_MS, ALL_MS = 60_000, 4 * 60_000 + 3 * 1_000


class PatientClock(TestClock):
    """Sleeping takes no time and lets it pass; when so much has, something happens."""

    def __init__(self, after_ms: int = 0, happens: Callable[[], object] = lambda: None):
        super().__init__()
        self.begun = self.now
        self._then = self.now + after_ms
        self._happens = happens

    @property
    def waited_ms(self) -> int:
        return self.now - self.begun

    async def sleep(self, delay_ms: float, kind: str = SESSION) -> None:
        before = self.now
        self.now += int(delay_ms)
        if before < self._then <= self.now:
            await asyncio.to_thread(self._happens)
        await super().sleep(delay_ms, kind)


def logs_of(servers: str, clock: TestClock, monkeypatch: pytest.MonkeyPatch, *, streaming: bool, **more: str) -> Any:
    monkeypatch.setattr(planning, "Cluster", partial(Cluster, clock=clock))
    return closing(
        BrokerLogs(parse({"kafka.bootstrap.servers": servers, "subscribe": "orders"} | more, streaming=streaming))
    )


@pytest.mark.parametrize(
    ("streaming", "told", "waited_ms"),
    [
        (False, {}, BATCH_MS),
        (False, {"kafka.default.api.timeout.ms": "5000", "fetchOffset.numRetries": "9"}, 5_000),
        (True, {}, ALL_MS),
        (True, {"kafka.default.api.timeout.ms": "10000", "fetchOffset.numRetries": "1"}, 21_000),
    ],
)
def test_brokers_that_never_answer_are_asked_as_long_as_by_the_connector(
    streaming: bool,
    told: dict[str, str],
    waited_ms: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = PatientClock()
    made = logs_of(NOBODY, clock, monkeypatch, streaming=streaming, **told)
    with made as logs, pytest.raises(NoBroker, match=f"no broker answers at {NOBODY}"):
        logs.find(Filters(), must_be_there=True)
    assert waited_ms <= clock.waited_ms <= waited_ms + planning.PAUSE_MS_MAX
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"minibroker: asking again for up to {waited_ms // 1000} s: kafka.bootstrap.servers: no broker"
    )


@pytest.mark.parametrize(("streaming", "away_ms"), [(False, BATCH_MS - 5_000), (True, ALL_MS - 5_000)])
def test_a_broker_that_comes_back_is_asked_again(
    streaming: bool, away_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(topics=["orders"]) as broker:
        clock = PatientClock(away_ms, broker.start)
        with logs_of(broker.bootstrap_servers, clock, monkeypatch, streaming=streaming) as logs:
            assert [*logs.find(Filters(), must_be_there=True)] == [KEY]
            assert clock.waited_ms == 0
            broker.stop()
            assert [*logs.find(Filters(), must_be_there=True)] == [KEY]
            assert clock.waited_ms >= away_ms


async def test_a_leader_that_was_killed_is_waited_for_until_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata name it until its session ends: after 9 s, and there are clusters with longer ones."""
    clock = PatientClock()

    def described(request: MetadataRequest, _: int) -> MetadataResponse:
        is_named = clock.waited_ms < 100_000
        found = metadata(broker.port, {"orders": 1}, {0: 2} if is_named else {})
        if is_named:
            found.brokers.append(MetadataResponse.MetadataResponseBroker(node_id=2, host="127.0.0.1", port=1))
        return found

    def listed(request: ListOffsetsRequest, _: int) -> ListOffsetsResponse:
        Row = ListOffsetsResponse.ListOffsetsTopicResponse
        partition = Row.ListOffsetsPartitionResponse(partition_index=0, error_code=0, timestamp=-1, offset=7)
        return ListOffsetsResponse(topics=[Row(name="orders", partitions=[partition])])

    async with ScriptedBroker({MetadataRequest: described, ListOffsetsRequest: listed}) as broker:
        with logs_of(f"127.0.0.1:{broker.port}", clock, monkeypatch, streaming=False) as logs:
            found = await asyncio.to_thread(logs.find, Filters(), must_be_there=True)
    assert found[KEY].end_offset == 7
    assert clock.waited_ms >= 100_000


def test_a_commit_leaves_patience_to_the_next_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = PatientClock()
    with logs_of(NOBODY, clock, monkeypatch, streaming=True, commitOffsets="true") as logs:
        logs.commit({KEY: 3})
    assert planning.COMMIT_MS <= clock.waited_ms <= planning.COMMIT_MS + planning.PAUSE_MS_MAX
