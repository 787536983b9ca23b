"""Transactions in every state in one directory, and two brokers in turn: each goes on with what the other left open."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from minibroker.broker.broker_calls import BrokerToBroker
from minibroker.cli import main
from minibroker.errors import Error
from minibroker.log.storage import OsStorage
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from tests.broker.handlers.transactional import Transactional
from tests.broker.virtual_broker import VirtualBroker, virtual_broker
from tests.differential.kafka import Kafka, missing_tools
from tests.interop import kafka
from tests.interop.transactions import (
    RECORD_MS,
    STATES,
    TOPIC,
    Asked,
    Gate,
    Wire,
    begin,
    connected,
    contents,
    end,
    facts,
    files_of,
    make_topic,
    play,
    transitions,
    wait_for_state,
    wait_until_ready,
    write,
)

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_tools()), reason=f"a real Kafka needs {missing_tools()}, not found"),
]

SETTINGS: dict[str, object] = {
    "transaction.state.log.num.partitions": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}
# A broker that was killed is known as alive until its session is over, and another cannot take its place before.
FENCED_SOON: dict[str, object] = {"broker.session.timeout.ms": 1000, "broker.heartbeat.interval.ms": 200}
# In what a dump prints of what the producers have done.
WORDS = {
    "--transaction-log-decoder": ('"transactionStatus":2', '"clientTransactionVersion":2'),
    "--offsets-decoder": ("g.c.committed",),
    "--print-data-log": ("COMMIT", "ABORT", "currentTxnFirstOffset", "lastStableOffset"),
}
LEVELS = {"3.9": 0, "4.4": 2}  # of transaction.version


class Ours:
    """A broker of ours in virtual time on a real directory, and what holds its markers back."""

    def __init__(self, broker: VirtualBroker, gate: asyncio.Event):
        self._broker = broker
        self._gate = gate
        self.ask = broker.ask
        self.pass_ms = broker.pass_ms

    def now_ms(self) -> int:
        return RECORD_MS

    def hold(self) -> None:
        self._gate.clear()

    def release(self) -> None:
        self._broker.run(self._gate.set)


@contextmanager
def ours(
    directory: Path, monkeypatch: pytest.MonkeyPatch, *, release: str, is_held: bool = False, port: int = 0
) -> Iterator[Ours]:
    """Run a broker of ours. port: where others are told that it listens; in virtual time nobody does."""
    gate = asyncio.Event()
    if not is_held:
        gate.set()
    call = BrokerToBroker.call

    async def held(node: BrokerToBroker, broker_id: int, request: Request, version: int) -> Any:
        await gate.wait()
        answer = call(node, broker_id, request, version)
        return await answer if hasattr(answer, "__await__") else answer

    def gated(node: BrokerToBroker, broker_id: int, request: Request, version: int) -> Any:
        is_held = isinstance(request, WriteTxnMarkersRequest) and not gate.is_set()
        return (held if is_held else call)(node, broker_id, request, version)

    monkeypatch.setattr(BrokerToBroker, "call", gated)
    with virtual_broker(
        {**SETTINGS, "listeners": f"PLAINTEXT://127.0.0.1:{port}"},
        storage=OsStorage(str(directory)),
        as_version=release,
        start_ms=int(time.time() * 1000),
    ) as broker:
        yield Ours(broker, gate)


class Theirs:
    """A Kafka whose markers go through a gate."""

    def __init__(self, kafka: Kafka, wire: Wire):
        self.kafka = kafka
        self.ask = wire.ask
        self.pass_ms = wire.pass_ms
        self.now_ms = wire.now_ms


@contextmanager
def theirs(directory: Path, version: str, gate: Gate) -> Iterator[Theirs]:
    """Run a Kafka on `directory`/data."""
    kafka = Kafka(version, directory, {name: str(value) for name, value in (SETTINGS | FENCED_SOON).items()})
    gate.stand_before(kafka)
    with kafka, connected(kafka.address) as wire:
        yield Theirs(kafka, wire)


def names_of(producers: dict[str, Transactional]) -> list[str]:
    """Return the ids whose state does not change by itself."""
    return [name for name in producers if not name.endswith("short")]


def check_left(found: dict[str, Any], producers: dict[str, Transactional]) -> None:
    """Check that every state is there, as its name says."""
    states = {name: STATES[name.partition(".")[2]] for name in names_of(producers)}
    assert {name: each["state"] for name, each in found["described"].items()} == states
    assert found["listed"] == states
    for each in found["read committed"]:
        assert each["records"] == [(0, b"c.committed first"), (1, b"c.committed second")]
        assert each["last stable offset"] == 6
        assert (1, 3) in each["aborted"][1]


def go_on(broker: Asked, producers: dict[str, Transactional]) -> None:
    """End what was left open: the coordinator does what is prepared or late, producers do the rest."""
    for name, producer in producers.items():
        producer.broker = broker  # type: ignore[assignment]
        kind = name.partition(".")[2]
        if kind in ("held.commit", "held.abort", "short"):
            wait_for_state(broker, name, "CompleteCommit" if kind == "held.commit" else "CompleteAbort")
        elif kind == "left":  # another producer has come
            begin(broker, name, is_v2=producer.is_v2)
            wait_for_state(broker, name, "Empty")
        else:  # the same one writes on, in the transaction that is open, or in another
            write(broker, producer)
            end(broker, producer, commit=kind != "aborted")
            wait_for_state(broker, name, "CompleteAbort" if kind == "aborted" else "CompleteCommit")


def check_ended(found: dict[str, Any], producers: dict[str, Transactional]) -> None:
    """Check that what was committed, before or since, can be read, and nothing else."""
    both = [b" first", b" second"]
    letters = dict.fromkeys(name.partition(".")[0] for name in producers)
    expected = [
        name.encode() + value
        for letter in letters
        for name, times in (
            (f"{letter}.committed", 2),
            (f"{letter}.open", 2),
            (f"{letter}.held.commit", 1),
            (f"{letter}.new", 1),
        )
        for value in both * times
    ]
    for committed, uncommitted in zip(found["read committed"], found["read uncommitted"], strict=True):
        assert committed["last stable offset"] == committed["high watermark"]
        assert sorted(value for _, value in committed["records"]) == sorted(expected)
        assert (
            len(uncommitted["records"])
            == len(expected) + len(letters) * len(("aborted", "aborted", "left", "held.abort")) * 2
        )
    assert found["offsets"] == found["stable"]
    assert found["offsets"] == {
        name: (Error.NONE, len(name) if name.endswith(("committed", "open", "held.commit", "new")) else -1)
        for name in names_of(producers)
    }


@pytest.mark.parametrize(
    ("release", "version", "stop"),
    [("4.4", "4.4.0", "killed"), ("3.9", "3.9.2", "clean"), ("3.9", "4.4.0", "clean")],
)
def test_kafka_goes_on_with_our_transactions(
    release: str, version: str, stop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Gate() as gate:
        with ours(tmp_path / "clean/data", monkeypatch, release=release, port=gate.port) as broker:
            make_topic(broker)
            producers = play(broker, broker.hold, level=LEVELS[release])
            names = names_of(producers)
            left = facts(broker, names)
            check_left(left, producers)
            shutil.copytree(tmp_path / "clean/data", tmp_path / "killed/data")
        gate.close()
        with theirs(tmp_path / stop, version, gate) as broker:
            wait_until_ready(broker, names)
            assert facts(broker, names) == left
            gate.open()
            go_on(broker, producers)
            ended = facts(broker, names)
            check_ended(ended, producers)
            broker.kafka.stop()
    with ours(tmp_path / stop / "data", monkeypatch, release=release) as broker:
        assert facts(broker, names) == ended


def again(producer: Transactional) -> Transactional:
    """Return a producer that knows as much as this one."""
    found = copy(producer)
    found.sequences = dict(producer.sequences)
    return found


class History(NamedTuple):
    """What a Kafka has made of the same play."""

    release: str
    directory: Path  # with what it left when it was killed, and when it was stopped
    producers: dict[str, Transactional]
    left: dict[str, Any]


@pytest.fixture(scope="module", params=[("4.4", "4.4.0"), ("3.9", "3.9.2")], ids=["4.4", "3.9"])
def history(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> History:
    release, version = request.param
    directory = tmp_path_factory.mktemp(f"kafka-{release}")
    with Gate() as gate, theirs(directory / "clean", version, gate) as broker:
        make_topic(broker)
        producers = play(broker, gate.close, level=LEVELS[release])
        left = facts(broker, names_of(producers))
        check_left(left, producers)
        shutil.copytree(directory / "clean/data", directory / "killed/data")
        broker.kafka.stop()
    return History(release, directory, producers, left)


@pytest.mark.parametrize("stop", ["killed", "clean"])
def test_we_go_on_with_kafkas_transactions(
    stop: str, history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    producers = {name: again(producer) for name, producer in history.producers.items()}
    shutil.copytree(history.directory / stop / "data", tmp_path / "data")
    with ours(tmp_path / "data", monkeypatch, release=history.release, is_held=True) as broker:
        assert facts(broker, names_of(producers)) == history.left
        broker.release()
        go_on(broker, producers)
        ended = facts(broker, names_of(producers))
        check_ended(ended, producers)
    with ours(tmp_path / "data", monkeypatch, release=history.release) as broker:
        assert facts(broker, names_of(producers)) == ended


def test_the_same_play_leaves_the_same_files(history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ours(tmp_path, monkeypatch, release=history.release) as broker:
        make_topic(broker)
        play(broker, broker.hold, level=LEVELS[history.release])
    kafkas = history.directory / "clean/data"
    for log in (f"{TOPIC}-0", f"{TOPIC}-1", "__consumer_offsets-0"):
        names = files_of(kafkas / log)
        assert files_of(tmp_path / log) == names
        for name in names:
            assert contents(tmp_path / log / name) == contents(kafkas / log / name), f"{log}/{name}"
    assert transitions(tmp_path / "__transaction_state-0") == transitions(kafkas / "__transaction_state-0")


def test_kafkas_dump_tool_prints_what_ours_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with ours(tmp_path, monkeypatch, release="4.4") as broker:
        make_topic(broker)
        play(broker, broker.hold, level=LEVELS["4.4"])
    monkeypatch.chdir(tmp_path)
    release = kafka.DUMPS[-1]
    for decoder, pattern in (
        ("--transaction-log-decoder", "__transaction_state-0/*.log"),
        ("--offsets-decoder", "__consumer_offsets-0/*.log"),
        ("--print-data-log", f"{TOPIC}-0/*[xtg]"),
    ):
        files = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.glob(pattern))
        arguments = ["--files", ",".join(files), decoder]
        tool = kafka.run(release, release.dump_class, *arguments, cwd=tmp_path)
        assert main(["dump", "--release", release.words, *arguments]) == 0
        printed = capsys.readouterr().out
        assert printed.splitlines() == tool.stdout.splitlines()
        assert [word for word in WORDS[decoder] if word not in printed] == []
