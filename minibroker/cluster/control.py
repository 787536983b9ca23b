"""Calling the verbs of a cluster by name, as HTTP and the command line do: POST /cluster/kill {"broker": 2}.

What must hold: a verb that is refused has done nothing, and the text says what would be possible.
Not here: which verbs there are (verbs.py).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from minibroker.clock import LoopClock
from minibroker.cluster.cluster import Cluster
from minibroker.cluster.nodes import RUNNING
from minibroker.cluster.verbs import VERBS, Verb
from minibroker.errors import Error, KafkaError
from minibroker.replication.network import NodeId

SILENCING = ("kill", "stop", "pause", "isolate")
LOOKING = ("wait-",)  # how verbs begin that do nothing but wait: for whoever has gone they need not
ANSWER_MS = 20  # so long an answer takes to leave
_calls: dict[asyncio.Task[Any], None] = {}  # that came through a port and go on, whatever becomes of the connection


async def call(cluster: Cluster, name: str, arguments: Mapping[str, Any]) -> Any:
    """Do what a verb says with arguments by name; KafkaError says why not."""
    verb = VERBS.get(name)
    if verb is None:
        raise KafkaError(Error.INVALID_REQUEST, f"there is no verb {name!r}: there are {', '.join(VERBS)}")
    positional, named = _fit(verb, arguments)
    try:
        result = verb.of(cluster)(*positional, **named)
        result = await result if inspect.isawaitable(result) else result
    except (ValueError, TimeoutError, RuntimeError) as failure:
        code = Error.REQUEST_TIMED_OUT if isinstance(failure, TimeoutError) else Error.INVALID_REQUEST
        raise KafkaError(code, str(failure)) from failure
    return result if verb.as_json is None else verb.as_json(result)


async def call_through(cluster: Cluster, broker_id: int, verb: str, arguments: Mapping[str, Any]) -> Any:
    """Do what somebody asks for through a broker's port, whatever becomes of the connection meanwhile.

    What ends or stops that very broker is done when it has been answered: it could not be afterwards.
    """
    if verb.startswith(LOOKING):
        return await call(cluster, verb, arguments)
    silences = verb in SILENCING and str(arguments.get("broker")) == str(broker_id)
    if silences:
        cluster.check(broker_id, RUNNING)

    async def later() -> Any:
        await LoopClock().sleep(ANSWER_MS if silences else 0)
        try:
            return await call(cluster, verb, arguments)
        except KafkaError as refusal:
            return refusal  # who asked may have hung up, and then nobody hears of it

    task = asyncio.get_running_loop().create_task(later())
    _calls[task] = None
    task.add_done_callback(lambda done: _calls.pop(done, None))
    result = None if silences else await asyncio.shield(task)
    if isinstance(result, KafkaError):
        raise result
    return result


def _fit(verb: Verb, arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return what a verb is called with, positional and by name, or say what does not fit."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    left = dict(arguments)
    for own, outside in verb.parameters():
        key, form = outside.name, str(outside.annotation)
        if outside.kind is outside.VAR_POSITIONAL:
            given = left.pop(key, [])
            if not isinstance(given, list):
                raise KafkaError(Error.INVALID_REQUEST, f"{verb.name}: {key} is to be a list")
            values = [_checked(verb.name, key, form, value) for value in given]
            if own.kind is own.VAR_POSITIONAL:
                positional = values
            else:
                named[own.name] = values or None
        elif key in left:
            value = _checked(verb.name, key, form, left.pop(key))
            named[own.name] = value / 1000 if own.name == "timeout" else value
        elif own.default is own.empty:
            raise KafkaError(Error.INVALID_REQUEST, f"{verb.name} needs {key}")
    if left:
        known = ", ".join(outside.name for _, outside in verb.parameters()) or "nothing"
        raise KafkaError(Error.INVALID_REQUEST, f"{verb.name} takes {known}, not {', '.join(left)}")
    return positional, named


def _checked(name: str, key: str, form: str, value: Any) -> Any:
    """Return a value that fits a parameter; words are taken for what they say."""
    kinds = [part.strip() for part in form.split("|")]
    if value is None and "None" in kinds:
        return None
    for kind in kinds:
        try:
            return FORMS[kind][1](value)
        except (ValueError, KeyError, TypeError):
            continue
    wanted = " or ".join(FORMS[kind][0] for kind in kinds if kind in FORMS)
    raise KafkaError(Error.INVALID_REQUEST, f"{name}: {key} is to be {wanted}, not {value!r}")


def node_of(value: Any) -> NodeId:
    """Return a broker's id, or one of the other ends of a link."""
    text = str(value)
    if text.isdecimal():
        return int(text)
    if text in ("controller", "clients"):
        return text
    raise ValueError(text)


def _nodes(value: Any) -> list[NodeId]:
    """Return the ends of links in a word, such as 1,2 or 3,controller."""
    return [node_of(word) for word in _text(value).split(",")]


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


# How a parameter is annotated -> what is taken for it, in words and by a function that raises for all else.
FORMS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "NodeId": ("a broker such as 1, controller or clients", node_of),
    "Iterable[NodeId]": ("brokers with commas such as 1,2 or 3,controller", _nodes),
    "int": ("a whole number", _whole),
    "float": ("a number", _number),
    "bool": ("true or false", _truth),
    "str": ("text", _text),
}
