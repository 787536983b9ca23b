"""A broker that is asked over the wire, by our own client: one in another process, or one that somebody else runs."""

from __future__ import annotations

from minibroker.config.sources import setting_texts
from minibroker.embedded.engine import TIMEOUT_S, Engine, too_few
from minibroker.embedded.record import Record
from minibroker.errors import Error, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from minibroker.client import Cluster, Consumer
    from minibroker.client.security import Security

PAUSE_MS = 20


class Remote(Engine):
    """What Kafka's own protocol can tell of a broker, and do."""

    def __init__(self, access: Mapping[str, str], *, tells_versions: bool):
        """access: settings of our own client. tells_versions: whether the broker says which it serves."""
        self._access = access
        self._tells_versions = tells_versions
        self._cluster: Cluster | None = None

    async def _hang_up(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            await cluster.close()

    async def create_topic(self, /, name: str, partitions: int | None = None, **configs: object) -> None:
        from minibroker.client import Admin, NewTopic

        texts: dict[str, str | None] = {**setting_texts(configs)}
        wanted = NewTopic(name, -1 if partitions is None else partitions, -1, texts)
        await Admin(self._client()).create_topics([wanted])

    async def delete_topic(self, name: str) -> None:
        from minibroker.client import Admin

        await Admin(self._client()).delete_topics([name])

    async def topics(self) -> dict[str, int]:
        found = await self._client().metadata()
        return {name: len(topic.partitions) for name, topic in sorted(found.items())}

    async def records(self, topic: str) -> list[Record]:
        partitions = range(await self._partitions(topic))
        return await self._read_from((topic, partition, "earliest") for partition in partitions)

    async def _partitions(self, topic: str) -> int:
        partitions = (await self.topics()).get(topic)
        if partitions is None:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
        return partitions

    async def _read_from(self, places: Iterable[tuple[str, int, int | str]]) -> list[Record]:
        """Return what there is from these places to the ends."""
        from minibroker.client import Consumer

        async with Consumer(self._client()) as consumer:
            await consumer.assign(places)
            found: list[Record] = []
            while True:
                found += await _fetch(consumer, 0)
                if consumer.is_at_end:
                    return sorted(found, key=_place)

    async def ends(self, topic: str) -> dict[int, tuple[int, int]]:
        from minibroker.client import Admin

        places = [(topic, partition) for partition in range(await self._partitions(topic))]
        admin = Admin(self._client())
        begins, ends = [await admin.list_offsets(dict.fromkeys(places, which)) for which in ("earliest", "latest")]
        return {place[1]: (begins[place].offset, ends[place].offset) for place in places}

    async def last_records(self, topic: str, count: int = 1) -> list[Record]:
        ends = await self.ends(topic)
        return await self._read_from(
            (topic, partition, max(begin, end - count)) for partition, (begin, end) in ends.items()
        )

    async def wait_records(self, topic: str, count: int, timeout: float = TIMEOUT_S) -> list[Record]:
        from minibroker.client import Consumer

        timeout_ms = round(timeout * 1000)
        cluster = self._client()
        clock = cluster.clock
        deadline_ms = clock.now_ms() + timeout_ms
        found: list[Record] = []
        while (partitions := (await self.topics()).get(topic)) is None and clock.now_ms() < deadline_ms:
            await clock.sleep(PAUSE_MS)  # brokers tell nobody that a topic has been made
        async with Consumer(cluster) as consumer:
            if partitions is not None:
                await consumer.assign((topic, partition, "earliest") for partition in range(partitions))
            while len(found) < count:
                left_ms = deadline_ms - clock.now_ms()
                if left_ms <= 0 or partitions is None:
                    raise too_few(topic, len(found), count, timeout_ms, await self.topics())
                found += await _fetch(consumer, left_ms)
        return sorted(found, key=_place)

    def _client(self) -> Cluster:
        if self._cluster is None:
            from minibroker.client import Cluster

            self._cluster = Cluster(
                self.bootstrap_servers,
                client_id="minibroker-embedded",
                ask_versions=self._tells_versions,
                security=self._security(),
            )
        return self._cluster

    def _security(self) -> Security | None:
        if not self._access:
            return None
        from minibroker.client.security import Security

        return Security.of(self._access)


async def _fetch(consumer: Consumer, max_wait_ms: int) -> list[Record]:
    return [
        Record(record.partition, record.offset, record.key, record.value, record.headers, record.timestamp)
        for record in await consumer.fetch(max_wait_ms)
    ]


def _place(record: Record) -> tuple[int, int]:
    return record.partition, record.offset
