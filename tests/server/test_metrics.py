"""What `/metrics` says, in Prometheus' text format and with the names of kafka_exporter."""

from __future__ import annotations

import re

from minibroker.protocol.messages.metadata import MetadataRequest
from tests.server.running import append, connected, running

# Of https://github.com/danielqsj/kafka_exporter, but for those of consumer groups, with their labels.
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
