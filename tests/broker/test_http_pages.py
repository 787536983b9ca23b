"""What `/metrics` says, in Prometheus' text format and with the names of kafka_exporter."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from urllib.request import urlopen

import pytest

from minibroker import Broker
from minibroker.broker.http_pages import LATE_TRANSACTION_MS, _metrics_page, metrics
from minibroker.client import Cluster, Groups, Producer
from minibroker.groups import OFFSETS_TOPIC
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.offset_commit import OffsetCommitRequest
from tests.groups.test_growth import steps_of
from tests.server.running import append, connected, running

# Of https://github.com/danielqsj/kafka_exporter, with their labels; those of groups are below.
EXPORTER = {
    "kafka_brokers": set(),
    "kafka_broker_info": {"address", "id"},
    "kafka_topic_partitions": {"topic"},
    "kafka_topic_partition_current_offset": {"partition", "topic"},
    "kafka_topic_partition_oldest_offset": {"partition", "topic"},
    "kafka_topic_partition_in_sync_replica": {"partition", "topic"},
    "kafka_topic_partition_leader": {"partition", "topic"},
    "kafka_topic_partition_leader_is_preferred": {"partition", "topic"},
    "kafka_topic_partition_replicas": {"partition", "topic"},
    "kafka_topic_partition_under_replicated_partition": {"partition", "topic"},
}
SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (-?\d+)")


async def test_metrics_have_the_names_of_kafka_exporter() -> None:
    async with running() as node, connected(node) as client, connected(node) as browser:
        node.create_topic("orders", 2)
        append(node, "orders", b"a", b"b")
        await client.ask(MetadataRequest(topics=[]), 9)
        browser.send(b"GET /metrics HTTP/1.1\r\n\r\n")
        head, _, body = (await browser.reader.read()).decode().partition("\r\n\r\n")
        assert "Content-Type: text/plain; version=0.0.4" in head
        samples: dict[str, dict[str, str]] = {}
        kinds: dict[str, str] = {}
        described = set()
        for line in body.splitlines():
            if line.startswith("# HELP "):
                described.add(line.split()[2])
            elif line.startswith("# TYPE "):
                kinds[line.split()[2]] = line.split()[3]
            else:
                found = SAMPLE.fullmatch(line)
                assert found, line
                samples.setdefault(found[1], {})[found[2] or ""] = found[3]
        assert set(samples) <= set(kinds) == described
        for name, labels in EXPORTER.items():
            for each in samples[name]:
                assert set(re.findall(r'(\w+)="', each)) == labels, name
        partition = 'partition="0",topic="orders"'
        assert samples["kafka_topic_partition_current_offset"][partition] == "2"
        assert samples["kafka_topic_partition_leader"][partition] == str(node.node_id)
        assert samples["kafka_topic_partition_leader_is_preferred"][partition] == "1"
        assert samples["kafka_topic_partition_under_replicated_partition"][partition] == "0"
        assert samples["kafka_topic_partitions"] == {'topic="orders"': "2"}
        assert samples["minibroker_requests_total"]['api="Metadata",version="9"'] == "1"


async def test_conversions_recompressions_and_batches_in_place_are_counted() -> None:
    async with running() as node, connected(node) as client:
        for name, codec in (("plain", "producer"), ("packed", "gzip")):
            node.create_topic(name, 1, {"compression.type": codec})
        plain, packed = node.replicas["plain", 0].log, node.replicas["packed", 0].log
        three = [Record(None, b"a", (), 5, at) for at in range(3)]
        for log, magic in ((plain, 2), (plain, 2), (plain, 0), (packed, 2)):
            log.append_as_leader(bytearray(build_batch(magic, three)), leader_epoch=0, now_ms=5)
        node.replicas["plain", 0].high_watermark = plain.log_end_offset
        Topic = FetchRequest.FetchTopic
        row = Topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        asked = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, topics=[Topic(topic="plain", partitions=[row])])
        answer = await client.ask(asked, 3)
        assert len(answer.responses[0].partitions[0].records) > 7 * 35  # cut at the size of what was read
        lines = [line for line in metrics(node) if "batches_in_place_total{" in line or "conversions_total{" in line]
        lines += [line for line in metrics(node) if "recompressions_total{" in line]
        labels = '{partition="0",topic="%s"}'
        assert lines == [
            f"minibroker_batches_in_place_total{labels % 'plain'} 2",
            f"minibroker_produce_message_conversions_total{labels % 'plain'} 3",
            f"minibroker_produce_message_conversions_total{labels % 'packed'} 3",
            f"minibroker_fetch_batch_conversions_total{labels % 'plain'} 3",
            f"minibroker_produce_message_recompressions_total{labels % 'packed'} 3",
        ]


async def test_transactions_that_nobody_ends_are_named() -> None:
    async with running({"transaction.partition.verification.enable": "false"}) as node:
        node.create_topic("orders", 3)
        append(node, "orders", b"a", partition=1)
        late = node.clock.now_ms() - node.config["transaction.max.timeout.ms"] - LATE_TRANSACTION_MS
        for partition, timestamp in ((1, late - 1), (2, late + 600_000)):
            record = Record(None, b"b", (), timestamp)
            named = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
            node.replicas["orders", partition].append(
                bytearray(build_batch(2, [record], **named)), now_ms=timestamp, steady_ms=0
            )
        said = [line for line in metrics(node) if line.startswith(("minibroker_late", "kafka_topic_partition_last"))]
        assert said == [
            'kafka_topic_partition_last_stable_offset{partition="0",topic="orders"} 0',
            'kafka_topic_partition_last_stable_offset{partition="1",topic="orders"} 1',
            'kafka_topic_partition_last_stable_offset{partition="2",topic="orders"} 0',
            'minibroker_late_transaction{partition="1",topic="orders"} 1',
        ]


def commit(group_id: str) -> OffsetCommitRequest:
    Topic = OffsetCommitRequest.OffsetCommitRequestTopic
    rows = [
        Topic.OffsetCommitRequestPartition(partition_index=index, committed_offset=7, committed_metadata="")
        for index in range(20)
    ]
    return OffsetCommitRequest(group_id=group_id, topics=[Topic(name="t", partitions=rows)])


@pytest.mark.parametrize("kind", ["partitions", "offsets", "groups"])
async def test_others_have_their_turn_however_much_there_is(kind: str) -> None:
    longest = []
    for count in (20, 300):
        async with running({"offsets.topic.num.partitions": "1"}) as node, connected(node) as client:
            node.create_topic("t", count if kind == "partitions" else 20)
            node.create_topic(OFFSETS_TOPIC, 1)
            for number in range(count):
                if kind == "offsets":
                    await client.ask(commit(f"g{number}"), 8)
                elif kind == "groups":  # in which nobody is, and of which there is nothing to say but that
                    node.groups.coordinator.find("g").shard.find_or_make(f"g{number}")
            work, steps = _metrics_page(node), []
            with suppress(StopIteration):
                while True:
                    steps.append(steps_of(lambda work=work: next(work)))  # type: ignore[misc]
            longest.append(max(steps))
    assert longest[1] < 1.5 * longest[0], longest


def test_groups_show_how_far_behind_they_are(kafka: Broker) -> None:
    async def commit() -> None:
        async with Cluster(kafka.bootstrap_servers) as cluster, Producer(cluster) as producer:
            for number in range(5):
                await producer.send("orders", b"%d" % number, partition=1)
            await Groups(cluster).alter_offsets('the "readers"', {("orders", 0): 0, ("orders", 1): 3})

    kafka.create_topic("orders", 2)
    asyncio.run(commit())
    with urlopen(f"http://{kafka.bootstrap_servers}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    group = r'consumergroup="the \"readers\""'
    assert [line for line in lines if line.startswith("kafka_consumergroup_")] == [
        f"kafka_consumergroup_members{{{group}}} 0",
        f'kafka_consumergroup_current_offset{{{group},partition="0",topic="orders"}} 0',
        f'kafka_consumergroup_current_offset{{{group},partition="1",topic="orders"}} 3',
        f'kafka_consumergroup_lag{{{group},partition="0",topic="orders"}} 0',
        f'kafka_consumergroup_lag{{{group},partition="1",topic="orders"}} 2',
    ]
