"""A broker in a process of its own, asked over the wire by our own client.

It is `python -m minibroker serve`. Its first line on stdout says that it answers, and the end of its stdout that it
has ended; so nothing is polled.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys

from minibroker.cleaner.results import COMPACT, RETENTION, ROLL, ROWS
from minibroker.clock import LoopClock
from minibroker.embedded.engine import BrokerError, Record, too_few
from minibroker.errors import Error, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import IO, Any

    from minibroker.cleaner.results import CompactionRow, RetentionRow, RollRow
    from minibroker.client import Cluster, Consumer
    from minibroker.embedded.engine import Start
    from minibroker.groups.view_rows import GroupRow, GroupView

PREFIX = "minibroker serve: "
PAUSE_MS = 20
API_VERSIONS = 18
NOT_FOUND, REQUEST_TIMEOUT = 404, 408  # of HTTP


class Lines(asyncio.Protocol):
    """What a process writes into a pipe, line by line."""

    def __init__(self, told: Callable[[str], None]) -> None:
        loop = asyncio.get_running_loop()
        self.first: asyncio.Future[str] = loop.create_future()  # empty: it ended without a line
        self.ended: asyncio.Future[None] = loop.create_future()
        self.last = ""
        self._told = told
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self.last = line.decode("utf-8", "replace").rstrip()
            if not self.first.done():
                self.first.set_result(self.last)
            self._told(self.last)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.first.done():
            self.first.set_result("")
        self.ended.set_result(None)


class Subprocess:
    """An Engine that is a process."""

    def __init__(self, start: Start):
        self.bootstrap_servers = self.listeners = ""
        self._command = command(start)
        self._listeners = start.settings["listeners"]
        self._tells_versions = start.as_version is None or _tells_versions(start.as_version)
        self._process: subprocess.Popen[bytes] | None = None
        self._pipes: list[Lines] = []
        self._cluster: Cluster | None = None

    async def start(self) -> None:
        process = self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,  # its end tells the broker that we are gone, however that came about
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if not _is_setting(name)},
        )
        output = await self._read(process.stdout, lambda _: None)
        complaints = await self._read(process.stderr, logging.getLogger("minibroker").warning)
        try:
            self.bootstrap_servers = await output.first
        except asyncio.CancelledError:
            await self.stop()
            raise
        if not self.bootstrap_servers:
            await self.stop()
            raise BrokerError(complaints.last.removeprefix(PREFIX) or "the process ended without a word")
        first, _, others = self._listeners.partition(",")
        name = first.partition("://")[0]
        port = self.bootstrap_servers.rpartition(":")[2]
        host = first.partition("://")[2].rpartition(":")[0]
        self.listeners = f"{name}://{host}:{port}" + (f",{others}" if others else "")

    async def stop(self) -> None:
        if self._cluster is not None:
            await self._cluster.close()
            self._cluster = None
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            for pipe in self._pipes:
                await pipe.ended
            self._pipes.clear()
            assert process.stdin is not None
            process.stdin.close()
            process.wait()  # its pipes are closed, so it is as good as gone

    def abandon(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()

    def handles(self) -> list[int]:
        process = self._process
        pipes = () if process is None else (process.stdin, process.stdout, process.stderr)
        return [pipe.fileno() for pipe in pipes if pipe is not None and not pipe.closed]

    async def create_topic(self, name: str, partitions: int | None, configs: Mapping[str, str]) -> None:
        from minibroker.client import Admin, NewTopic

        wanted = NewTopic(name, -1 if partitions is None else partitions, -1, dict(configs))
        await Admin(self._client()).create_topics([wanted])

    async def delete_topic(self, name: str) -> None:
        from minibroker.client import Admin

        await Admin(self._client()).delete_topics([name])

    async def topics(self) -> dict[str, int]:
        found = await self._client().metadata()
        return {name: len(topic.partitions) for name, topic in sorted(found.items())}

    async def records(self, topic: str) -> list[Record]:
        from minibroker.client import Consumer

        partitions = (await self.topics()).get(topic)
        if partitions is None:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
        async with Consumer(self._client()) as consumer:
            await consumer.assign((topic, partition, "earliest") for partition in range(partitions))
            found: list[Record] = []
            while True:
                found += await _fetch(consumer, 0)
                if consumer.is_at_end:
                    return sorted(found, key=_place)

    async def wait_records(self, topic: str, count: int, timeout_ms: int) -> list[Record]:
        from minibroker.client import Consumer

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

    async def control(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        from minibroker.client.control import TIMEOUT_MS, Refusal
        from minibroker.faults import FaultError

        try:
            return await self._ask(method, path, body, TIMEOUT_MS)
        except Refusal as refusal:
            raise FaultError(str(refusal)) from None

    async def groups(self) -> list[GroupRow]:
        from minibroker.groups.view_rows import GroupRow

        return [GroupRow(**row) for row in await self._ask_groups("GET", "/groups")]

    async def group(self, group: str) -> GroupView:
        from urllib.parse import quote

        from minibroker.groups.view_rows import view_from_json

        return view_from_json(await self._ask_groups("GET", f"/groups/{quote(group, safe='')}"))

    async def wait_group(self, group: str, members: int | None, state: str | None, timeout_ms: float) -> GroupView:
        from minibroker.groups.view_rows import view_from_json

        wanted = {"group": group, "members": members, "state": state, "timeout_ms": timeout_ms}
        return view_from_json(await self._ask_groups("POST", "/wait-group", wanted))

    async def wait_committed(
        self, group: str, topic: str, partition: int, offset: int | None, timeout_ms: float
    ) -> int:
        place = {"group": group, "topic": topic, "partition": partition}
        wanted = {**place, "offset": offset, "timeout_ms": timeout_ms}
        found: int = await self._ask_groups("POST", "/wait-committed", wanted)
        return found

    async def _ask_groups(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Ask the broker, which waits by itself if it is to; nothing is asked again and again."""
        from minibroker.client.control import TIMEOUT_MS, Refusal

        try:
            return await self._ask(method, path, body, TIMEOUT_MS + (body or {}).get("timeout_ms", 0))
        except Refusal as refusal:
            if refusal.status == REQUEST_TIMEOUT:
                raise TimeoutError(str(refusal)) from None
            if refusal.status == NOT_FOUND:
                raise KafkaError(Error.GROUP_ID_NOT_FOUND, str(refusal)) from None
            raise ValueError(str(refusal)) from None

    async def retention_now(self, topic: str | None, partition: int | None) -> list[RetentionRow]:
        return await self._clean(RETENTION, topic, partition)

    async def compact_now(self, topic: str | None, partition: int | None) -> list[CompactionRow]:
        return await self._clean(COMPACT, topic, partition)

    async def roll_now(self, topic: str | None, partition: int | None) -> list[RollRow]:
        return await self._clean(ROLL, topic, partition)

    async def _clean(self, verb: str, topic: str | None, partition: int | None) -> list[Any]:
        from minibroker.client.control import LONG_TIMEOUT_MS, Refusal

        place = {"topic": topic, "partition": partition}
        try:
            return [ROWS[verb](**row) for row in await self._ask("POST", f"/{verb}", place, LONG_TIMEOUT_MS)]
        except Refusal as refusal:
            is_absent = refusal.status == NOT_FOUND
            code = Error.UNKNOWN_TOPIC_OR_PARTITION if is_absent else Error.INVALID_REQUEST
            raise KafkaError(code, str(refusal)) from None

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None, timeout_ms: float) -> Any:
        """Return what the broker answers to HTTP."""
        from minibroker.client.control import ask

        host, _, port = self.bootstrap_servers.rpartition(":")
        return await ask(host.strip("[]"), int(port), method, path, body, clock=LoopClock(), timeout_ms=timeout_ms)

    async def _read(self, pipe: IO[bytes] | None, told: Callable[[str], None]) -> Lines:
        _, lines = await asyncio.get_running_loop().connect_read_pipe(lambda: Lines(told), pipe)
        self._pipes.append(lines)
        return lines

    def _client(self) -> Cluster:
        if self._cluster is None:
            from minibroker.client import Cluster

            self._cluster = Cluster(
                self.bootstrap_servers, client_id="minibroker-embedded", ask_versions=self._tells_versions
            )
        return self._cluster


