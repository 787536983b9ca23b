"""The tables of settings, each read from its text at the first use of it.

Invariant: a start that is given only settings that mean something here never reads the long table of the others.
"""

from __future__ import annotations

from minibroker.config.setting import IGNORED, Setting, parse_rows

_tables: dict[str, dict[str, Setting]] = {}

LISTENER_PREFIX = "listener.name."


def broker_settings() -> dict[str, Setting]:
    """Return the broker's settings that mean something here."""
    if "broker" not in _tables:
        from minibroker.config.broker_rows import BROKER

        _tables["broker"] = parse_rows(BROKER)
    return _tables["broker"]


def other_settings() -> dict[str, Setting]:
    """Return the broker's settings that are accepted and ignored."""
    if "other" not in _tables:
        from minibroker.config.other_rows import OTHER

        _tables["other"] = parse_rows(OTHER, IGNORED)
    return _tables["other"]


def topic_settings() -> dict[str, Setting]:
    if "topic" not in _tables:
        from minibroker.config.topic_rows import TOPIC

        _tables["topic"] = parse_rows(TOPIC)
    return _tables["topic"]


def group_settings() -> dict[str, Setting]:
    if "group" not in _tables:
        from minibroker.config.group_rows import GROUP

        _tables["group"] = parse_rows(GROUP)
    return _tables["group"]


def find_broker_setting(name: str) -> Setting | None:
    """Return a broker's setting; `listener.name.NAME.SETTING` is SETTING for one listener."""
    found = broker_settings().get(name) or other_settings().get(name)
    return found or (find_broker_setting(base) if (base := without_listener(name)) else None)


def without_listener(name: str) -> str | None:
    """Return SETTING of `listener.name.NAME.SETTING`, None for every other name."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    _, _, setting = name.removeprefix(LISTENER_PREFIX).partition(".")
    return setting or None


def get_broker_setting(name: str) -> Setting:
    found = find_broker_setting(name)
    if found is None:
        raise KeyError(f"no setting of a broker is named {name}")
    return found
