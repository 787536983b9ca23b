"""Options of writes to topics: what is refused, and what it says."""

from __future__ import annotations

import pytest

from minibroker.log.compression import GZIP, ZSTD
from minibroker.spark.option_values import OptionError
from minibroker.spark.sink.options import WRITE_OPTIONS, WriteOptions, parse
from minibroker.spark.sink.sender import open_cluster

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def parsed(**told: str) -> WriteOptions:
    return parse(SERVERS | {name.replace("_", "."): value for name, value in told.items()})


def test_defaults_are_those_of_kafkas_producer() -> None:
    found = parsed()
    assert (found.acks, found.idempotent, found.codec, found.delivery_timeout_ms) == (-1, True, 0, 120_000)
    assert found.topic is None
    assert not found.exactly_once
    assert parse(SERVERS | {"exactlyOnce": "true"}).exactly_once
    assert parse(SERVERS, streaming=True).exactly_once
    assert not parse(SERVERS | {"exactlyOnce": "false"}, streaming=True).exactly_once
    assert (found.spool_location, found.transaction_timeout_ms) == ("", None)
    assert parse(SERVERS | {"checkpointLocation": "/points"}).checkpoint == "/points"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"txnAppId": "shop"}, "txnAppId and txnVersion go together"),
        ({"txnVersion": "1"}, "txnAppId and txnVersion go together"),
        ({"txnAppId": "shop", "txnVersion": "1", "exactlyOnce": "false"}, "set that to true, too"),
        ({"txnAppId": "a shop", "txnVersion": "1"}, "it can have letters, digits"),
        ({"txnAppId": "shop", "txnVersion": "-1"}, "it must be a number from 0"),
    ],
)
def test_a_write_that_names_itself_has_to_do_so_wholly(told: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse(SERVERS | {"exactlyOnce": "true"} | told)


def test_a_stream_has_its_name_from_spark() -> None:
    with pytest.raises(OptionError, match="a stream has its id and numbers"):
        parse(SERVERS | {"txnAppId": "shop", "txnVersion": "1"}, streaming=True)


def test_settings_of_the_producer_are_read() -> None:
    found = parsed(
        topic="orders", kafka_acks="1", kafka_compression_type="zstd", **{"kafka.compression.zstd.level": "7"}
    )
    assert (found.topic, found.acks, found.idempotent, found.codec, found.level) == ("orders", 1, False, ZSTD, 7)
    found = parsed(kafka_compression_type="gzip", **{"KAFKA.Batch.Size": "1000", "kafka.max.request.size": "5000"})
    assert (found.codec, found.level, found.batch_bytes, found.record_bytes_max) == (GZIP, None, 1000, 5000)
    assert found.request_bytes == 5000
    # They say how a producer waits, which has no meaning for pieces of rows.
    parsed(kafka_linger_ms="5", kafka_buffer_memory="1000", checkpointLocation="somewhere")


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"topics": "orders"}, "no option 'topics': did you mean topic"),
        ({"subscribe": "orders"}, "for reading; did you mean topic"),
        ({"acks": "all"}, "did you mean kafka.acks"),
        ({"kafka.batch.sizes": "1"}, "did you mean kafka.batch.size"),
        ({"kafka.auto.offset.reset": "latest"}, "no option 'kafka.auto.offset.reset'"),
        ({"kafka.acks": "2"}, "kafka.acks is '2': it can be all, 1 or 0"),
        ({"kafka.acks": "1", "kafka.enable.idempotence": "true"}, "kafka.enable.idempotence needs kafka.acks all"),
        ({"kafka.acks": "1", "exactlyOnce": "true"}, "kafka.acks 1 and exactlyOnce exclude each other"),
        ({"kafka.compression.type": "lzma"}, "it can be none or gzip or snappy or lz4 or zstd"),
        ({"kafka.compression.type": "gzip", "kafka.compression.gzip.level": "17"}, "gzip level 17 is outside"),
        ({"kafka.transactional.id": "x"}, "whose ids begin with transactionalIdPrefix"),
        ({"kafka.key.serializer": "x"}, "kafka.key.serializer cannot be set"),
        ({"kafka.partitioner.class": "x"}, "a column `partition` says where a row goes"),
        ({"kafka.acks": ""}, "kafka.acks is '': it can be all, 1 or 0"),
        ({"kafka.compression.type": " "}, "kafka.compression.type is ' ': it can be none or gzip"),
        ({"kafka.partitioner.ignore.keys": ""}, "kafka.partitioner.ignore.keys is '': it can be true or false"),
        ({"kafka.request.timeout.ms": "0"}, "it must be a number from 1 to 2147483647"),
        ({"kafka.request.timeout.ms": "3000000000"}, "it must be a number from 1 to 2147483647"),
        ({"kafka.batch.size": "many"}, "kafka.batch.size is 'many': it must be a number"),
        ({"includeHeaders": "maybe"}, "includeHeaders is 'maybe'"),
        ({"transactionalIdPrefix": " "}, "transactionalIdPrefix is empty"),
        ({"sinkName": "a.0"}, "sinkName is 'a.0': it can have letters, digits, - and _"),
        ({"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "x"}, "kafka.sasl.mechanism"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_used_is_refused(told: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        open_cluster(parse(SERVERS | told))


NUMBERS = [row for row in WRITE_OPTIONS.rows.values() if row.kind.startswith("number")]


@pytest.mark.parametrize("name", [row.name for row in NUMBERS])
def test_a_number_of_the_producer_is_an_int32_or_blank(name: str) -> None:
    assert vars(parse(SERVERS | {name: " "})) == vars(parse(SERVERS))
    parse(SERVERS | {name: "2147483647"})
    for value in ("2147483648", "99999999999", "-1", "1.5", "x"):
        with pytest.raises(OptionError, match=rf"{name} is '{value}': it must be a number from \d to 2147483647"):
            parse(SERVERS | {name: value})


def test_brokers_must_be_named() -> None:
    with pytest.raises(OptionError, match=r"nowhere to write to: set kafka\.bootstrap\.servers"):
        parse({"topic": "orders"})
