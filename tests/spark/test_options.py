"""Options of a query: what is taken, what is refused, and what is said then."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.spark.option_values import EARLIEST, LATEST, OptionError
from minibroker.spark.options import OPTIONS, parse

PATH = {"path": "data", "subscribe": "orders"}
WIRE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
DOCS = Path(__file__).parents[2] / "docs/spark.md"


def test_defaults_are_those_of_spark() -> None:
    options = parse(PATH)
    assert options.topics == ["orders"]
    assert options.paths == ["data"]
    assert options.is_path
    assert options.starting.offset == EARLIEST
    assert options.ending.offset == LATEST
    assert not options.read_committed
    assert not options.include_headers
    assert options.fail_on_data_loss
    assert options.partitions_min is options.records_max is options.trigger_offsets_max is None
    assert (options.mode, options.end_of_log, options.no_match) == ("fail", "checkpoint", "error")
    assert options.bytes_max == 128 << 20
    assert options.trigger_delay_ms == 15 * 60_000
    assert parse(PATH, streaming=True).starting.offset == LATEST


def test_names_are_taken_in_any_case_as_spark_hands_them_over() -> None:
    options = parse({"PATH": "data", "subscribepattern": "or.*", "FAILONDATALOSS": "FALSE", "includeheaders": "True"})
    assert not options.fail_on_data_loss
    assert options.include_headers
    assert options.wants("orders", 3)
    assert options.wants("xorders", 0)
    assert not options.wants("o", 0)


def test_a_pattern_leaves_kafkas_own_topics_out() -> None:
    options = parse({"path": "data", "subscribePattern": ".*"})
    assert options.wants("__mine", 0)
    assert not options.wants("__consumer_offsets", 0)
    assert parse({"path": "data", "subscribe": "__consumer_offsets"}).wants("__consumer_offsets", 0)


def test_partitions_and_numbers_are_json() -> None:
    options = parse(
        {"path": "data", "assign": '{"a":[0,2],"b":[1]}', "startingOffsets": '{"a":{"0":5,"2":-2},"b":{"1":0}}'}
    )
    assert options.assigned == [("a", 0), ("a", 2), ("b", 1)]
    assert options.starting.offsets == {("a", 0): 5, ("a", 2): EARLIEST, ("b", 1): 0}
    assert options.wants("a", 2)
    assert not options.wants("a", 1)
    options.starting.check_names_all([("a", 0), ("a", 2), ("b", 1)])


def test_one_time_goes_before_times_and_these_before_offsets() -> None:
    told = PATH | {
        "startingOffsets": "earliest",
        "endingOffsetsByTimestamp": '{"orders":{"0":7}}',
        "endingOffsets": "latest",
    }
    options = parse(told | {"startingTimestamp": "-5", "startingOffsetsByTimestamp": "nonsense"})
    assert options.starting.timestamp == -5
    assert options.ending.timestamps == {("orders", 0): 7}


def test_what_brokers_are_told_is_kept() -> None:
    told = WIRE | {
        "kafka.isolation.level": "READ_COMMITTED",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.key.password": "x",
    }
    options = parse(told)
    assert options.read_committed
    assert not options.is_path
    assert options.servers == "localhost:9092"
    assert options.kafka == {"security.protocol": "SSL", "ssl.key.password": "x"}


def test_what_has_no_meaning_for_files_is_taken_all_the_same() -> None:
    parse(
        PATH
        | {
            "kafkaConsumer.pollTimeoutMs": "5",
            "maxOffsetsPerTrigger": "3",
            "groupIdPrefix": "x",
            "maxTriggerDelay": "30s",
        }
    )


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({}, "nothing to read from: set kafka.bootstrap.servers"),
        ({"subscribe": "a", "path": " , "}, "nothing to read from"),
        (PATH | WIRE, "both set"),
        ({"path": "data"}, "no topic is named: set one of subscribe, subscribePattern, assign"),
        (PATH | {"assign": '{"a":[0]}'}, "subscribe and assign are both set"),
        ({"path": "data", "subscribe": " ,"}, "subscribe names no topic"),
        ({"path": "data", "subscribePattern": "  "}, "subscribePattern is empty"),
        ({"path": "data", "subscribePattern": "a["}, "no regular expression"),
        ({"path": "data", "assign": "orders"}, 'assign is no JSON .*write it as {"orders":\\[0,1\\]}'),
        ({"path": "data", "assign": "[]"}, "write it as"),
        ({"path": "data", "assign": "{}"}, "names no partition"),
        ({"path": "data", "assign": '{"a":0}'}, "0 for 'a' makes no sense"),
        ({"path": "data", "assign": '{"a":[-1]}'}, "-1 for 'a' makes no sense"),
        ({"path": "data", "assign": '{"a":[true]}'}, "true for 'a'"),
        ({"path": "data", "assign": '{"a":[0],"a":[1]}'}, "a name comes twice"),
        (PATH | {"startingOfsets": "earliest"}, "no option 'startingOfsets': did you mean startingOffsets?"),
        (PATH | {"isolation.level": "read_committed"}, "did you mean kafka.isolation.level"),
        (PATH | {"kafka.isolation.levl": "read_committed"}, "did you mean kafka.isolation.level"),
        (PATH | {"quux": "1"}, "no option 'quux'; docs/spark.md"),
        (PATH | {"kafka.isolation.level": "committed"}, "read_uncommitted or read_committed"),
        (PATH | {"kafka.auto.offset.reset": "latest"}, "startingOffsets"),
        (PATH | {"kafka.key.deserializer": "x"}, "cannot be set"),
        (PATH | {"kafka.value.deserializer": "x"}, "cannot be set"),
        (PATH | {"kafka.enable.auto.commit": "true"}, "cannot be set"),
        (PATH | {"kafka.interceptor.classes": "x"}, "cannot be set"),
        (PATH | {"startingOffsets": "latest"}, "startingOffsets is latest: a batch would hold nothing"),
        (PATH | {"endingOffsets": "earliest"}, "endingOffsets is earliest"),
        (PATH | {"startingOffsets": '{"orders":{"0":-1}}'}, "startingOffsets is latest for orders-0"),
        (PATH | {"endingOffsets": '{"orders":{"0":-2}}'}, "endingOffsets is earliest for orders-0"),
        (PATH | {"startingOffsets": "eraliest"}, "earliest, latest, or JSON"),
        (PATH | {"startingOffsets": '{"orders":{"0":-3}}'}, "-3 for orders-0 is no offset"),
        (PATH | {"startingOffsets": '{"orders":{"0":1.5}}'}, "makes no sense"),
        (PATH | {"startingOffsets": '{"orders":{"0":"1"}}'}, "makes no sense"),
        (PATH | {"startingOffsets": '{"orders":{"x":1}}'}, "makes no sense"),
        (PATH | {"startingOffsets": '{"orders":{"0":1}'}, "is no JSON"),
        (PATH | {"startingOffsets": '{"orders":[1]}'}, "makes no sense"),
        (PATH | {"startingTimestamp": "yesterday"}, "one number, ms since 1970"),
        (PATH | {"startingOffsetsByTimestamp": "5"}, "write it as"),
        (PATH | {"startingOffsetsByTimestampStrategy": "earliest"}, "error or latest"),
        (PATH | {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"0":4}}'}, "begin at 5 and end"),
        (PATH | {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"1":4}}'}, "orders-0, orders-1"),
        (PATH | {"minPartitions": "0"}, "a number above 0"),
        (PATH | {"minPartitions": "many"}, "a number above 0"),
        (PATH | {"maxRecordsPerPartition": "-1"}, "a number above 0"),
        (PATH | {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "is higher than"),
        (PATH | {"maxTriggerDelay": "soon"}, "a time as 15m"),
        (PATH | {"includeHeaders": "yes"}, "true or false"),
        (PATH | {"mode": "permissive"}, "fail or skip or quarantine"),
        (PATH | {"endOfLog": "end"}, "checkpoint or logEnd"),
        (WIRE | {"kafka.request.timeout.ms": "30s"}, "kafka.request.timeout.ms is '30s': it must be a number from 1"),
        (WIRE | {"kafka.request.timeout.ms": "0"}, "a number from 1"),
        (WIRE | {"kafka.max.partition.fetch.bytes": "1MB"}, "kafka.max.partition.fetch.bytes is '1MB'"),
        (WIRE | {"kafka.max.partition.fetch.bytes": "-5"}, "a number from 0"),
        (WIRE | {"kafka.max.partition.fetch.bytes": "99999999999"}, "a number from 0 to 2147483647"),
        (WIRE | {"kafka.fetch.max.wait.ms": "x"}, "kafka.fetch.max.wait.ms is 'x'"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(told: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        parse(told)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name}: a stream has no end"):
        parse(WIRE | {name: "latest"}, streaming=True)


def test_numbers_must_be_there_for_all_partitions_and_for_no_other() -> None:
    options = parse(PATH | {"startingOffsets": '{"orders":{"0":5}}', "endingTimestamp": "5"})
    options.ending.check_names_all([("orders", 0), ("orders", 1)])
    with pytest.raises(OptionError, match=r"orders-1 must have one; -1 is the latest"):
        options.starting.check_names_all([("orders", 0), ("orders", 1)])
    with pytest.raises(OptionError, match="orders-0 will not be read"):
        options.starting.check_names_all([])


def test_every_option_is_documented_with_its_default() -> None:
    words = DOCS.read_text(encoding="utf-8")
    missing = [f"| `{option.name}` | {option.default} | {option.text} |" for option in OPTIONS]
    assert not [row for row in missing if row not in words]
