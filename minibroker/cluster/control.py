"""Calling the verbs of a cluster by name, as HTTP and the command line do: POST /cluster/kill {"broker": 2}.

What must hold: a verb that is refused has done nothing, and the text says what would be possible.
Not here: what a verb does (verbs.py).
"""

from __future__ import annotations

from minibroker.errors import Error, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from minibroker.cluster.cluster import Cluster
    from minibroker.cluster.verbs import Verb
    from minibroker.replication.link import NodeId


async def call(cluster: Cluster, name: str, arguments: Mapping[str, Any]) -> Any:
    """Do what a verb says with arguments by name; KafkaError says why not."""
    import inspect

    from minibroker.cluster.verbs import VERBS

    function = VERBS.get(name)
    if function is None:
        raise KafkaError(Error.INVALID_REQUEST, f"there is no verb {name!r}: there are {', '.join(VERBS)}")
    positional, named = _fit(name, function, arguments)
    try:
        result = function(cluster, *positional, **named)
        return await result if inspect.isawaitable(result) else result
    except (ValueError, TimeoutError, RuntimeError) as failure:
        code = Error.REQUEST_TIMED_OUT if isinstance(failure, TimeoutError) else Error.INVALID_REQUEST
        raise KafkaError(code, str(failure)) from failure


def _fit(name: str, function: Verb, arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return what a verb is called with, positional and by name, or say what does not fit."""
    import inspect

    positional: list[Any] = []
    named: dict[str, Any] = {}
    left = dict(arguments)
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        key, form = parameter.name, str(parameter.annotation)
        if parameter.kind is parameter.VAR_POSITIONAL:
            values = left.pop(key, [])
            if not isinstance(values, list):
                raise KafkaError(Error.INVALID_REQUEST, f"{name}: {key} is to be a list")
            positional += [_checked(name, key, form, value) for value in values]
        elif key in left:
            value = _checked(name, key, form, left.pop(key))
            if parameter.kind is parameter.KEYWORD_ONLY:
                named[key] = value
            else:
                positional.append(value)
        elif parameter.default is parameter.empty:
            raise KafkaError(Error.INVALID_REQUEST, f"{name} needs {key}")
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            positional.append(parameter.default)
    if left:
        known = ", ".join(list(inspect.signature(function).parameters)[1:]) or "nothing"
        raise KafkaError(Error.INVALID_REQUEST, f"{name} takes {known}, not {', '.join(left)}")
    return positional, named


def _checked(name: str, key: str, form: str, value: Any) -> Any:
    """Return a value that fits a parameter; words are taken for what they say."""
    kinds = [part.strip() for part in form.split("|")]
    if value is None and "None" in kinds:
        return None
    for kind in kinds:
        try:
            return FORMS[kind](value)
        except (ValueError, KeyError, TypeError):
            continue
    raise KafkaError(Error.INVALID_REQUEST, f"{name}: {key} is to be {form}, not {value!r}")


def node_of(value: Any) -> NodeId:
    """Return a broker's id, or one of the other ends of a link."""
    text = str(value)
    if text.isdecimal():
        return int(text)
    if text in ("controller", "clients"):
        return text
    raise ValueError(text)


def _whole(value: Any) -> int:
    if isinstance(value, (bool, float)):
        raise ValueError(value)
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError(value)
    return float(value)


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}[value]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


FORMS: dict[str, Callable[[Any], Any]] = {
    "NodeId": node_of,
    "int": _whole,
    "float": _number,
    "bool": _truth,
    "str": _text,
}
