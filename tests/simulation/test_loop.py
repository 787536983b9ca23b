"""The loop in virtual time: how time passes, what is noticed, and processes that die and stand still."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest

from minibroker.simulation.loop import Deadlock, OutOfTime, SimulatedTask, Stray
from minibroker.simulation.processes import ProcessKilled
from minibroker.simulation.run import World, simulate


def play(main: Callable[[World], Coroutine[Any, Any, Any]], **options: Any) -> Any:
    return simulate(main, 1, **options).check()


def test_a_year_passes_in_no_time() -> None:
    async def main(world: World) -> tuple[float, int]:
        begun_ms = world.clock.now_ms()
        await world.clock.sleep(365 * 86_400_000)
        await asyncio.sleep(1)
        return round(world.loop.time()), world.clock.now_ms() - begun_ms

    begun = time.perf_counter()
    assert play(main, limit_s=1e9) == (365 * 86_400 + 1, 365 * 86_400_000 + 1000)
    assert time.perf_counter() - begun < 5


def test_timers_fire_in_order_those_of_the_same_time_as_they_were_set() -> None:
    async def main(world: World) -> list[int]:
        fired: list[int] = []
        when = world.loop.time() + 1
        for number in range(100):
            world.loop.call_at(when + (number % 3), fired.append, number)
        await asyncio.sleep(10)
        return fired

    assert play(main) == [number for rest in range(3) for number in range(rest, 100, 3)]


def test_spinning_takes_a_microsecond_a_turn() -> None:
    async def main(world: World) -> int:
        turns = 0
        end = world.loop.time() + 0.001
        while world.loop.time() < end:
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert 990 < play(main) < 1010


def test_when_everybody_waits_for_ever_it_says_who_and_where() -> None:
    async def main(world: World) -> None:
        async def for_nobody() -> None:
            await world.loop.create_future()

        await for_nobody()

    with pytest.raises(Deadlock, match=r"for_nobody line \d+"):
        play(main)


def test_what_takes_too_long_is_stopped() -> None:
    async def main(world: World) -> None:
        while True:
            await asyncio.sleep(60)

    with pytest.raises(OutOfTime, match="main line"):
        play(main, limit_s=3600)


def test_foreign_code_gets_virtual_time_and_seeded_chance() -> None:
    async def main(world: World) -> tuple[float, float, int]:
        import os
        import random
        import uuid

        before, ticks = time.time(), time.monotonic()
        await asyncio.sleep(100)
        assert round(time.time() - before) == round(time.monotonic() - ticks) == 100
        return random.random(), hash(os.urandom(8).hex()), uuid.uuid4().int

    real = time.time
    assert play(main) == play(main)
    assert time.time is real


def test_sleeping_for_real_is_noticed() -> None:
    async def main(world: World) -> None:
        time.sleep(0.001)

    with pytest.raises(Stray):
        play(main)


def test_threads_of_a_pool_run_inline() -> None:
    async def main(world: World) -> str:
        return await asyncio.to_thread(lambda: "done")

    assert play(main) == "done"


def test_an_error_that_nobody_handles_fails_the_run() -> None:
    async def main(world: World) -> None:
        world.loop.call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    with pytest.raises(ZeroDivisionError):
        play(main)


def test_sets_of_tasks_and_futures_keep_the_order_of_their_making() -> None:
    async def main(world: World) -> list[int]:
        order: list[int] = []

        async def work(number: int) -> None:
            await asyncio.sleep(1)
            order.append(number)

        tasks = [world.loop.create_task(work(number)) for number in range(50)]
        assert [task.get_name() for task in set(tasks)] == [task.get_name() for task in tasks]
        await asyncio.wait(tasks)
        return order

    assert play(main) == list(range(50))


def test_many_tasks_at_once_are_not_looked_through_for_each_one_more() -> None:
    looks = 0

    class Seen(SimulatedTask):
        def done(self) -> bool:
            nonlocal looks
            looks += 1
            return super().done()

    async def main(world: World) -> int:
        loop, never = world.loop, world.loop.create_future()

        async def wait() -> None:
            await asyncio.wait([never])

        tasks = [Seen(wait(), loop=loop) for _ in range(5000)]
        for task in tasks:
            loop.remember(task)
        never.set_result(None)
        await asyncio.gather(*tasks)
        return len(loop.tasks_left())

    simulate(main, 1).check()
    assert looks < 10 * 5000  # what asyncio asks is among them; it was 12 million


def test_what_is_left_behind_is_named() -> None:
    async def main(world: World) -> None:
        world.loop.create_task(asyncio.sleep(100), name="forgotten")
        await asyncio.sleep(0)

    outcome = simulate(main, 1)
    assert outcome.failure is None
    assert outcome.left == ["forgotten"]


def test_a_killed_process_does_not_run_another_line() -> None:
    async def main(world: World) -> list[str]:
        lines: list[str] = []

        async def program() -> None:
            world.loop.call_later(2, lines.append, "timer")
            try:
                world.loop.create_task(child())
                await asyncio.sleep(5)
                lines.append("woken")
            finally:
                lines.append("cleaned up")

        async def child() -> None:
            await asyncio.sleep(0.5)
            lines.append("child")
            await asyncio.sleep(1)
            lines.append("child again")

        process = world.loop.process("broker-1")
        running = world.loop.create_task(process.run(program()))
        await asyncio.sleep(1)
        process.kill()
        with pytest.raises(ProcessKilled, match="broker-1"):
            await running
        with pytest.raises(ProcessKilled):
            await process.run(program())
        await asyncio.sleep(10)
        return list(lines)

    assert play(main) == ["child"]


def test_what_a_killed_process_leaves_ends_on_the_loop_of_the_simulation() -> None:
    """Or asyncio makes another one for it, which nobody closes, and whose test runs later hears of that."""
    loops: list[asyncio.AbstractEventLoop] = []

    async def main(world: World) -> asyncio.AbstractEventLoop:
        async def program() -> None:
            try:
                await world.loop.create_future()
            finally:
                waiting = asyncio.gather()
                loops.append(waiting.get_loop())
                world.loop.create_task(asyncio.sleep(1))
                await waiting

        process = world.loop.process("broker-1")
        running = world.loop.create_task(process.run(program()))
        await asyncio.sleep(1)
        process.kill()
        with pytest.raises(ProcessKilled):
            await running
        assert loops == []
        return world.loop

    assert loops == [play(main)]


def test_a_paused_process_goes_on_where_it_stood() -> None:
    async def main(world: World) -> list[tuple[str, int]]:
        seen: list[tuple[str, int]] = []

        async def program() -> None:
            for number in range(4):
                await asyncio.sleep(1)
                seen.append((f"tick {number}", round(world.loop.time())))

        process = world.loop.process("broker-1")
        running = world.loop.create_task(process.run(program()))
        await asyncio.sleep(1.5)
        process.pause()
        await asyncio.sleep(10)
        process.resume()
        await running
        return seen

    assert [at for _, at in play(main)] == [1, 12, 13, 14]


# Sockets


class Echo(asyncio.Protocol):
    """Sends back what comes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


