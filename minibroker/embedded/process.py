"""A broker in a process of its own.

It is `python -m minibroker serve`. Its first line on stdout says that it answers, and the end of its stdout that it
has ended; so nothing is polled.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys

from minibroker.clock import LoopClock
from minibroker.config.sources import variable_of_name
from minibroker.config.tables import find_broker_setting
from minibroker.embedded.engine import ANSWER_MS, BrokerError, HttpRefusal
from minibroker.embedded.remote import Remote
from minibroker.embedded.writing import tells_versions
from minibroker.errors import StorageError
from minibroker.log.storage import OsStorage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import IO, Any

    from minibroker.clock.steered import SteeredClock
    from minibroker.embedded.engine import Start
    from minibroker.embedded.snapshot import Seed
    from minibroker.log.storage import Storage

PREFIX = "minibroker serve: "


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


class Subprocess(Remote):
    """A process."""

    def __init__(self, start: Start, access: Mapping[str, str], seed: Seed | None = None):
        """access: settings of our own client. seed: what is in the directory when the broker starts first."""
        super().__init__(access, tells_versions=start.as_version is None or tells_versions(start.as_version))
        self._address = ""
        self._seed, self._data_dir = seed, start.data_dir
        self._command = command(start)
        # Everybody may read a command line, and nobody else an environment.
        self._secrets = {variable_of_name(name): text for name, text in start.settings.items() if _is_secret(name)}
        self._listeners = start.settings["listeners"]
        self._process: subprocess.Popen[bytes] | None = None
        self._pipes: list[Lines] = []

    @property
    def bootstrap_servers(self) -> str:
        return self._address

    async def start(self) -> None:
        if self._seed is not None:
            assert self._data_dir is not None
            try:
                await self._seed.sow(OsStorage(os.path.abspath(self._data_dir)))
            except StorageError as failure:
                raise BrokerError(str(failure)) from failure
        process = self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,  # its end tells the broker that we are gone, however that came about
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if not _is_setting(name)} | self._secrets,
        )
        output = await self._read(process.stdout, lambda _: None)
        complaints = await self._read(process.stderr, logging.getLogger("minibroker").warning)
        try:
            self._address = await output.first
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
        await self._hang_up()
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

    def steered_clock(self) -> SteeredClock:
        raise TypeError("a broker in a process of its own goes by the machine's clock, which cannot be moved")

    async def snapshot(self) -> Storage:
        raise ValueError(
            "a broker in a process of its own cannot be copied while it runs, nor reset: load the data in one of this "
            "process, and give its copy to others by snapshot.fork(process=True, data_dir=...)"
        )

    async def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_ms: float = ANSWER_MS
    ) -> Any:
        from minibroker.client.control import Refusal, ask

        host, _, port = self.bootstrap_servers.rpartition(":")
        try:
            return await ask(
                host.strip("[]"),
                int(port),
                method,
                path,
                body,
                clock=LoopClock(),
                timeout_ms=timeout_ms,
                security=self._security(),
            )
        except Refusal as refusal:
            raise HttpRefusal(str(refusal), refusal.status) from None

    async def _read(self, pipe: IO[bytes] | None, told: Callable[[str], None]) -> Lines:
        _, lines = await asyncio.get_running_loop().connect_read_pipe(lambda: Lines(told), pipe)
        self._pipes.append(lines)
        return lines


def command(start: Start) -> list[str]:
    """Return the command line that starts such a broker."""
    words = [sys.executable, "-m", "minibroker", "serve", "--quiet", "--until-stdin-ends"]
    words += ["--memory"] if start.data_dir is None else ["--data-dir", start.data_dir]
    for name, value in start.settings.items():
        if not _is_secret(name):
            words += ["-o", f"{name}={value}"]
    for name, partitions, configs, _ in start.topics:
        settings = [f"{key}={value}" for key, value in configs.items()]
        words += ["--topic", ":".join([name, *([str(partitions)] if partitions > 0 else []), *settings])]
    if start.as_version is not None:
        words += ["--as-version", start.as_version]
    if start.cluster_id is not None:
        words += ["--cluster-id", start.cluster_id]
    return words


def _is_secret(setting: str) -> bool:
    found = find_broker_setting(setting)
    return found is not None and found.is_sensitive


def _is_setting(variable: str) -> bool:
    """Whether `serve` would take a variable of the environment for a setting: those are arguments already."""
    return variable.startswith("KAFKA_") or variable == "CLUSTER_ID"
