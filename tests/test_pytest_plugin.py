"""The pytest plugin: tests of others, run in a pytest of their own."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow

THREE_LINES = """
    def test_an_order_arrives(kafka):
        kafka.create_topic("orders")
        assert kafka.topics() == {"orders": 1}
"""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "error::ResourceWarning", *arguments)


def test_a_test_in_three_lines_works(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(THREE_LINES)
    run(pytester).assert_outcomes(passed=1)


def test_every_test_has_a_broker_of_its_own_and_every_worker_a_session(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import os
        import pytest

        @pytest.mark.parametrize("number", range(6))
        def test_alone(kafka, kafka_session, kafka_topic, number):
            assert kafka.topics() == {}
            kafka.create_topic("orders")
            assert list(kafka_session.topics()) == [kafka_topic]
            assert kafka.bootstrap_servers != kafka_session.bootstrap_servers
            with open(f"{os.environ['PYTEST_XDIST_WORKER']}.txt", "a") as file:
                print(kafka_session.bootstrap_servers, file=file)
        """)
    run(pytester, "-n", "2").assert_outcomes(passed=6)
    sessions = [set(path.read_text().splitlines()) for path in pytester.path.glob("gw*.txt")]
    assert all(len(addresses) == 1 for addresses in sessions)
    assert len(set().union(*sessions)) == len(sessions)


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_tests_with_a_loop_of_their_own_use_it(pytester: pytest.Pytester, mode: str) -> None:
    pytester.makepyfile("""
        import pytest
        from minibroker import Broker
        from minibroker.client import Cluster, Producer

        @pytest.mark.asyncio
        async def test_waiting(kafka, kafka_topic, kafka_session):
            for broker, topic in ((kafka, "orders"), (kafka_session, kafka_topic)):
                async with Cluster(broker.bootstrap_servers) as cluster, Producer(cluster) as producer:
                    await producer.send(topic, b"hello")
                assert [record.value for record in await broker.await_records(topic, 1)] == [b"hello"]
                assert broker.records(topic)
        """)
    run(pytester, "-o", f"asyncio_mode={mode}", "-o", "asyncio_default_fixture_loop_scope=function").assert_outcomes(
        passed=1
    )


def test_a_marker_and_a_fixture_hold_the_arguments(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import pytest

        @pytest.fixture(scope="session")
        def kafka_session_options():
            return {"topics": "shared:2"}
        """)
    pytester.makepyfile("""
        import pytest

        pytestmark = pytest.mark.kafka(topics=["a"], num_partitions=5)

        def test_of_the_module(kafka, kafka_session):
            assert kafka.topics() == {"a": 5}
            assert kafka_session.topics() == {"shared": 2}

        @pytest.mark.kafka(topics=["b"])
        def test_of_its_own(kafka):
            assert kafka.topics() == {"b": 5}
        """)
    run(pytester, "--strict-markers").assert_outcomes(passed=2)


def test_a_cluster_of_its_own_can_be_had(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        def test_three(minibroker_cluster):
            minibroker_cluster.create_topic("orders")
            minibroker_cluster.kill(1)
            assert minibroker_cluster.wait_leader("orders", other_than=1) in (2, 3)

        @pytest.mark.minibroker_cluster(brokers=2, topics=["a"])
        def test_two(minibroker_cluster):
            assert sorted(minibroker_cluster.isr("a")) == [1, 2]
        """)
    run(pytester, "--strict-markers").assert_outcomes(passed=2)


