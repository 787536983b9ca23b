"""Sources of a start's settings: arguments, environment, a properties file; the first that has one wins.

Environment variables are those of Kafka's container image: KAFKA_LOG_SEGMENT_BYTES is log.segment.bytes, `_` is a dot,
`__` an underscore, `___` a dash. Bitnami's image has KAFKA_CFG_LOG_SEGMENT_BYTES for the same.
Unknown and ignored settings become warnings, but for those of security and instances, which stop the start; so does a
value that a setting does not take.
Not here: reading files and the environment; KAFKA_CREATE_TOPICS, which is no setting of a broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from minibroker.config.setting import HONOURED, NEWEST, REFUSED, Setting
from minibroker.config.tables import (
    INSTANCE_PREFIX,
    LISTENER_LIMITS,
    broker_settings,
    find_broker_setting,
    instance_settings,
    is_of_security,
    other_settings,
    without_listener,
)
from minibroker.config.values import BadValue, ConfigError, format_value, parse_value

# Variables that begin like a setting and are none: those of the images' scripts and of their JVM, and one of ours.
NO_SETTINGS = frozenset(
    f"KAFKA_{name}"
    for name in (
        *("VERSION", "HOME", "HEAP_OPTS", "OPTS", "JMX_OPTS", "JMX_HOSTNAME", "JMX_PORT", "JVM_PERFORMANCE_OPTS"),
        *("GC_LOG_OPTS", "LOG4J_OPTS", "LOG4J_ROOT_LOGLEVEL", "LOG4J_LOGGERS", "TOOLS_LOG4J_LOGLEVEL", "DEBUG"),
        *("CLUSTER_ID", "KRAFT_CLUSTER_ID", "ENABLE_KRAFT", "CREATE_TOPICS"),
    )
)

NEWER_NAMES = {"delegation.token.master.key": "delegation.token.secret.key"}
# What listener.name.NAME.SETTING can say; of logins there are more, and security/sasl_settings.py says which.
OF_ONE_LISTENER = (*LISTENER_LIMITS, "connections.max.reauth.ms")
BEGIN_OF_ONE_LISTENER = "ssl.", "sasl."


def merge_sources(
    arguments: Mapping[str, object], environ: Mapping[str, str], properties_text: str | None
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Return the text of every setting that was given, where it was, and a sentence for each that has no effect."""
    static: dict[str, str] = {}
    places: dict[str, str] = {}
    for source, name, text in _given(arguments, environ, properties_text):
        if name not in static:
            static[name], places[name] = text, source
    warnings = [warning for name in static if (warning := _check(places[name], name, static[name]))]
    _join_ids(static, places)
    return static, places, warnings


def _given(
    arguments: Mapping[str, object], environ: Mapping[str, str], properties_text: str | None
) -> Iterator[tuple[str, str, str]]:
    """Yield (source, name, text) of everything that was given, the strongest source first."""
    for key, value in arguments.items():
        if value is not None:
            yield f"argument {key}", dotted(key), text_of(value)
    for variable in sorted(environ):
        if name := name_of_variable(variable):
            yield f"environment variable {variable}", name, environ[variable]
    if properties_text is not None:
        yield from _lines(properties_text)


def _lines(properties_text: str) -> Iterator[tuple[str, str, str]]:
    from minibroker.log.checkpoints import BrokenFile
    from minibroker.log.meta_properties import parse_properties

    # A properties file is Latin-1; what lies beyond comes as an escape.
    data = properties_text.encode("latin-1", "backslashreplace")
    try:
        found = parse_properties(data, "properties")
    except BrokenFile as broken:
        raise ConfigError(f"properties line {broken.line}", "", "", broken.reason) from None
    for name, (line, text) in found.items():
        yield f"properties line {line}", name, text


def dotted(name: str) -> str:
    """Return Kafka's name of a setting that may be written as an argument of Python."""
    return name if "." in name else name.replace("_", ".")