async def echo_server(world: World, port: int = 9092) -> None:
    await world.loop.create_server(Echo, "127.0.0.1", port)


OPENED: list[asyncio.StreamWriter] = []


@pytest.fixture(autouse=True)
def _forget_writers() -> Iterator[None]:
    """Keep writers until their loop is closed: asyncio warns of those thrown away earlier without being closed."""
    yield
    OPENED.clear()


async def connect(host: str = "localhost", port: int = 9092) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(host, port)
    OPENED.append(writer)
    return reader, writer


async def ended(work: Awaitable[Any]) -> str:
    try:
        return repr(await work)
    except Exception as failure:
        return type(failure).__name__


@pytest.mark.parametrize("max_piece_bytes", [0, 1, 7])
def test_streams_of_asyncio_run_on_simulated_sockets(max_piece_bytes: int) -> None:
    async def main(world: World) -> None:
        world.loop.sockets.max_piece_bytes = max_piece_bytes
        await echo_server(world)
        reader, writer = await connect()
        assert writer.get_extra_info("peername") == ("127.0.0.1", 9092)
        sent = bytes(range(256)) * 20
        writer.write(sent)
        await writer.drain()
        assert await reader.readexactly(len(sent)) == sent
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(1)
        assert not world.loop.sockets.transports

    play(main)


