"""Fixtures for pytest, there as soon as minibroker is installed:

    def test_an_order_is_confirmed(kafka):
        shop.confirm(kafka.bootstrap_servers, "order 1")
        assert kafka.wait_records("orders", 1)[0].value == b"order 1"

kafka               a broker for one test, on memory and a free port; `@pytest.mark.kafka(...)` holds its arguments
kafka_broker        the same by another name, for files that import the module `kafka` of kafka-python
kafka_session       one for all tests, in each worker of xdist; override `kafka_session_options` with its arguments
kafka_snapshot      override it with what is loaded once: each `kafka` goes on from there, on its own
kafka_topic         the name of a topic on `kafka_session` that one test has for itself
minibroker_cluster  three brokers for one test, to be killed, cut and paused; `@pytest.mark.minibroker_cluster(...)`
kafka_cluster       the same by another name

A test that fails shows what there was on its broker: topics with their ends and last records, groups with their lag,
and the last requests of clients, each with its answer.
Parameters are arguments, too, or a release: `@pytest.mark.parametrize("kafka", ["2.8", {"num_partitions": 3}],
indirect=True)`. What must hold: nothing that a marker or a parameter says is passed over in silence.

With `--kafka-bootstrap=localhost:9092` the same tests run on a broker that somebody else runs, a real Kafka for
example; what cannot be had there is skipped by its name (embedded/outside.py, attached.py).

`--simulate-seeds=1000` and `--simulate-seed=17` are for tests with `@minibroker.simulate` (embedded/simulated).

A broker runs in a thread, so tests with a loop of their own use it as well, and no plugin for asyncio is asked for.
Where no test asks for a fixture, nothing of minibroker is imported but this file.
"""

from __future__ import annotations

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Any

    from minibroker.embedded import Broker, BrokerSnapshot, Cluster

MARKERS = (
    "kafka(**arguments): what minibroker.Broker is called with for the fixture `kafka`, such as topics=['orders:3']",
    "minibroker_cluster(**arguments): what minibroker.Cluster is called with for the fixture `minibroker_cluster`",
)
FIXTURES = {"kafka": ("kafka", "kafka_broker"), "minibroker_cluster": ("minibroker_cluster", "kafka_cluster")}
RUNNING = pytest.StashKey["dict[str, Broker | Cluster]"]()  # of a test, by the names of the fixtures
REQUESTS = 20  # the last ones, that are shown
NAME_LENGTH_MAX = 200  # of a topic, with room for a number: Kafka takes 249


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("minibroker")
    for name, words in (
        ("bootstrap", "run tests with the fixtures kafka and kafka_session on the broker at HOST:PORT"),
        ("config", "how to come in there: a properties file of Kafka's clients"),
    ):
        group.addoption(f"--kafka-{name}", metavar={"bootstrap": "HOST:PORT", "config": "FILE"}[name], help=words)
        parser.addini(f"kafka_{name}", words)
    simulated = "tests with @minibroker.simulate"
    group.addoption("--simulate-seeds", metavar="N", type=int, help=f"run {simulated} from so many seeds")
    group.addoption("--simulate-seed", metavar="SEED", type=int, help=f"run {simulated} from this seed alone")


def _outside(config: pytest.Config, name: str) -> str:
    """Return an option about an outside broker; empty: nobody has said so."""
    return config.getoption(f"--kafka-{name}") or str(config.getini(f"kafka_{name}") or "")


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a marker of a test that does not ask for what the marker is about: it would do nothing."""
    if (simulated := getattr(getattr(item, "function", None), "simulated", None)) is not None:
        options = item.config.option
        simulated.told(item.nodeid, options.simulate_seed, options.simulate_seeds)
    for marker in item.own_markers:
        if marker.name in FIXTURES and not {*FIXTURES[marker.name]} & {*getattr(item, "fixturenames", ())}:
            import inspect

            # Who has `request` may ask for a fixture later.
            if "request" not in inspect.signature(getattr(item, "function", int)).parameters:
                pytest.fail(f"pytest.mark.{marker.name} is for tests with the fixture {marker.name}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what there was on the brokers of a test that has failed; skip what an outside broker cannot have."""
    report = yield
    if report.failed and _outside(item.config, "bootstrap") and call.excinfo is not None:
        from minibroker.embedded.attached import NotToBeHad

        if isinstance(call.excinfo.value, NotToBeHad):
            report.outcome = "skipped"
            path, line, _ = item.reportinfo()
            report.longrepr = (str(path), (line or 0) + 1, f"Skipped: {call.excinfo.value}")
    if report.when == "call" and report.failed:
        for name, running in item.stash.get(RUNNING, {}).items():
            report.sections.append((f"minibroker: {name}", _overview(running)))
    return report


def _overview(running: Broker | Cluster) -> str:
    try:
        requests = "\n".join(f"  {row}" for row in _requests(running))
        return running.overview() + (f"\nlast requests\n{requests}" if requests else "")
    except Exception as failure:  # it may be what the test has done to it
        return f"nothing to be seen: {type(failure).__name__}: {failure}"


