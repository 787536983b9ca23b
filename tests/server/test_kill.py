"""kill -9 in the middle of load, again and again: what was acknowledged is there, once, and the start is quick.

Only the process dies: what it wrote is in the machine's page cache, flushed or not. Loss of power is the log's tests'.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from minibroker.log.batches import batches
from tests.server.plain import PlainClient
from tests.server.running import batch, fetch, produce
from tests.server.subprocesses import BrokerProcess, broker_process

KILLS = 50
PARTITIONS = 3
START_SECONDS_MAX = 5.0  # asserted; the aim is 1, and figures are printed

Acknowledged = dict[tuple[int, int], bytes]  # partition, offset -> value


class Producer(threading.Thread):
    """Sends batches of unique values until the broker dies, several at a time; it never tries again."""

    def __init__(self, address: tuple[str, int], numbers: Iterator[int], chance: Random):
        super().__init__()
        self.address = address
        self.numbers = numbers
        self.chance = chance
        self.acknowledged: Acknowledged = {}
        self.refused: list[int] = []

    def run(self) -> None:
        client = PlainClient(self.address)
        try:
            while True:
                sent = []
                for _ in range(self.chance.choice((1, 4, 16))):
                    partition = self.chance.randrange(PARTITIONS)
                    count = self.chance.choice((1, 1, 10, 200))
                    values = [b"%d:" % next(self.numbers) + bytes(self.chance.randrange(300)) for _ in range(count)]
                    client.send(produce("t", batch(*values), partition=partition), 9)
                    sent.append((partition, values))
                for partition, values in sent:
                    answer = client.receive(0, 9).responses[0].partition_responses[0]
                    if answer.error_code:
                        self.refused.append(answer.error_code)
                    for index, value in enumerate(values):
                        self.acknowledged[partition, answer.base_offset + index] = value
        except ConnectionError:
            pass
        finally:
            client.close()


def stored(broker: BrokerProcess, partition: int, offset: int) -> dict[int, bytes]:
    """Read a partition from an offset to its end."""
    client = PlainClient(broker.address)
    found: dict[int, bytes] = {}
    while True:
        request = fetch("t", offset)
        request.topics[0].partitions[0].partition = partition
        answer = client.ask(request, 12).responses[0].partitions[0]
        assert answer.error_code == 0, answer
        if not answer.records:
            break
        for each in batches(answer.records):
            each.check_crc()
            for record in each.records():
                if record.offset >= offset:
                    assert record.offset not in found
                    found[record.offset] = bytes(record.value or b"")
            offset = each.next_offset
    client.close()
    return found


@pytest.mark.slow
def test_what_was_acknowledged_survives_kill_9_and_nothing_is_there_twice(tmp_path: Path) -> None:
    chance = Random(9)
    numbers = itertools.count()
    arguments = ("--port", "0", "--data-dir", str(tmp_path / "data"), "--quiet")
    expected: Acknowledged = {}
    seen: list[dict[int, bytes]] = [{} for _ in range(PARTITIONS)]
    seconds = []
    for turn in range(KILLS):
        with broker_process(*arguments) as broker:
            first = PlainClient(broker.address)
            if turn == 0:
                first.create("t", PARTITIONS)
            assert first.topics() == ["t"]
            first.close()
            if turn:
                seconds.append(broker.start_seconds)
            for partition, known in enumerate(seen):
                begin = len(known)
                known.update(stored(broker, partition, begin))
                assert list(known) == list(range(len(known))), "offsets are missing"
                for (of, offset), value in expected.items():
                    assert of != partition or known.get(offset) == value, f"{of}-{offset} is lost or changed"
            expected = {}
            producers = [Producer(broker.address, numbers, Random(chance.random())) for _ in range(2)]
            for each in producers:
                each.start()
            ended = threading.Event()
            ended.wait(chance.uniform(0.02, 0.25))  # how long the load lasts; nothing is waited for
            broker.kill()
            for each in producers:
                each.join()
                assert not each.refused
                expected.update(each.acknowledged)
    values = [value.partition(b":")[0] for known in seen for value in known.values()]
    assert len(values) == len(set(values)), "a record is there twice"
    assert values
    seconds.sort()
    print(
        f"\n{KILLS} kills, {len(values)} records kept; start to the address line:"
        f" median {seconds[len(seconds) // 2]:.3f} s, longest {seconds[-1]:.3f} s"
    )
    assert seconds[-1] < START_SECONDS_MAX


def test_sigterm_leaves_the_clean_mark_with_clients_connected(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with broker_process("--port", "0", "--data-dir", str(data), "--quiet") as broker:
        client = PlainClient(broker.address)
        client.create("t", 1)
        client.ask(produce("t", batch(b"kept")), 9)
        assert not (data / ".kafka_cleanshutdown").exists()
        client.send(fetch("t", 1, wait_ms=600_000), 12)
        half = PlainClient(broker.address)
        half.socket.sendall(b"\0\0\1\0half")
        assert broker.stop() == 0
        assert (data / ".kafka_cleanshutdown").exists()
        with pytest.raises(ConnectionError):
            client.receive(1, 12)
        client.close()
        half.close()
        port = broker.address[1]
    with broker_process("--port", str(port), "--data-dir", str(data), "--quiet") as again:
        assert again.address[1] == port
        assert list(stored(again, 0, 0).values()) == [b"kept"]
        assert again.stop() == 0
