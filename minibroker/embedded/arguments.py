"""Arguments of Python as the broker has them: names with dots, values as text, topics as people write them, clocks."""

from __future__ import annotations

from minibroker.config.sources import text_of
from minibroker.config.topic_texts import parse_topic
from minibroker.steered_clock import SteeredClock

STEERED = "steered"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from minibroker.clock import Clock
    from minibroker.config.topic_texts import WantedTopic


def dotted(name: str) -> str:
    """Return Kafka's name of a setting that may be written as an argument of Python."""
    return name if "." in name else name.replace("_", ".")


def setting_texts(configs: Mapping[str, object]) -> dict[str, str]:
    """Return settings of a topic by Kafka's names, as text."""
    return {dotted(name): text_of(value) for name, value in configs.items()}


def wanted_topics(topics: str | Iterable[str], environ: Mapping[str, str] | None) -> tuple[WantedTopic, ...]:
    """Return the topics to be made at a start: those of an argument, and of KAFKA_CREATE_TOPICS."""
    wanted = [topics] if isinstance(topics, str) else [*topics]
    wanted += filter(None, (environ or {}).get("KAFKA_CREATE_TOPICS", "").split(","))
    return tuple(parse_topic(text) for text in wanted)


def clock_from(clock: Clock | str | None) -> Clock:
    """Return the clock that an argument means: without one, or as "steered", one of its own that can be moved."""
    if clock is None or clock == STEERED:
        return SteeredClock()
    if isinstance(clock, (str, type)):
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
