"""Values of settings: from text, back to text, and whether they are allowed, with Kafka's words where they are not.

Text is what a properties file, a request and the metadata log hold; code gets bool, int, float, str, list or None.
Not here: which code a bad value becomes in an answer, and which file or variable it came from.
"""

from __future__ import annotations

from minibroker.config.setting import Setting

TYPE_CHECKING = False
if TYPE_CHECKING:
    Value = bool | int | float | str | list[str] | None

RANGES = {"int": (-(1 << 31), (1 << 31) - 1), "short": (-(1 << 15), (1 << 15) - 1), "long": (-(1 << 63), (1 << 63) - 1)}
# Numbers of the types in DescribeConfigs.
TYPE_CODES = {
    "boolean": 1, "string": 2, "int": 3, "short": 4, "long": 5, "double": 6, "list": 7, "class": 8, "password": 9,
}  # fmt: skip
UNKNOWN_TYPE = 0


class BadValue(ValueError):
    """A text that a setting does not take. `str()` is the whole sentence, `reason` what is wrong."""

    def __init__(self, name: str, text: object, reason: str):
        super().__init__(f"Invalid value {text} for configuration {name}: {reason}")
        self.reason = reason


class ConfigError(ValueError):
    """A setting that a start cannot take: where it was given, its name and value, and what is wrong or allowed.

    Without a name: a properties file that does not read.
    """

    def __init__(self, source: str, key: str, value: str, allowed: str):
        super().__init__(f"{source}: {key}={value}: {allowed}" if key else f"{source}: {allowed}")
        self.source = source
        self.key = key
        self.value = value
        self.allowed = allowed


def parse_value(setting: Setting, text: str | None) -> Value:
    """Return the value that a text stands for, checked against what is valid."""
    if text is None:
        return None
    value = parse_text(setting, text)
    check_value(setting, value)
    return value


def parse_text(setting: Setting, text: str) -> Value:
    """Return the value that a text stands for, valid or not; a default need not be what a user may set."""
    kind, trimmed = setting.kind, text.strip()
    if kind in RANGES:
        return _parse_whole(setting, trimmed, text)
    if kind == "boolean":
        if trimmed.lower() not in ("true", "false"):
            raise BadValue(setting.name, text, "Expected value to be either true or false")
        return trimmed.lower() == "true"
    if kind == "double":
        return _parse_double(setting, trimmed, text)
    if kind == "list":
        return list(dict.fromkeys(part.strip() for part in trimmed.split(","))) if trimmed else []
    return text if kind == "password" else trimmed


def _parse_whole(setting: Setting, trimmed: str, text: str) -> int:
    low, high = RANGES[setting.kind]
    try:
        number = int(trimmed)  # raises also for thousands of digits
    except ValueError:
        number = high + 1
    if "_" in trimmed or not low <= number <= high:
        raise BadValue(setting.name, text, f"Not a number of type {setting.kind.upper()}")
    return number


def _parse_double(setting: Setting, trimmed: str, text: str) -> float:
    try:
        number = float(trimmed)
    except ValueError:
        number = float("nan")
    if "_" in trimmed or number - number != 0:  # infinity and NaN
        raise BadValue(setting.name, text, "Not a number of type DOUBLE")
    return number