def test_a_plugin_that_nobody_uses_imports_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys

        def test_nothing():
            assert sorted(name for name in sys.modules if name.startswith("minibroker")) == [
                "minibroker", "minibroker.pytest_plugin"
            ]
        """)
    run(pytester, "-p", "no:asyncio").assert_outcomes(passed=1)


def test_importing_the_plugin_imports_pytest_and_no_more() -> None:
    program = "import sys, pytest; old = {*sys.modules}; import minibroker.pytest_plugin; print({*sys.modules} - old)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(ast.literal_eval(done.stdout)) == {"minibroker", "minibroker.pytest_plugin"}


def test_parameters_are_arguments_or_a_release(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        from minibroker.broker.releases import release_named

        @pytest.mark.parametrize("kafka", ["2.8", {"as_version": "3.9", "num_partitions": 3}, {}], indirect=True)
        @pytest.mark.kafka(num_partitions=2)
        def test_versions(kafka, request):
            start = kafka._start
            param = request.node.callspec.params["kafka"]
            wanted = param if isinstance(param, str) else param.get("as_version")
            assert start.as_version == wanted
            assert start.settings["num.partitions"] == ("3" if "num_partitions" in param else "2")

        @pytest.mark.parametrize("minibroker_cluster", [{"brokers": 1}, {"brokers": 2}], indirect=True)
        def test_sizes(minibroker_cluster, kafka_cluster, request):
            assert minibroker_cluster is kafka_cluster
            assert len(kafka_cluster.states()) - 1 == request.node.callspec.params["minibroker_cluster"]["brokers"]

        @pytest.mark.parametrize("kafka_session", ["2.8", "3.9"], indirect=True)
        def test_sessions(kafka_session, kafka_topic, request):
            assert kafka_session._start.as_version == request.node.callspec.params["kafka_session"]
        """)
    run(pytester).assert_outcomes(passed=7)


@pytest.mark.parametrize(
    ("line", "test", "words"),
    [
        ("parametrize('kafka', [28], indirect=True)", "kafka", "*a release such as '2.8', or a dict*not 28*"),
        ("parametrize('kafka', ['28'], indirect=True)", "kafka", "*is no release*"),
        ("parametrize('kafka_topic', ['orders'], indirect=True)", "kafka_topic", "*kafka_topic takes no parameters*"),
        ("kafka('2.8')", "kafka", "*arguments have names*"),
        ("kafka(topic='orders')", "kafka", "*did you mean topics*"),
        ("kafka(brokers=3)", "kafka", "*the fixture minibroker_cluster*"),
        ("kafka(clock='frozen')", "kafka", "*is no clock*"),
        ("kafka(topics='orders')", "minibroker_cluster", "*pytest.mark.kafka is for tests with the fixture kafka*"),
        ("minibroker_cluster(broker=3)", "kafka_cluster", "*did you mean brokers*"),
    ],
)
def test_nothing_that_is_said_is_passed_over(pytester: pytest.Pytester, line: str, test: str, words: str) -> None:
    pytester.makepyfile(f"""
        import pytest

        @pytest.mark.{line}
        def test_it({test}):
            pass
        """)
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([words])


def test_every_test_begins_at_the_time_of_the_machine(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import time
        import pytest
        from minibroker.clock.steered import SteeredClock

        CLOCK = SteeredClock()
        SET = SteeredClock(1000)

        @pytest.mark.parametrize("number", range(2))
        @pytest.mark.parametrize("form", ["none", "word"])
        def test_by_default(request, number, form):
            request.applymarker(pytest.mark.kafka(**({} if form == "none" else {"clock": "steered"})))
            kafka = request.getfixturevalue("kafka")
            assert abs(kafka.clock.now_ms() / 1000 - time.time()) < 60
            kafka.freeze()
            kafka.advance("7d")

        @pytest.mark.kafka(clock=CLOCK)
        @pytest.mark.parametrize("number", range(2))
        def test_in_the_hand(kafka, number):
            assert kafka.clock is CLOCK and not CLOCK.is_frozen
            assert abs(CLOCK.now_ms() / 1000 - time.time()) < 60
            kafka.freeze()
            kafka.advance("7d")
            kafka.wait_records

        @pytest.mark.minibroker_cluster(brokers=1, clock=SET)
        @pytest.mark.parametrize("number", range(2))
        def test_of_a_cluster(kafka_cluster, number):
            assert SET.now_ms() < 60_000
            kafka_cluster.freeze()
            kafka_cluster.advance("7d")
        """)
    run(pytester).assert_outcomes(passed=8)


def test_a_file_that_imports_kafka_python_is_told_of_the_other_name(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        def test_hidden(kafka, kafka_broker):
            assert kafka is kafka_broker
            with pytest.raises(AttributeError, match="fixture kafka_broker.*kafka import KafkaProducer"):
                kafka.KafkaProducer
            with pytest.raises(AttributeError, match="no attribute 'produced'$"):
                kafka.produced
            assert not hasattr(kafka, "errors")
        """)
    run(pytester).assert_outcomes(passed=1)


