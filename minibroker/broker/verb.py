"""A verb: a method that can be called by its name from outside, by HTTP, the command line and lessons.

    Verb("advance", SteeredClock.advance, "clock", names={"amount": "duration"})

A verb is a method of a broker or a cluster, or of one of its parts, and its signature is all that is known of it: what
comes by HTTP is checked against it, and the help of commands is made of it.
From outside a list is words behind the others, and a timeout is an option, in ms.
What must hold: the first sentence of such a method is true for whoever types it in a shell; what is so in Python alone
(names, notation, exceptions) stands below. A verb that is refused has done nothing, and the text says what would be
possible.
Which there are: verbs.py for a broker that is alone, cluster/verbs.py for a cluster.
"""

from __future__ import annotations

import inspect

from minibroker.clock.steered import SteeredClock
from minibroker.errors import Error, KafkaError
from minibroker.replication.network import NodeId

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from inspect import Parameter
    from typing import Any, NamedTuple

    from minibroker.groups.view_rows import GroupView

LISTS = ("Sequence[", "Iterable[")
AMOUNT = {"amount": "duration"}  # of the verbs that move a clock, outside


class Verb:
    """One verb, and how it is asked for from outside."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        part: str = "",
        *,
        options: Sequence[str] = (),
        names: Mapping[str, str] | None = None,
        as_json: Callable[[Any], Any] | None = None,
    ):
        """part: the attribute of a cluster that has the method. options: are not given by their place outside.

        names: what parameters are called outside, if otherwise. as_json: of the result; None: it is already.
        """
        self.name = name
        self.function = function
        self.part = part
        self.options = options
        self.names = names or {}
        self.as_json = as_json

    @property
    def says(self) -> str:
        """What it does, in a sentence that names its options as they are typed."""
        sentence = (self.function.__doc__ or "").partition("\n\n")[0]
        for own, outside in self.parameters():
            sentence = sentence.replace(f"; {own.name}: ", f"; --{outside.name.replace('_', '-')}: ")
        return sentence

    def of(self, whole: Any) -> Callable[..., Any]:
        """Return the method of a cluster, or of a broker that is alone."""
        owner = getattr(whole, self.part) if self.part else whole
        if self.part == "clock" and not isinstance(owner, SteeredClock):
            raise ValueError(f"the clock of this {whole.noun} cannot be moved")
        method: Callable[..., Any] = getattr(owner, self.function.__name__)
        return method

    def parameters(self) -> list[tuple[Parameter, Parameter]]:
        """Return each parameter as it is, and as it is given from outside."""
        from inspect import signature

        _, *own = signature(self.function).parameters.values()
        return [(each, self._from_outside(each)) for each in own]

    def _from_outside(self, parameter: Parameter) -> Parameter:
        form = str(parameter.annotation)
        if parameter.name == "timeout":
            default = parameter.default * 1000
            return parameter.replace(name="timeout_ms", kind=parameter.KEYWORD_ONLY, default=default)
        if form.startswith(LISTS) and parameter.kind is not parameter.VAR_POSITIONAL:
            item = form[form.index("[") + 1 : form.index("]")]
            return parameter.replace(kind=parameter.VAR_POSITIONAL, default=parameter.empty, annotation=item)
        kind = parameter.KEYWORD_ONLY if parameter.name in self.options else parameter.kind
        return parameter.replace(name=self.names.get(parameter.name, parameter.name), kind=kind)


def rows(found: Sequence[NamedTuple]) -> list[dict[str, Any]]:
    return [each._asdict() for each in found]


def row(found: NamedTuple) -> dict[str, Any]:
    return found._asdict()


def view(found: GroupView) -> dict[str, Any]:
    from minibroker.groups.view_rows import view_as_json

    return view_as_json(found)


async def carry_out(verb: Verb, whole: Any, arguments: Mapping[str, Any]) -> Any:
    """Do what a verb says with arguments by name, and return what is told of it; KafkaError says why not."""
    positional, named = fit(verb, arguments)
    try:
        result = verb.of(whole)(*positional, **named)
        result = await result if inspect.isawaitable(result) else result
    except (ValueError, TimeoutError, RuntimeError) as failure:
        code = Error.REQUEST_TIMED_OUT if isinstance(failure, TimeoutError) else Error.INVALID_REQUEST
        raise KafkaError(code, str(failure)) from failure
    return result if verb.as_json is None else verb.as_json(result)


def fit(verb: Verb, arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
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
        except (ValueError, KeyError, TypeError, OverflowError):
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
