"""Arguments of Python as the broker has them: names with dots, values as text, topics as people write them, clocks."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping

from minibroker.clock.steered import SteeredClock
from minibroker.config import BrokerConfig, ConfigError
from minibroker.config.sources import dotted, known_names
from minibroker.config.tables import find_broker_setting
from minibroker.config.topic_texts import parse_topic

STEERED = "steered"
# What people look for where it is not: (class, argument) -> where it is.
ELSEWHERE = {
    ("Broker", "brokers"): "several are a minibroker.Cluster, and in pytest the fixture minibroker_cluster",
    ("Broker", "racks"): "a broker has broker_rack=, and those of a minibroker.Cluster have racks=",
    ("Cluster", "process"): "a cluster runs in this process; `minibroker serve --brokers 3` is one in another",
}

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.clock import Clock
    from minibroker.config.topic_texts import WantedTopic
    from minibroker.security.users import Users


def config_of(
    owner: type, given: Mapping[str, object], defaults: Mapping[str, object], environ: Mapping[str, str] | None
) -> BrokerConfig:
    """Return the configuration of a broker, or of those of a cluster; raise ConfigError for a name that nobody knows.

    defaults: of what was not given, by Kafka's names.
    Kafka: takes unknown settings, with a line in its log, and here what comes by the environment does so too; but an
    argument that means nothing would leave a test green that tries something else.
    """
    for name in given:
        if find_broker_setting(dotted(name)) is None:
            raise ConfigError(f"minibroker.{owner.__name__}", "", "", _why_unknown(owner, name))
    arguments = {dotted(name): value for name, value in given.items()}
    config = BrokerConfig.from_sources({**defaults, **arguments}, environ)
    for warning in config.warnings:
        warnings.warn(f"minibroker.{owner.__name__}: {warning}", stacklevel=3)
    return config


def _why_unknown(owner: type, name: str) -> str:
    import inspect
    from difflib import get_close_matches

    words = f"{name} is neither one of its arguments nor a setting of Kafka's"
    if (owner.__name__, name) in ELSEWHERE:
        return f"{words}: {ELSEWHERE[owner.__name__, name]}"
    own = [each for each in inspect.signature(owner).parameters if each not in ("self", "settings")]
    candidates = {dotted(each): each for each in own}
    candidates |= {each: each if "." in name else each.replace(".", "_") for each in known_names()}
    near = get_close_matches(dotted(name), candidates, n=1, cutoff=0.8)
    return f"{words}; did you mean {candidates[near[0]]}?" if near else f"{words} (docs/settings.md has them all)"


def check_kinds(owner: type, **arguments: tuple[object, type, str]) -> None:
    """Raise TypeError for an argument of another kind; each comes with its kind, and with what it is to be in words."""
    for name, (value, kind, what) in arguments.items():
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool) != (kind is bool)):
            raise TypeError(f"minibroker.{owner.__name__}: {name}={value!r} is not {what}")


def wanted_topics(topics: str | Iterable[str], environ: Mapping[str, str] | None) -> tuple[WantedTopic, ...]:
    """Return the topics to be made at a start: those of an argument, and of KAFKA_CREATE_TOPICS."""
    if not isinstance(topics, Iterable):
        raise TypeError(f"topics={topics!r} are no topics: say 'orders', or ['orders', 'bills:3']")
    wanted = [topics] if isinstance(topics, str) else [*topics]
    for text in wanted:
        if not isinstance(text, str):
            raise TypeError(f"topics: {text!r} is no topic: say 'orders', or 'orders:3' for three partitions")
    wanted += filter(None, (environ or {}).get("KAFKA_CREATE_TOPICS", "").split(","))
    return tuple(parse_topic(text) for text in wanted)


def users_from(users: Mapping[str, str] | None) -> Users | None:
    """Return who can log in; ValueError for what are no names with passwords."""
    if not users:
        return None
    if not isinstance(users, Mapping):
        raise TypeError(f"users={users!r}: say {{'alice': 'secret'}}")
    from minibroker.security.users import Users

    return Users(users)


def clock_from(clock: Clock | str | None) -> Clock:
    """Return the clock that an argument means: without one, or as "steered", one of its own that can be moved."""
    if clock is None or clock == STEERED:
        return SteeredClock()
    if isinstance(clock, (str, type)) or not hasattr(clock, "now_ms"):
        raise TypeError(f"clock={clock!r} is no clock: leave it out, or give 'steered' or a SteeredClock()")
    return clock


def steered(clock: Clock) -> SteeredClock:
    """Return a clock that can be moved; TypeError for another one."""
    if not isinstance(clock, SteeredClock):
        raise TypeError(
            f"the {type(clock).__name__} that this was made with cannot be moved: leave clock= out, or give a "
            "SteeredClock()"
        )
    return clock
