"""`slice` in Spark: the same keys in all topics, masked before anything is written, moved in time, in three forms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minibroker import Broker
from minibroker.log.batches import crc32c
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from tests.spark.jobs.test_loading import rows
from tests.spark.logs import START_MS, open_at
from tests.spark.session import Session

pytestmark = [pytest.mark.slow, pytest.mark.interop]
CUSTOMERS = 60


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Customers by key, and three orders of each, which name them in their values."""
    root = tmp_path_factory.mktemp("data")
    for name, count, record in (("users-0", CUSTOMERS, user), ("orders-0", 90, order), ("orders-1", 90, order)):
        log = open_at(root, name, segment_bytes=100_000)
        shift = 90 if name == "orders-1" else 0
        records = [record(offset + shift)._replace(offset=offset) for offset in range(count)]
        log.append_as_follower(build_batch(2, records, base_offset=0), now_ms=0)
        log.close()
    return root


def user(number: int) -> Record:
    value = json.dumps({"email": f"user{number}@shop.de", "id": number}).encode()
    return Record(b"%d" % number, value, (("trace", b"t"),), START_MS + number)


def order(number: int) -> Record:
    value = json.dumps({"customer": {"id": number % CUSTOMERS}, "total": 1.50}).encode()
    return Record(b"o%d" % number, value, (), START_MS + 1000 + number)


def cut(spark: Session, *words: object) -> Any:
    told = spark.call("tests.spark.jobs.loads:cut", words=[str(word) for word in words])
    assert "error" not in told, told["error"]
    return told


def refused(spark: Session, *words: object) -> str:
    return str(spark.call("tests.spark.jobs.loads:cut", words=[str(word) for word in words])["error"])


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_customer_is_there_with_all_orders_or_not_at_all(spark: Session, data: Path, tmp_path: Path) -> None:
    words = ("--path", data, "-t", "users,orders", "--by", "orders:value.customer.id", "--to-files", tmp_path)
    told = cut(spark, *words, "--sample", "0.3")
    users = {record["key"] for record in lines(tmp_path / "users.jsonl")}
    orders = [json.loads(record["payload"])["customer"]["id"] for record in lines(tmp_path / "orders.jsonl")]
    assert 8 < len(users) < 28
    assert {str(customer) for customer in orders} == users
    assert len(orders) == 3 * len(users)
    assert told["records"] == 4 * len(users)
    assert (told["about nothing"], told["problems"]) == (0, [])
    assert {path.name for path in tmp_path.iterdir()} == {"users.jsonl", "orders.jsonl"}
    cut(spark, *words, "--only", "7", "--only", "9")
    assert {record["key"] for record in lines(tmp_path / "users.jsonl")} == {"7", "9"}


def test_what_is_masked_can_still_be_joined_and_is_nowhere(spark: Session, data: Path, tmp_path: Path) -> None:
    words = ["--path", data, "-t", "users,orders", "--salt", "x", "--shift-to", "2030-01-01", "--to-files", tmp_path]
    for mask in ("users:key=hash", "orders:value.customer.id=hash", "value.email=fake", "header.trace=redact"):
        words += ["--mask", mask]
    told = cut(spark, *words)
    users = lines(tmp_path / "users.jsonl")
    orders = lines(tmp_path / "orders.jsonl")
    assert (told["records"], len(users), len(orders)) == (240, 60, 180)
    assert {record["key"] for record in users} == {
        str(json.loads(record["payload"])["customer"]["id"]) for record in orders
    }
    assert "user" not in (tmp_path / "users.jsonl").read_text().replace('"topic":"users"', "")
    assert users[0]["headers"] == ["trace", "***"]
    assert [list(row.values()) for row in told["masks"]] == [
        ["users:key", 60], ["orders:value.customer.id", 180], ["value.email", 60], ["header.trace", 60],
    ]  # fmt: skip
    assert '"total":1.5' in orders[0]["payload"]
    assert [record["offset"] for record in users] == list(range(60)), "in their order"
    assert max(record["ts"] for record in orders) == 1_893_456_000_000
    assert orders[1]["ts"] - orders[0]["ts"] == 1
    assert "--mask value.mail met nothing in 240 records" in refused(spark, *words, "--mask", "value.mail=hash")
    assert "needs a secret" in refused(spark, *words[:4], "--mask", "key=hash", "--to-files", tmp_path)


def test_nothing_reaches_a_disk_before_it_is_masked(spark: Session, tmp_path: Path) -> None:
    for name, secret in (("orders-0", b"anna-of-the-disk"), ("users-0", b"bert-of-the-disk")):
        record = Record(secret, b'{"email":"%b"}' % secret, (("mail", secret),), START_MS)
        log = open_at(tmp_path / "data", name)
        records = [record._replace(offset=offset) for offset in range(50)]
        log.append_as_follower(build_batch(2, records, base_offset=0), now_ms=0)
        log.close()
    words = ("--path", tmp_path / "data", "--records", 20, "--salt", "s")
    cut(spark, *words, "-t", "orders", "--to-files", tmp_path / "open")
    assert spark.call("tests.spark.jobs.loads:is_on_disk", text="anna-of-the-disk"), "of what is not masked"
    masks = ("--mask", "key=hash", "--mask", "value.email=hash", "--mask", "header.mail=hash")
    told = cut(spark, *words, "-t", "users", *masks, "--to-files", tmp_path / "masked")
    assert told["records"] == 20
    assert [record["offset"] for record in lines(tmp_path / "masked" / "users.jsonl")] == list(range(30, 50))
    assert not spark.call("tests.spark.jobs.loads:is_on_disk", text="bert-of-the-disk")


