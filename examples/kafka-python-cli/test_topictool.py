"""The command line on a broker of its own. The fixture is `kafka_broker`: `kafka` is what the tool imports."""

import io
import time

import pytest
from topictool import main

pytestmark = pytest.mark.kafka(topics=["orders:2"])


@pytest.fixture
def run(kafka_broker, capsys, monkeypatch):
    def run(*words, given=""):
        monkeypatch.setattr("sys.stdin", io.StringIO(given))
        main(["--bootstrap-server", kafka_broker.bootstrap_servers, *words])
        return capsys.readouterr().out.splitlines()

    return run


def test_lines_become_records(run, kafka_broker):
    assert run("send", "orders", given="1\ttea\ncoffee\n") == ["2 records"]
    kafka_broker.expect("orders", key="1", value="tea")
    kafka_broker.expect("orders", key=None, value="coffee")


def test_a_line_that_the_broker_cannot_take_yet_is_sent_again(run, kafka_broker):
    with kafka_broker.faults.add(api="Produce", error="NOT_ENOUGH_REPLICAS", times=1) as rule:
        assert run("send", "orders", given="tea\n") == ["1 records"]
        assert rule.strikes() == 1
    kafka_broker.expect("orders", 1, value="tea")


def test_all_records_are_read(run, kafka_broker):
    kafka_broker.produce("orders", "tea", key="1", partition=0)
    kafka_broker.produce("orders", "coffee", partition=1)
    assert sorted(run("read", "orders")) == ["0\t0\t1\ttea", "1\t0\t\tcoffee"]


def test_only_the_last_hour_is_read(run, kafka_broker):
    now = int(time.time() * 1000)
    kafka_broker.produce("orders", "yesterday", partition=0, timestamp=now - 86_400_000)
    kafka_broker.produce("orders", "just now", partition=0, timestamp=now)
    assert run("read", "orders", "--since", "1h") == ["0\t1\t\tjust now"]


def test_the_lag_of_a_group_is_told(run, kafka_broker):
    assert run("lag", "billing", "orders") == ["0\tnothing committed", "1\tnothing committed"]


def test_a_topic_that_is_not_there_is_a_sentence(run):
    with pytest.raises(SystemExit, match="there is no topic ordres"):
        run("read", "ordres")
