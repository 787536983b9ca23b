"""From a plan to the source of a decoder, an encoder, a constructor: written at first use, then kept by the caller.

Generated code is one flat function per (message, version). Runs of fixed-width fields share one struct call, a length
or tag count that follows them included; structs are inlined. It checks just enough to notice that something is wrong
and then raises whatever comes first: walk.py finds out what and where, so the good case pays nothing for good errors.
What must be checked here: lengths below zero (they would move the position back), counts against what is left (they
would allocate), and by the caller that the end is within the buffer (slices stop silently).

In requests also: how many elements there are, of all arrays together, and tagged fields (bounds.py). Of large messages
there are decoders and encoders that let others in between: generators that yield how many elements they have done.

The globals of a generated function name a loader that knows its source, so that a traceback shows its lines.
"""

from __future__ import annotations

from minibroker.schema.bounds import BYTES_PER_ELEMENT, ELEMENTS_FREE, PIECE
from minibroker.schema.decoding import DecoderWriter
from minibroker.schema.encoding import EncoderWriter
from minibroker.schema.plan import Plan, Type, message_plan
from minibroker.schema.source import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def decoder(cls: Any, version: int, *, in_pieces: bool = False) -> Callable[..., Any]:
    """Return f(buffer, position, end) -> (message, position behind it); in pieces it is a generator."""
    source = Source(f"{cls.__name__} v{version} decoder{' in pieces' if in_pieces else ''}")
    source.line("def decode(buf, pos, end):")
    with source:
        wanted = message_plan(cls, version)
        if in_pieces:
            source.line(f"piece = {PIECE}; yield 0")
        if cls.elements_max:
            source.line(f"left = min({ELEMENTS_FREE} + (end - pos) // {BYTES_PER_ELEMENT}, {cls.elements_max})")
        if _has_records(wanted):
            source.line("view = memoryview(buf)")
        root = DecoderWriter(source, elements_max=cls.elements_max, in_pieces=in_pieces).struct(wanted)
        source.line(f"return {root}, pos")
    return source.function("decode")


def encoder(cls: Any, version: int, *, in_pieces: bool = False) -> Callable[..., Any]:
    """Return f(message, out) that hands the pieces of the message to `out`, one call each; in pieces a generator."""
    source = Source(f"{cls.__name__} v{version} encoder{' in pieces' if in_pieces else ''}")
    source.line("def encode(message, parts):")
    with source:
        if in_pieces:
            source.line(f"piece = {PIECE}; yield 0")
        writer = EncoderWriter(source, "parts", in_pieces=in_pieces)
        writer.struct(message_plan(cls, version), "message")
        writer.flush()
        source.line("return")
    return source.function("encode")


def constructor(cls: Any) -> Callable[..., None]:
    """Return the __init__ of a struct: keywords only, a field without a default must be given."""
    source = Source(f"{cls.__qualname__} constructor")
    fields = cls.__fields_all__()
    specs = cls.__specs__ if cls.__fields__ else cls.__mro__[1].__specs__
    parameters = []
    for field in fields:
        spec = specs.get(field)
        parameters.append(f"{field}={source.constant(spec.default)}" if spec and spec.has_default else field)
    source.line(f"def __init__({', '.join(['self', '*', *parameters] if parameters else ['self'])}):")
    with source:
        for field in fields:
            source.line(f"self.{field} = {field}")
        source.line("return")
    return source.function("__init__")


def _has_records(plan: Plan) -> bool:
    def within(type: Type) -> bool:
        if type.element:
            return within(type.element)
        return type.name == "Records" or (type.plan is not None and _has_records(type.plan))

    return any(within(field.type) for field in [*plan.fields, *plan.tagged])
