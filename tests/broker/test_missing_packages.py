"""Packages that are not installed: requests and commands end with Kafka's error, and one sentence to people."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from minibroker.broker.handlers.produce import AT_ONCE_MAX
from minibroker.cli import main
from minibroker.errors import Error, ProtocolError, dependency_missing
from minibroker.groups.patterns import compiled
from minibroker.groups.topics import _topic_hash
from minibroker.log.compression import ZSTD
from tests.broker.handlers.members import beat, coordinator
from tests.broker.handlers.test_produce import batch, request, rows_of
from tests.broker.virtual_broker import VirtualBroker, virtual_broker

Forget = Callable[[str], None]


def said_of(broker: VirtualBroker, module: str) -> list[str]:
    return [line for line in broker.said if f"module {module} is not installed" in line]


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Forget:
    """Let a module be missing."""

    def forget(module: str) -> None:
        for name in [each for each in sys.modules if each.partition(".")[0] == module]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, module, None)
        compiled.cache_clear()
        _topic_hash.cache_clear()

    return forget


@pytest.mark.parametrize(
    ("module", "asked"),
    [
        ("xxhash", {}),
        ("re2", {"subscribed_topic_names": None, "subscribed_topic_regex": "orders.*"}),
    ],
    ids=["xxhash", "re2"],
)
def test_a_member_is_told_of_a_failure_each_time(without: Forget, module: str, asked: dict[str, object]) -> None:
    with coordinator() as broker:
        broker.run(broker.node.create_topic, "orders", 1)
        without(module)
        for _ in range(3):
            answer = beat(broker, 0, **asked)
            assert (answer.error_code, answer.error_message) == (Error.UNKNOWN_SERVER_ERROR, said_of(broker, module)[0])
        assert len(said_of(broker, module)) == 1


@pytest.mark.parametrize("count", [1, AT_ONCE_MAX + 20], ids=["at once", "in shares"])
def test_a_producer_is_told_of_a_failure_and_people_once(without: Forget, count: int) -> None:
    with virtual_broker() as broker:
        broker.run(broker.node.create_topic, "t", count)
        plain = dict.fromkeys(range(count), batch(b"x" * 100))
        packed = request(("t", {**plain, count - 1: batch(b"x" * 100, codec=ZSTD)}))
        unanswered = request(("t", {0: batch(b"x" * 100, codec=ZSTD)}), acks=0)
        without("zstandard")
        for _ in range(2):
            rows = rows_of(broker.ask(packed, 9))
            assert {row.error_code for row in rows.values()} == {Error.UNKNOWN_SERVER_ERROR}
        assert len(rows) == count
        with pytest.raises(ProtocolError, match="zstandard is not installed"):  # which closes the connection, as Kafka
            broker.ask(unanswered, 9)
        assert len(said_of(broker, "zstandard")) == 1
        assert {row.error_code for row in rows_of(broker.ask(request(("t", {0: batch(b"x")})), 9)).values()} == {0}


def test_a_command_says_what_is_not_installed(without: Forget, capsys: pytest.CaptureFixture[str]) -> None:
    without("re2")
    assert main(["groups", "--validate-regex", "orders.*"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("minibroker: the package of the module re2 is not installed")
    assert "pip install" in line


def test_a_module_of_ours_that_is_not_there_stays_a_mistake() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such"):
        dependency_missing(ModuleNotFoundError("no_such", name="minibroker.no_such"))