def test_a_slice_becomes_a_directory_and_topics(spark: Session, data: Path, tmp_path: Path) -> None:
    words = ("--path", data, "-t", "orders,users", "--records", 5, "--shift=-1h")
    told = cut(spark, *words, "--prefix", "test-", "--to-path", tmp_path / "data")
    assert [list(row.values()) for row in told["partitions"]] == [
        ["test-orders", 0, 5], ["test-orders", 1, 5], ["test-users", 0, 5],
    ]  # fmt: skip
    found = rows(spark, tmp_path / "data", "test-orders,test-users")
    assert [row[3] for row in found] == [b"o%d" % n for n in (*range(85, 90), *range(175, 180))] + [
        b"%d" % n for n in range(55, 60)
    ]
    assert found[0][5] == START_MS + 1000 + 85 - 3_600_000
    with Broker(topics=["orders:2", "users"]) as broker:
        cut(spark, *words, "--to-bootstrap-server", broker.bootstrap_servers)
        assert [record.key for record in broker.records("users")] == [b"%d" % n for n in range(55, 60)]
        records = [(record.partition, record.key) for record in broker.records("orders")]
        assert sorted(records) == [(row[1], row[3]) for row in found[:10]]
        source = ("--bootstrap-server", broker.bootstrap_servers, "-t", "orders")
        same = refused(spark, *source, "--to-bootstrap-server", broker.bootstrap_servers)
        assert "the slice would go into the topics that it is taken of" in same


def test_a_topic_keeps_its_partitions_though_the_slice_has_nothing_of_them(
    spark: Session, data: Path, tmp_path: Path
) -> None:
    told = cut(spark, "--path", data, "-t", "orders", "--only", "o5", "--to-path", tmp_path)
    assert [list(row.values()) for row in told["partitions"]] == [["orders", 0, 1]]
    assert {path.name for path in tmp_path.iterdir()} >= {"orders-0", "orders-1"}
    assert told["notes"] == ["topics made here keep their records: retention.ms=-1"]


def test_what_is_left_out_or_cannot_be_read_is_a_problem(spark: Session, tmp_path: Path) -> None:
    log = open_at(tmp_path / "data", "orders-0")
    for offset, value in enumerate((b'{"id":1}', b"no JSON", b'{"other":2}', b'{"id":1}')):
        record = Record(b"k%d" % offset, value, (), START_MS)
        log.append_as_follower(build_batch(2, [record], base_offset=offset), now_ms=0)
    packed = bytearray(build_batch(2, [Record(b"k", b"{}", (), START_MS)], base_offset=4, codec=4))
    packed[61:] = bytes(len(packed) - 61)  # no zstd, with a checksum that is right
    packed[17:21] = crc32c(packed[21:]).to_bytes(4, "big")
    log.append_as_follower(bytes(packed), now_ms=0)
    log.close()
    segment = tmp_path / "data" / "orders-0" / f"{0:020}.log"
    damaged = bytearray(segment.read_bytes())
    damaged[75] ^= 1  # in the first batch: what is broken behind all others is no part of the log
    segment.write_bytes(damaged)
    words = ("--path", tmp_path / "data", "-t", "orders", "--option", "mode=skip", "--to-files", tmp_path / "files")
    told = cut(spark, *words, "--by", "value.id", "--mask", "value.id=redact")
    assert (told["records"], told["about nothing"], told["masked as a whole"]) == (3, 2, 1)
    broken, whole = told["problems"]
    assert broken.startswith("2 broken batches were left out, as orders-0, offsets 0 to 0: ")
    assert whole == (
        "1 records have keys or values of which a mask cannot tell what to leave: they are masked as a whole"
    )
    lost = ("--option", "failOnDataLoss=false", "--ending-offsets", '{"orders":{"0":9}}')
    assert cut(spark, *words, *lost)["problems"][0].startswith("data loss, endingOffsets: orders-0 ends at 5")
    told = cut(spark, *words, "--only", "nobody")
    assert told["problems"][1:] == ["nothing was found to take"]


def test_what_makes_no_sense_is_refused(spark: Session, data: Path, tmp_path: Path) -> None:
    source = ("--path", data, "-t", "users")
    to = ("--to-files", tmp_path)
    for words, told in (
        ((), "say where the slice goes"),
        (("--sample", "0", *to), "--sample is 0.0: it must be above 0"),
        (("--by", "key", "--by", "value.id", *to), "sampled by one thing only"),
        (("--by", "value.idd", *to), "--by value.idd met nothing in 60 records, so nothing was written"),
        (("--by", "orders:key", *to), "--by orders:key met nothing in 60 records"),
        (("--shift", "1h", "--shift-to", "now", *to), "--shift and --shift-to are both there"),
        (("--shift-to", "soon", *to), "--shift-to soon: write now"),
        (("--records", "0", *to), "--records is 0"),
        (("--prefix", "../evil-", *to), "--prefix ../evil-: Topic name is invalid: '../evil-t' contains"),
    ):
        assert told in refused(spark, *source, *words), words
    (tmp_path / "file").touch()
    told = refused(spark, *source, "--to-files", tmp_path / "file")
    assert told.startswith(f"KAFKA_STORAGE_ERROR: write {tmp_path}/file/users.jsonl: ")
