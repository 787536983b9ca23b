"""Tables of settings, each read from its file at the first use of it.

Invariant: a start that is given only settings that mean something here never reads the long table of the others.
"""

from __future__ import annotations

import os
from functools import cache

from minibroker.config.setting import IGNORED, Setting, parse_rows

LISTENER_PREFIX = "listener.name."
LISTENER_LIMITS = ("max.connections", "max.connection.creation.rate")  # that one listener may have of its own
INSTANCE_PREFIX = "instance."
# How names of settings begin by which somebody wants to keep others out.
OF_SECURITY = (
    "ssl.",
    "sasl.",
    "security.",
    "authorizer.",
    "super.user",
    "allow.every",
    "principal.",
    "delegation.token.",
)
SASL_MECHANISMS = ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer", "gssapi")  # as names of settings have them


def read_text(name: str) -> str:
    """Return a file of this folder, also when the package is a zip or has no sources."""
    folder = os.path.dirname(__file__)  # of a name that ends in .pyc where nobody has installed the sources
    data: bytes = __spec__.loader.get_data(os.path.join(folder, name))  # type: ignore[union-attr]
    return data.decode()


@cache
def broker_settings() -> dict[str, Setting]:
    """Return the broker's settings that mean something here."""
    return parse_rows(read_text("broker.txt"))


@cache
def other_settings() -> dict[str, Setting]:
    """Return the broker's settings that are accepted and ignored."""
    return parse_rows(read_text("other.txt"), IGNORED)


@cache
def topic_settings() -> dict[str, Setting]:
    return parse_rows(read_text("topic.txt"))


@cache
def group_settings() -> dict[str, Setting]:
    return parse_rows(read_text("group.txt"))


@cache
def instance_settings() -> dict[str, Setting]:
    """Return what an instance can be told, by the names behind `instance.NAME.`."""
    return parse_rows(read_text("instance.txt"))


def old_defaults(release: str) -> dict[str, str]:
    """Return the defaults of a release that are not those of the newest.

    Compared with the classes of these releases by tests/interop/test_defaults_are_those_of_the_release.py.
    """
    number = _number(release)
    found = {}
    for setting in broker_settings().values():
        for below, default in setting.old_defaults:
            if number < _number(below):
                found[setting.name] = default
                break
    return found


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(word) for word in release.split("."))


def find_broker_setting(name: str) -> Setting | None:
    """Return a broker's setting; `listener.name.NAME.SETTING` is SETTING for one listener.

    `listener.name.NAME.MECHANISM.SETTING` is a setting of logins for one mechanism of that.
    """
    if name.startswith(INSTANCE_PREFIX):
        return instance_settings().get(split_instance(name)[1])
    found = broker_settings().get(name) or other_settings().get(name)
    return found or (find_broker_setting(base) if (base := without_listener(name)) else None)


def split_instance(name: str) -> tuple[str, str]:
    """Return NAME and SETTING of `instance.NAME.SETTING`."""
    instance, _, setting = name.removeprefix(INSTANCE_PREFIX).partition(".")
    return instance, setting


def without_listener(name: str) -> str | None:
    """Return SETTING of `listener.name.NAME.[MECHANISM.]SETTING`, None for every other name."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    _, _, setting = name.removeprefix(LISTENER_PREFIX).partition(".")
    mechanism, _, of_mechanism = setting.partition(".")
    is_of_login = of_mechanism.startswith("sasl.") or of_mechanism == "connections.max.reauth.ms"
    return (of_mechanism if is_of_login and mechanism in SASL_MECHANISMS else setting) or None


def listener_of(name: str) -> str:
    """Return the listener that listener.name.NAME.SETTING is for."""
    return name.removeprefix(LISTENER_PREFIX).partition(".")[0].upper()


def is_of_security(name: str) -> bool:
    """Whether somebody who sets this, as misspelt as it may be, wants others to be kept out."""
    return (without_listener(name) or name).startswith(OF_SECURITY)


def is_of_logins(name: str) -> bool:
    """Whether somebody who sets this wants logins."""
    return "sasl." in name or name.endswith("max.reauth.ms")


def get_broker_setting(name: str) -> Setting:
    found = find_broker_setting(name)
    if found is None:
        raise KeyError(f"no setting of a broker is named {name}")
    return found
