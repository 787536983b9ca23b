"""What a cluster leaves on its disks: whose directories they are, and the same bytes on every replica."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from minibroker import Broker, Cluster
from minibroker.client import Cluster as Client
from minibroker.client import Producer
from minibroker.embedded import BrokerError
from minibroker.log.storage import OsStorage
from minibroker.tools.verify.log_directory import VerifiedCounts, verify_directory
from tests.interop import kafka

PARTITIONS = 2
RECORDS = 300


def write(directory: Path) -> dict[str, int]:
    """Write with several leaders in turn, one of them killed; return the high watermark of each partition."""
    settings = {"log.segment.bytes": 1 << 20}  # the smallest there may be; each partition gets two of them
    with Cluster(data_dir=directory, topics=f"orders:{PARTITIONS}", config=settings) as cluster:
        for begin in range(0, RECORDS, 100):
            asyncio.run(produce(cluster.bootstrap_servers, begin, begin + 100))
            leader = cluster.leader("orders")
            cluster.kill(leader)
            cluster.wait_leader("orders", other_than=leader)
            cluster.start_broker(leader)
            cluster.wait_in_sync()
        return {
            f"orders-{row.partition}": row.high_watermark for row in cluster.describe("orders") if row.role == "leader"
        }


async def produce(bootstrap: str, begin: int, end: int) -> None:
    async with Client(bootstrap) as client, Producer(client, idempotent=True) as producer:
        for number in range(begin, end):
            await producer.send("orders", b"record %d %s" % (number, b"." * 10_000), partition=number % PARTITIONS)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    directory = tmp_path_factory.mktemp("cluster")
    return directory, write(directory)


def test_a_directory_of_a_cluster_is_refused_to_a_broker_on_its_own(tmp_path: Path) -> None:
    Cluster(data_dir=tmp_path).start().stop()
    with pytest.raises(BrokerError, match="holds the data of a cluster, whose brokers have theirs below it"):
        Broker(data_dir=tmp_path).start()
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [
        *("broker-1", "broker-2", "broker-3", "controller")
    ]
    Cluster(data_dir=tmp_path).start().stop()


def test_a_directory_of_a_broker_on_its_own_is_refused_to_a_cluster(tmp_path: Path) -> None:
    Broker(data_dir=tmp_path).start().stop()
    with pytest.raises(BrokerError, match="holds the data of a broker on its own"):
        Cluster(data_dir=tmp_path).start()
    assert not (tmp_path / "controller").exists()


def test_a_cluster_does_not_come_back_with_fewer_brokers_but_with_more(tmp_path: Path) -> None:
    Cluster(3, data_dir=tmp_path, topics="orders").start().stop()
    with pytest.raises(BrokerError, match="holds the data of brokers 1, 2, 3: start them and perhaps more, not 1, 2"):
        Cluster(2, data_dir=tmp_path).start()
    with pytest.raises(BrokerError, match=r"holds the data of brokers 1, 2, 3: .* not 0, 1, 2"):
        Cluster(3, first_id=0, data_dir=tmp_path).start()
    with Cluster(4, data_dir=tmp_path) as cluster:
        cluster.reassign("orders", 0, [4, 1])
        assert cluster.wait_isr("orders", brokers=[1, 4])


def test_another_cluster_id_is_refused(tmp_path: Path) -> None:
    Cluster(1, data_dir=tmp_path, cluster_id="AAAAAAAAAAAAAAAAAAAAAQ").start().stop()
    with pytest.raises(BrokerError, match="belongs to cluster AAAAAAAAAAAAAAAAAAAAAQ"):
        Cluster(1, data_dir=tmp_path, cluster_id="AAAAAAAAAAAAAAAAAAAAAg").start()


def test_every_replica_holds_the_same_bytes(written: tuple[Path, dict[str, int]]) -> None:
    directory, ends = written
    assert sum(ends.values()) == RECORDS
    for name in ends:
        copies = []
        for broker in (1, 2, 3):
            logs = sorted((directory / f"broker-{broker}" / name).glob("*.log"))
            assert len(logs) == 2
            copies.append(b"".join(path.read_bytes() for path in logs))
        assert len(copies[0]) > 10_000
        assert copies == [copies[0]] * 3
        epochs = {
            (directory / f"broker-{broker}" / name / "leader-epoch-checkpoint").read_text() for broker in (1, 2, 3)
        }
        assert len(epochs) == 1


def test_our_own_verification_finds_nothing_wrong(written: tuple[Path, dict[str, int]]) -> None:
    for broker in (1, 2, 3):
        verified = VerifiedCounts()
        problems = verify_directory(OsStorage(str(written[0] / f"broker-{broker}")), verified)
        assert [str(problem) for problem in problems] == []
        assert verified.logs == PARTITIONS


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.parametrize("release", kafka.DUMPS, ids=lambda release: release.version)
def test_kafkas_dump_tool_reads_every_replica_and_finds_it_sane(
    written: tuple[Path, dict[str, int]], release: kafka.Release
) -> None:
    directory, ends = written
    files = [
        path.relative_to(directory).as_posix()
        for suffix in ("log", "index", "timeindex")
        for path in sorted(directory.glob(f"broker-*/orders-*/*.{suffix}"))
    ]
    told = kafka.run(
        release, release.dump_class, "--files", ",".join(files), "--deep-iteration", "--print-data-log", cwd=directory
    )
    assert told.returncode == 0, told.stderr
    values = [line.rpartition("payload: ")[2] for line in told.stdout.splitlines() if "payload: record " in line]
    assert len(values) == 3 * sum(ends.values())
    assert len(set(values)) == RECORDS
    assert "isvalid: false" not in told.stdout.lower()
    sane = kafka.run(release, release.dump_class, "--files", ",".join(files), "--index-sanity-check", cwd=directory)
    assert sane.returncode == 0, sane.stderr
    indexes = [path for path in files if path.endswith("index")]
    assert sum(line.endswith(("passed sanity check.", "empty.")) for line in sane.stdout.splitlines()) == len(indexes)
