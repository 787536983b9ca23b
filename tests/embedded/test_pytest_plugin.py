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
                assert broker.wait_records(topic, 1)
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