def format_value(setting: Setting, value: Value) -> str | None:
    """Return a value as Java writes it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return java_double(value)
    return ",".join(value) if isinstance(value, list) else str(value)


def java_double(value: float) -> str:
    """Return a number as Java's Double.toString does: 0.5, 1.0E-6, 1.0E7."""
    text = repr(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return text
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = text.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    power = int(exponent or 0) + len(whole) - 1
    digits = (whole + fraction).rstrip("0")
    if whole == "0":
        power -= len(digits) - len(digits.lstrip("0"))
        digits = digits.lstrip("0")
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"


# What is valid, in Kafka's notation

GZIP_LEVELS = "[1,...,9] or -1"
REPLICAS = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
NETWORKS = "networks"
OFFSET_RESET = "[latest, earliest, by_duration:PnDTnHnMn.nS]"
ANY_CASE = "(case insensitive) "
VERSIONS = "[0.8.0, "  # of Kafka, in which formats and protocols changed


def check_value(setting: Setting, value: Value) -> None:
    """Raise BadValue if a value is not among those that its setting takes."""
    valid = setting.valid
    if isinstance(value, list):
        _check_list(setting, value)
    elif isinstance(value, str):
        _check_string(setting, value)
    elif valid == GZIP_LEVELS:
        if not isinstance(value, int) or not (value == -1 or 1 <= value <= 9):
            raise BadValue(setting.name, value, "Value must be between 1 and 9 or equal to -1")
    elif valid and isinstance(value, int | float):
        _check_range(setting, value)


def _check_range(setting: Setting, value: float) -> None:
    """Check a number against `[1,...]` or `[1,...,9]`."""
    low, _, high = setting.valid.strip("[]").partition(",...")
    shown = format_value(setting, value)
    if value < float(low):
        raise BadValue(setting.name, shown, f"Value must be at least {low}")
    if high and value > float(high[1:]):
        raise BadValue(setting.name, shown, f"Value must be no more than {high[1:]}")


def _check_list(setting: Setting, value: list[str]) -> None:
    name, valid = setting.name, setting.valid
    if "" in value:
        error = BadValue(name, ",".join(value), f"Configuration '{name}' values must not be empty.")
        error.args = (error.reason,)
        raise error
    if valid == NETWORKS:
        _check_networks(name, value)
    elif valid == REPLICAS:
        pairs = [part.split(":") for part in value]
        if value != ["*"] and not all(len(pair) == 2 and all(id.isdecimal() for id in pair) for pair in pairs):
            words = f"{name} must be the literal '*' or a list of replicas in the following format: {REPLICAS}"
            raise BadValue(name, f"[{', '.join(value)}]", words)
    elif valid.startswith("["):
        for part in value:
            if part not in choices(valid):
                raise BadValue(name, part, f"String must be one of: {', '.join(choices(valid))}")


def _check_networks(name: str, value: list[str]) -> None:
    from ipaddress import ip_network

    if not value:
        raise BadValue(name, "", "it names no network; for everybody, 0.0.0.0/0,::/0")
    for part in value:
        try:
            ip_network(part)
        except ValueError as error:
            raise BadValue(name, part, f"it is no network such as 10.0.0.0/8 or fd00::/8: {error}") from None


def _check_string(setting: Setting, value: str) -> None:
    name, valid = setting.name, setting.valid
    if valid == "non-empty string":
        if not value:
            raise BadValue(name, value, "String must be non-empty")
    elif valid == OFFSET_RESET:
        if value not in ("latest", "earliest") and not _is_duration_reset(value):
            words = (
                f"Invalid value `{value}` for configuration {name}. The value must be either 'earliest', 'latest' or"
            )
            raise BadValue(name, value, f"{words} of the format 'by_duration:<PnDTnHnMn.nS>'.")
    elif valid.startswith(VERSIONS):
        if not is_version(value, choices(valid)):
            raise BadValue(name, value, f"Version `{value}` is not a valid version")
    elif valid.startswith(ANY_CASE):
        if value.upper() not in choices(valid):
            raise BadValue(name, value, f"String must be one of (case insensitive): {', '.join(choices(valid))}")
    elif valid.startswith("[") and value not in choices(valid):
        raise BadValue(name, value, f"String must be one of: {', '.join(choices(valid))}")


def is_version(text: str, known: list[str]) -> bool:
    """Whether Kafka reads a version out of a text: its first two or three numbers name one, or the last of a release.

    So 0.10.2, 0.10.2.1, 0.10.2-IV0, 1.0, 2.8 and 2.8.1 are all versions.
    """
    words = text.split(".")
    key = ".".join(words[: 3 if text.startswith("0.") else 2])
    return key in known or any(version.partition("-")[0] == key for version in known)


def choices(valid: str) -> list[str]:
    """Return the words of `[a, b, c]`."""
    return valid.removeprefix(ANY_CASE).strip("[]").split(", ")


def _is_duration_reset(value: str) -> bool:
    """Whether a text is by_duration: and a duration that is not negative, as in P1DT2H3M4.5S."""
    head, _, duration = value.partition(":")
    days, t, clock = duration.removeprefix("P").partition("T")
    if head != "by_duration" or not duration.startswith("P") or not (days or clock) or (t and not clock):
        return False
    for part, units in ((days, "D"), (clock, "HMS")):
        number = ""
        for character in part:
            if character.isdecimal() or (character == "." and "S" in units and "." not in number):
                number += character
            elif number and character in units and ("." not in number or character == "S"):
                units = units[units.index(character) + 1 :]
                number = ""
            else:
                return False
        if number:
            return False
    return True