def test_a_test_that_fails_shows_its_own_line_and_what_there_was(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_alone(kafka):
            kafka.produce("orders", {"id": 1})
            kafka.expect("orders", value={"id": 2}, within=1)

        def test_many(minibroker_cluster):
            minibroker_cluster.produce("bills", "b")
            minibroker_cluster.wait_records("bills", 2, timeout=0.01)

        def test_stopped(kafka):
            kafka.stop()
            assert False

        def test_passes(kafka):
            kafka.produce("quiet", "q")
        """)
    found = run(pytester)
    found.assert_outcomes(failed=3, passed=1)
    found.stdout.fnmatch_lines(
        [
            ">       kafka.expect(*",
            "E       AssertionError: orders has 0 of 1 records with value {'id': 2} within 0.001 s",
            "E       this came instead:",
            'E         [[]0[]] 0  {"id":1}   (value .id is 1)',
            "*test_a_test_that_fails*:3: AssertionError",
            "*- minibroker: kafka -*",
            "orders: 1 partition, 1 offset",
            '  [[]0[]] 0  {"id":1}',
            ">       minibroker_cluster.wait_records*",
            "*- minibroker: minibroker_cluster -*",
            "bills: 1 partition, 1 offset",
            "*- minibroker: kafka -*",
            "nothing to be seen: RuntimeError: the broker is not running*",
        ]
    )
    shown = found.stdout.str()
    assert "hosted.py" not in shown
    assert "concurrent/futures" not in shown
    assert "quiet" not in shown


SNAPSHOT = """
    import pytest
    from minibroker import Broker

    @pytest.fixture(scope="session")
    def kafka_snapshot():
        with Broker(topics=["orders"]) as broker:
            broker.load("orders", [{"id": 1}, {"id": 2}], key="id")
            yield broker.snapshot()
"""


def test_every_test_goes_on_from_what_was_loaded_once_and_nothing_is_left(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(SNAPSHOT)
    pytester.makepyfile("""
        import os
        import threading
        import pytest

        HELD = []

        @pytest.mark.parametrize("number", range(100))
        def test_orders(kafka, number):
            assert len(kafka.records("orders")) == 2
            kafka.produce("orders", {"id": number})
            assert len(kafka.records("orders")) == 3
            HELD.append((threading.active_count(), len(os.listdir("/dev/fd"))))

        def test_nothing_is_left():
            assert len({*HELD[1:]}) <= 1, HELD

        @pytest.mark.kafka(topics=["bills"])
        def test_more_topics(kafka):
            assert kafka.topics() == {"bills": 1, "orders": 1}

        @pytest.mark.kafka(snapshot=None)
        def test_empty(kafka):
            assert kafka.topics() == {}
        """)
    run(pytester, "-n", "2").assert_outcomes(passed=103)


def test_what_was_loaded_here_is_not_to_be_had_outside(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(SNAPSHOT)
    pytester.makepyfile("def test_orders(kafka): ...")
    result = run(pytester, "-rs", "--kafka-bootstrap=localhost:1")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*kafka_snapshot is not to be had of an outside broker*"])
