"""Settings of one group: its own, else the broker's, else the default.

Not here: altering (alter.py), telling others (describe.py), groups.
"""

from __future__ import annotations

from minibroker.config.tables import find_broker_setting, group_settings
from minibroker.config.topic import is_known, value_of
from minibroker.config.values import BadValue, parse_value
from minibroker.errors import Error, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from minibroker.config.broker import BrokerConfig
    from minibroker.config.values import Value


class GroupConfig:
    """What one group is told: `group["consumer.session.timeout.ms"]` is the value in force, typed."""

    def __init__(self, overrides: Mapping[str, str], broker: BrokerConfig):
        self.overrides = overrides
        self.broker = broker

    def __getitem__(self, name: str) -> Any:
        """Return the value in force; KeyError for a name that Kafka does not have."""
        return value_of(group_settings()[name], self.overrides, self.broker)


def check_group_config(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, str]:
    """Return a group's settings; raise what Kafka answers if it does not take them."""
    settings = group_settings()
    for name in overrides:
        if not is_known(settings.get(name), broker.release):
            raise KafkaError(Error.INVALID_CONFIG, f"Unknown group config name: {name}")
    for name, text in overrides.items():
        try:
            value = parse_value(settings[name], text)
        except BadValue as bad:
            raise KafkaError(Error.INVALID_CONFIG, str(bad)) from None
        _check_bounds(name, value, broker)
    return dict(overrides)


def _check_bounds(name: str, value: Value, broker: BrokerConfig) -> None:
    """Compare with the broker's limits: group.consumer.min.session.timeout.ms and .max. for all groups."""
    low, high = bound(name, "min", broker), bound(name, "max", broker)
    if name == "streams.assignor.name":
        known = broker["group.streams.assignors"]
        if value not in known:
            words = f"{name} '{value}' is not a registered task assignor. Registered assignors are: "
            raise KafkaError(Error.INVALID_CONFIG, f"{words}[{', '.join(known)}].")
    if not isinstance(value, int) or ((low is None or value >= low) and (high is None or value <= high)):
        return
    if low is not None and high is not None:
        raise KafkaError(Error.INVALID_CONFIG, f"{name} must be in the range {low} to {high} inclusive.")
    words = f"must be greater than or equal to {low}" if low is not None else f"must be less than or equal to {high}"
    raise KafkaError(Error.INVALID_CONFIG, f"{name} {words}")


def bound(name: str, which: str, broker: BrokerConfig) -> int | None:
    """Return the smallest ("min") or largest ("max") value that the broker lets a group have, None if any."""
    protocol, _, rest = name.partition(".")
    setting = f"group.{protocol}.{which}.{rest.removeprefix('num.')}"
    if find_broker_setting(setting) is None:
        return None
    found: int = broker[setting]
    return found