def _requests(running: Broker | Cluster) -> list[Any]:
    try:
        return running.requests(REQUESTS)
    except (
        AttributeError,
        RuntimeError,
        TypeError,
    ):  # of a broker in another process, or of somebody else, nobody keeps them
        return []


def _shown(request: pytest.FixtureRequest, name: str, running: Broker | Cluster) -> None:
    """Have a broker shown if the test fails."""
    request.node.stash.setdefault(RUNNING, {})[name] = running


@pytest.fixture(scope="session")
def kafka_snapshot() -> BrokerSnapshot[Broker] | None:
    """What each `kafka` goes on from: override it in conftest.py, with the snapshot of a broker with data."""
    return None


@pytest.fixture
def kafka(request: pytest.FixtureRequest, kafka_snapshot: BrokerSnapshot[Broker] | None) -> Iterator[Broker]:
    """A broker for this test alone."""
    from minibroker.embedded import Broker

    arguments = _arguments(request, "kafka")
    if kafka_snapshot is not None:
        if _outside(request.config, "bootstrap"):
            pytest.skip("kafka_snapshot is not to be had of an outside broker: what is in there stays in this process")
        arguments = {"snapshot": kafka_snapshot, **arguments}
    with _attached(request, arguments) or Broker(**arguments) as broker:
        _shown(request, "kafka", broker)
        yield broker


@pytest.fixture
def kafka_broker(kafka: Broker) -> Broker:
    """A broker for this test alone: the fixture `kafka`."""
    return kafka


@pytest.fixture
def minibroker_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster for this test alone."""
    from minibroker.embedded import Cluster

    if _outside(request.config, "bootstrap"):
        pytest.skip("minibroker_cluster is not to be had outside: nobody can kill and cut brokers there")
    with Cluster(**_arguments(request, "minibroker_cluster")) as cluster:
        _shown(request, "minibroker_cluster", cluster)
        yield cluster


@pytest.fixture
def kafka_cluster(minibroker_cluster: Cluster) -> Cluster:
    """A cluster for this test alone: the fixture `minibroker_cluster`."""
    return minibroker_cluster


def _attached(request: pytest.FixtureRequest, arguments: dict[str, Any]) -> Any:
    """Return the outside broker that tests are to run on, which is as it was when it is left; None: there is none."""
    if not (bootstrap := _outside(request.config, "bootstrap")):
        return None
    from minibroker.embedded.outside import lent

    if others := [f"{name}={value!r}" for name, value in arguments.items() if name != "topics"]:
        pytest.skip(f"{', '.join(others)}: not to be had of an outside broker")
    return lent(bootstrap, _outside(request.config, "config"), arguments.get("topics", ()))


def _arguments(request: pytest.FixtureRequest, name: str) -> dict[str, Any]:
    """Return what the markers of a test and its parameter hold, the parameter first, then the closest marker."""
    arguments: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(name))):
        if marker.args:
            shown = ", ".join(map(repr, marker.args))
            pytest.fail(f"pytest.mark.{name}({shown}): arguments have names, as in topics=['orders']", pytrace=False)
        arguments |= marker.kwargs
    arguments |= _parameter(request, name)
    clock = arguments.get("clock")
    reset = getattr(clock, "reset", None)
    if reset is not None:
        reset()  # a marker is there once, and the test before may have moved it
    return arguments


def _parameter(request: pytest.FixtureRequest, name: str) -> dict[str, Any]:
    """Return the arguments that parametrize(name, ..., indirect=True) holds."""
    parameter = getattr(request, "param", None)
    if parameter is None:
        return {}
    if isinstance(parameter, str):
        return {"as_version": parameter}
    if isinstance(parameter, dict):
        return parameter
    words = f"a parameter of the fixture {name} is a release such as '2.8', or a dict of arguments, not {parameter!r}"
    pytest.fail(words, pytrace=False)


@pytest.fixture(scope="session")
def kafka_session_options() -> dict[str, Any]:
    """What `kafka_session` is called with: override it in conftest.py."""
    return {}


@pytest.fixture(scope="session")
def kafka_session(request: pytest.FixtureRequest, kafka_session_options: dict[str, Any]) -> Iterator[Broker]:
    """A broker for all tests. Topics stay until somebody deletes them: use names of your own, or `kafka_topic`."""
    from minibroker.embedded import Broker

    arguments = {**kafka_session_options, **_parameter(request, "kafka_session")}
    with _attached(request, arguments) or Broker(**arguments) as broker:
        yield broker


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_session: Broker) -> Iterator[str]:
    """The name of an empty topic on `kafka_session`, named after the test and deleted after it."""
    if hasattr(request, "param"):
        pytest.fail("kafka_topic takes no parameters: kafka_session.create_topic makes any topic", pytrace=False)
    known = kafka_session.topics()
    name = wanted = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in request.node.name)[
        :NAME_LENGTH_MAX
    ]
    number = 1
    while name in known:
        number += 1
        name = f"{wanted}-{number}"
    kafka_session.create_topic(name)
    _shown(request, "kafka_session", kafka_session)
    yield name
    if name in kafka_session.topics():
        kafka_session.delete_topic(name)