def setting_texts(settings: Mapping[str, object]) -> dict[str, str]:
    """Return settings by Kafka's names, as text."""
    return {dotted(name): text_of(value) for name, value in settings.items()}


def text_of(value: object) -> str:
    """Return a Python value as a properties file would have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(str(part) for part in value)
    return str(value)


def name_of_variable(variable: str) -> str | None:
    """Return the setting that an environment variable stands for, None if it is none."""
    if not variable.startswith("KAFKA_") or variable in NO_SETTINGS:
        return None
    dotted = variable.removeprefix("KAFKA_").removeprefix("CFG_").lower().replace("_", ".")
    return dotted.replace("...", "-").replace("..", "_")


def variable_of_name(name: str) -> str:
    """Return the environment variable that stands for a setting."""
    return "KAFKA_" + name.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def _check(source: str, name: str, text: str) -> str | None:
    """Return the warning that a setting deserves; raise ConfigError if its value cannot be taken."""
    setting = find_broker_setting(name)
    if setting is None and name.startswith(INSTANCE_PREFIX):
        words = f"an instance has {INSTANCE_PREFIX}NAME. and one of {', '.join(instance_settings())}"
        raise ConfigError(source, name, text, words)
    if setting is None:
        guess = nearest_name(name)
        if is_of_security(name):
            words = (
                f"there is no such setting, and somebody might rely on it{f'; did you mean {guess}?' if guess else ''}"
            )
            raise ConfigError(source, name, "(hidden)", words)
        return f"{source}: unknown setting {name}" + (f"; did you mean {guess}?" if guess else "")
    try:
        value = parse_value(setting, text)
    except BadValue as bad:
        shown = "(hidden)" if setting.is_sensitive else text
        raise ConfigError(source, name, shown, f"{bad.reason} ({what_is_allowed(setting)})") from None
    if setting.treatment == REFUSED and (format_value(setting, value) or "") != (setting.default or ""):
        shown = "(hidden)" if setting.is_sensitive else text
        instead = NEWER_NAMES.get(name)
        words = f"its name is {instead} now" if instead else f"not supported; leave it {setting.default or 'unset'}"
        raise ConfigError(source, name, shown, words)
    if setting.treatment == HONOURED:
        base = without_listener(name)
        if base is not None and base not in OF_ONE_LISTENER and not base.startswith(BEGIN_OF_ONE_LISTENER):
            return f"{source}: {name} is accepted and ignored: no listener has a {base} of its own"
        if setting.until == NEWEST:
            return None
        return f"{source}: {name} has an effect only with --as-version: Kafka {NEWEST} does not have it any more"
    if setting.treatment == REFUSED:
        return None
    from minibroker.config.ignored import reason_of

    return f"{source}: {name} is accepted and ignored: {reason_of(without_listener(name) or name)}"


def what_is_allowed(setting: Setting) -> str:
    """Say what a setting takes, as in `int, [1,...]`."""
    return f"{setting.kind}, {setting.valid}" if setting.valid else setting.kind


def nearest_name(name: str) -> str | None:
    """Return the known setting that a wrong name was probably meant to be."""
    from difflib import get_close_matches  # some milliseconds: only whoever mistypes pays them

    found = get_close_matches(name, known_names(), n=1, cutoff=0.8)
    return found[0] if found else None


def known_names() -> list[str]:
    """Return the names of all settings of a broker, also of those that are ignored."""
    return [*broker_settings(), *other_settings()]


def _join_ids(static: dict[str, str], places: dict[str, str]) -> None:
    """Give node.id and broker.id, two names for one thing, the same value."""
    for one, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
        if one in static and other not in static:
            static[other] = static[one]
    if static.get("node.id") != static.get("broker.id"):
        node_id = static["node.id"]
        raise ConfigError(places["broker.id"], "broker.id", static["broker.id"], f"differs from node.id={node_id}")