def test_a_slow_reader_slows_who_writes() -> None:
    async def main(world: World) -> None:
        await echo_server(world)
        reader, writer = await connect()
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        total = 0

        async def fill() -> None:
            nonlocal total
            while total < 50_000_000:
                writer.write(bytes(100_000))
                total += 100_000
                await writer.drain()

        filling = world.loop.create_task(fill())
        await asyncio.sleep(10)
        # What nobody reads on the way back does not slow the echo, which writes without asking; the client does.
        assert total == 50_000_000
        assert filling.done()
        reader._transport.resume_reading()  # type: ignore[attr-defined]
        assert len(await reader.readexactly(total)) == total

    play(main)


def test_a_server_that_does_not_read_makes_its_client_wait() -> None:
    class Deaf(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.pause_reading()
            world_of_server.append(transport)

    world_of_server: list[asyncio.Transport] = []

    async def main(world: World) -> None:
        await world.loop.create_server(Deaf, "", 9092)
        _, writer = await connect()
        writer.write(bytes(1_000_000))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(writer.drain(), 10)
        world_of_server[0].resume_reading()
        await asyncio.wait_for(writer.drain(), 10)

    play(main)


def test_nobody_listens() -> None:
    async def main(world: World) -> None:
        with pytest.raises(ConnectionRefusedError):
            await connect(port=1)
        server = await world.loop.create_server(Echo, "localhost", 9092)
        with pytest.raises(OSError, match="in use"):
            await world.loop.create_server(Echo, "localhost", 9092)
        server.close()
        with pytest.raises(ConnectionRefusedError):
            await connect()
        await echo_server(world)

    play(main)


def test_killing_a_process_resets_its_connections_and_frees_its_ports() -> None:
    async def main(world: World) -> None:
        process = world.loop.process("broker-1")
        await process.run(echo_server(world))
        reader, writer = await connect()
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        process.kill()
        assert await ended(reader.read()) == "ConnectionResetError"
        assert await ended(connect()) == "ConnectionRefusedError"
        await world.loop.process("broker-1 again").run(echo_server(world))
        reader, writer = await connect()

    play(main)


def test_a_machine_without_power_leaves_its_clients_waiting() -> None:
    async def main(world: World) -> None:
        process = world.loop.process("broker-1")
        await process.run(echo_server(world))
        reader, writer = await connect()
        process.kill(silent=True)
        writer.write(b"x")
        assert await ended(asyncio.wait_for(reader.read(), 60)) == "TimeoutError"

    play(main)


def test_a_paused_process_takes_connections_and_does_not_answer() -> None:
    async def main(world: World) -> None:
        process = world.loop.process("broker-1")
        await process.run(echo_server(world))
        process.pause()
        reader, writer = await connect()
        writer.write(b"x")
        assert await ended(asyncio.wait_for(reader.readexactly(1), 60)) == "TimeoutError"
        process.resume()
        assert await reader.readexactly(1) == b"x"

    play(main)


def test_a_cut_port_hangs_until_it_is_healed() -> None:
    async def main(world: World) -> None:
        await echo_server(world)
        reader, writer = await connect()
        world.loop.sockets.cut(9092)
        writer.write(b"x")
        assert await ended(asyncio.wait_for(reader.readexactly(1), 60)) == "TimeoutError"
        assert await ended(asyncio.wait_for(connect(), 60)) == "TimeoutError"
        world.loop.sockets.heal(9092)
        assert await reader.readexactly(1) == b"x"

    play(main)


def test_a_reset_breaks_both_ends() -> None:
    async def main(world: World) -> None:
        await echo_server(world)
        reader, _ = await connect()
        world.loop.sockets.reset(9092)
        assert await ended(reader.read()) == "ConnectionResetError"
        await asyncio.sleep(1)
        assert not world.loop.sockets.transports

    play(main)


def test_what_was_written_before_the_end_arrives() -> None:
    class Farewell(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.write(b"farewell")
            transport.close()

    async def main(world: World) -> bytes:
        await world.loop.create_server(Farewell, "localhost", 9092)
        reader, _ = await connect()
        return await reader.read()

    assert play(main) == b"farewell"


def test_what_spins_without_end_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minibroker.simulation.loop.SPINS_MAX", 1000)

    async def spin(world: World) -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(OutOfTime, match="something spins"):
        simulate(spin, 1).check()