def command(start: Start) -> list[str]:
    """Return the command line that starts such a broker."""
    words = [sys.executable, "-m", "minibroker", "serve", "--quiet", "--until-stdin-ends"]
    words += ["--memory"] if start.data_dir is None else ["--data-dir", start.data_dir]
    for name, value in start.settings.items():
        words += ["-o", f"{name}={value}"]
    for name, partitions, configs, _ in start.topics:
        settings = [f"{key}={value}" for key, value in configs.items()]
        words += ["--topic", ":".join([name, *([str(partitions)] if partitions > 0 else []), *settings])]
    if start.as_version is not None:
        words += ["--as-version", start.as_version]
    if start.cluster_id is not None:
        words += ["--cluster-id", start.cluster_id]
    return words


def _is_setting(variable: str) -> bool:
    """Whether `serve` would take a variable of the environment for a setting: those are arguments already."""
    return variable.startswith("KAFKA_") or variable == "CLUSTER_ID"


def _tells_versions(release: str) -> bool:
    """Whether brokers of a release could say which versions they serve: since 0.10."""
    from minibroker.broker.releases import ranges_of, release_named

    return API_VERSIONS in ranges_of(release_named(release))


async def _fetch(consumer: Consumer, max_wait_ms: int) -> list[Record]:
    return [
        Record(record.partition, record.offset, record.key, record.value, record.headers, record.timestamp)
        for record in await consumer.fetch(max_wait_ms)
    ]


def _place(record: Record) -> tuple[int, int]:
    return record.partition, record.offset
