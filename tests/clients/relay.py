"""A relay between a client and a listener that looks at what the client sends while it logs in, and does harm to it.

    watch      nothing: it takes note of the logins of each connection
    cut        the first connection ends in the middle of its login; those that come afterwards are left alone
    turn       who logs in again on its connection by SCRAM-SHA-256 asks for SCRAM-SHA-512, and the reverse

Not here: what is within TLS; such a connection is cut by the count of its records.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

WATCH, CUT, TURN = "watch", "cut", "turn"
SASL_HANDSHAKE = 17
TLS_DATA = 23
TLS_RECORDS = 3  # a login has more of them that are data; a TLS handshake has more of any kind
SCRAM = (b"SCRAM-SHA-256", b"SCRAM-SHA-512")


class Relay:
    """One listener's; `logins` has the mechanisms of each connection that has asked for one, in their order."""

    def __init__(self, target: int, how: str, *, tls: str = ""):
        """tls: what is cut, "handshake" or "login"; empty: what comes is in plain text."""
        self.target, self.how, self.tls = target, how, tls
        self.port = 0
        self.logins: list[list[str]] = []
        self.cuts = 0
        self.ended = 0  # connections that the listener has closed, and not the client

    async def open(self, port: int) -> asyncio.Server:
        server = await asyncio.start_server(self._relay, "127.0.0.1", port)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
            answers = asyncio.ensure_future(self._answers(there, writer, back))
            try:
                await (self._records if self.tls else self._requests)(reader, back)
            finally:
                back.close()
                if self.how == CUT:
                    answers.cancel()
                await asyncio.gather(answers, return_exceptions=True)
        writer.close()

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, back: asyncio.StreamWriter
    ) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            self.ended += not back.is_closing()
        finally:
            writer.close()

    async def _requests(self, reader: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        mechanisms: list[str] = []
        is_token = False  # what comes next
        while True:
            head = await reader.readexactly(4)
            frame = await reader.readexactly(int.from_bytes(head))
            if self.how == CUT and is_token and not self.cuts:
                await self._cut(head + frame, back)
                return
            is_token = int.from_bytes(frame[:2]) == SASL_HANDSHAKE
            if is_token:
                if not mechanisms:
                    self.logins.append(mechanisms)
                elif self.how == TURN:
                    ours, others = SCRAM if SCRAM[0] in frame else SCRAM[::-1]
                    frame = frame.replace(ours, others)
                mechanisms.append(frame[frame.rindex(b"\0") + 2 :].decode())
            back.write(head + frame)
            await back.drain()

    async def _records(self, reader: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        count = 0
        while True:
            head = await reader.readexactly(5)
            record = await reader.readexactly(int.from_bytes(head[3:]))
            count += self.tls == "handshake" or head[0] == TLS_DATA
            if count == TLS_RECORDS and not self.cuts:
                await self._cut(head + record, back)
                return
            back.write(head + record)
            await back.drain()

    async def _cut(self, data: bytes, back: asyncio.StreamWriter) -> None:
        self.cuts += 1
        back.write(data[: len(data) // 2])
        await back.drain()


class Relays:
    """Relays that are open, in a loop of a thread of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.SelectorEventLoop()
        self._servers: list[asyncio.Server] = []
        self.opened: list[Relay] = []
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def open(self, relay: Relay, port: int = 0) -> Relay:
        self.opened.append(relay)
        self._servers.append(asyncio.run_coroutine_threadsafe(relay.open(port), self._loop).result(10))
        return relay

    def close(self) -> None:
        async def end() -> None:
            for server in self._servers:
                server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@contextmanager
def relays() -> Iterator[Relays]:
    found = Relays()
    try:
        yield found
    finally:
        found.close()
