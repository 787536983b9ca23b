"""From a plan to the source of a decoder, an encoder, a constructor: written at first use, then kept by the caller.

Generated code is one flat function per (message, version). Runs of fixed-width fields share one struct call, a length
or tag count that follows them included; structs are inlined. It checks just enough to notice that something is wrong
and then raises whatever comes first: walk.py finds out what and where, so the good case pays nothing for good errors.
What must be checked here: lengths below zero (they would move the position back), counts against what is left (they
would allocate), and by the caller that the end is within the buffer (slices stop silently).

The globals of a generated function name a loader that knows its source, so that a traceback shows its lines.
"""

from __future__ import annotations

from struct import Struct as Layout
from struct import pack, unpack_from

from minibroker.schema.plan import FIXED, SIZED, VARINTS, Field, Plan, Type, message_plan
from minibroker.schema.types import StructMeta

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def decoder(cls: Any, version: int) -> Callable[..., Any]:
    """Return f(buffer, position, end) -> (message, position behind it)."""
    source = _Source(f"{cls.__name__} v{version} decoder")
    source.line("def decode(buf, pos, end):")
    with source:
        plan = message_plan(cls, version)
        if _has_records(plan):
            source.line("view = memoryview(buf)")
        root = _Decoder(source).struct(plan)
        source.line(f"return {root}, pos")
    return source.function("decode")


def encoder(cls: Any, version: int) -> Callable[..., None]:
    """Return f(message, out) that hands the pieces of the message to `out`, one call each."""
    source = _Source(f"{cls.__name__} v{version} encoder")
    source.line("def encode(message, out):")
    with source:
        writer = _Encoder(source, "out")
        writer.struct(message_plan(cls, version), "message")
        writer.flush()
        source.line("return")
    return source.function("encode")


def constructor(cls: Any) -> Callable[..., None]:
    """Return the __init__ of a struct: keywords only, a field without a default must be given."""
    source = _Source(f"{cls.__qualname__} constructor")
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


def rows(
    cls: StructMeta, make: str, parameters: str, makes: dict[str, str], scope: dict[str, Any]
) -> Callable[..., Any]:
    """Return f(buf, pos, end, count, parameters) -> (list, position): `count` structs read one after another.

    make: what becomes of each struct, an expression over its fields, the parameters and `scope`; `makes` says the same
    for structs within it, by name. For formats of which a million come in a second: no object is made on the way.
    """
    from minibroker.schema.plan import plan

    source = _Source(f"{cls.__name__} rows")
    source.names.update(scope)
    source.line(f"def rows(buf, pos, end, count, {parameters}):")
    with source:
        source.line("made = []")
        source.line("add = made.append")
        source.line("for _ in range(count):")
        with source:
            value = _Decoder(source, {cls.__name__: make, **makes}).struct(plan(cls, 0, False))
            source.line(f"add({value})")
        source.line("return made, pos")
    return source.function("rows")


def read_uvarint(buf: Any, pos: int, bytes_max: int = 5) -> tuple[int, int]:
    """Read an unsigned varint: 7 bits a byte, low ones first. Five bytes carry 32 bits, ten carry 64.

    Kafka: drops the bits of the last byte that have no room; here such a number is too large.
    """
    value = shift = 0
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift == 7 * bytes_max:
            raise ValueError("varint too long")
    if value >> (32 if bytes_max == 5 else 64):
        raise ValueError("varint too large")
    return value, pos


def uvarint(value: int) -> bytes:
    """Return the bytes of an unsigned varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = [bytes((value,)) for value in range(0x80)]


def zigzag(value: int) -> int:
    """Return the unsigned number that a signed varint travels as."""
    return value << 1 if value >= 0 else ~(value << 1)


def skip_unknown_tags(message: Any, buf: Any, pos: int, end: int, count: int) -> int:
    """Keep `count` tagged fields that this version does not know, return the position behind them."""
    for _ in range(count):
        tag, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        keep_unknown_tag(message, tag, bytes(buf[pos : pos + size]))
        pos += size
        if pos > end:
            raise ValueError("tagged field beyond the end")
    return pos


def keep_unknown_tag(message: Any, tag: int, data: bytes) -> None:
    """Remember a tagged field for the way back.

    Kafka: takes a tag that comes twice, the last one wins; here it is an error, as nobody can mean it.
    """
    if message.unknown_tags is None:
        message.unknown_tags = {}
    if tag in message.unknown_tags:
        raise ValueError("tag twice")
    message.unknown_tags[tag] = data


def tagged_section(known: list[tuple[int, bytes]], unknown: dict[int, bytes] | None) -> bytes:
    """Return a tagged section: how many fields, then each with its tag and size, tags ascending."""
    fields = sorted([*known, *(unknown or {}).items()])
    parts = [uvarint(len(fields))]
    for tag, data in fields:
        parts += uvarint(tag), uvarint(len(data)), data
    return b"".join(parts)


_RUNTIME = {
    "read_uvarint": read_uvarint,
    "uvarint": uvarint,
    "zigzag": zigzag,
    "skip_unknown_tags": skip_unknown_tags,
    "keep_unknown_tag": keep_unknown_tag,
    "tagged_section": tagged_section,
    "unpack_from": unpack_from,
    "pack": pack,
    "new": object.__new__,
}


class _Source:
    """Lines of a function in the making, with the constants it refers to."""

    def __init__(self, title: str):
        self.title = title
        self.lines: list[str] = []
        self.indent = ""
        self.names: dict[str, Any] = dict(_RUNTIME)
        self.count = 0

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def __enter__(self) -> None:
        self.indent += "    "

    def __exit__(self, *_: object) -> None:
        self.indent = self.indent[4:]

    def fresh(self, prefix: str) -> str:
        """Return a variable name that is not yet in use."""
        self.count += 1
        return f"{prefix}{self.count}"

    def constant(self, value: object, prefix: str = "K") -> str:
        """Return a name under which the generated code finds `value`."""
        if value is None or type(value) in (bool, int, str, bytes):
            return repr(value)
        for name, known in self.names.items():
            if known is value:
                return name
        name = self.fresh(prefix)
        self.names[name] = value
        return name

    def layout(self, formats: str, method: str) -> str:
        """Return the name of the pack or unpack_from of a fixed layout."""
        name = f"{method}_{formats.replace('?', 'o')}"
        if name not in self.names:
            self.names[name] = getattr(Layout(">" + formats), method)
        return name

    def function(self, name: str) -> Callable[..., Any]:
        # What linecache asks for; importing it here would cost more than all else that is imported.
        filename = f"minibroker {self.title}"
        self.names |= {"__name__": filename, "__loader__": self}
        exec(compile(self.get_source(), filename, "exec"), self.names)
        made: Callable[..., Any] = self.names[name]
        return made

    def get_source(self, _: str = "") -> str:
        return "\n".join(self.lines) + "\n"


def _has_records(plan: Plan) -> bool:
    def within(type: Type) -> bool:
        if type.element:
            return within(type.element)
        return type.name == "Records" or (type.plan is not None and _has_records(type.plan))

    return any(within(field.type) for field in [*plan.fields, *plan.tagged])


class _Decoder:
    """Writes the statements that read values."""

    def __init__(self, source: _Source, makes: dict[str, str] | None = None):
        self.source = source
        self.makes = makes or {}  # struct name -> expression over its fields, in place of an object
        self.run: list[tuple[str, str]] = []  # fixed-width values not yet read: format, target
        self.depth = 0  # structs around the one being read

    def flush(self) -> None:
        """Read the fixed-width values collected so far in one call."""
        run, self.run = self.run, []
        line = self.source.line
        if not run:
            return
        size = Layout(">" + "".join(format for format, _ in run)).size
        if len(run) == 1 and run[0][0] == "B":
            line(f"{run[0][1]} = buf[pos]")
        else:
            formats = "".join(format for format, _ in run)
            targets = ", ".join(target for _, target in run)
            line(f"{targets}{',' if len(run) == 1 else ''} = {self.source.layout(formats, 'unpack_from')}(buf, pos)")
        line(f"pos += {size}")

    def struct(self, plan: Plan) -> str:
        """Read a struct; return the expression that stands for it."""
        line, cls = self.source.line, plan.cls
        name = self.source.fresh("s")
        prefix = name + "."
        made = self.makes.get(cls.__name__)
        if made is None:
            line(f"{name} = new({self.source.constant(cls, cls.__name__ + '_')})")
        else:
            # Fields become local variables: those of a struct within, Header say, are called Header_key, ...
            prefix = "" if self.depth == 0 else f"{cls.__name__}_"
        self.depth += 1
        stop = None
        for field in plan.fields:
            self.value(field.type, prefix + field.name, plan.flexible)
            if field.type.name == "SizeVarint":
                stop = self.source.fresh("e")
                line(f"{stop} = pos + {prefix}{field.name}")
        if plan.flexible:
            self.tags(plan, name)
        self.flush()
        if stop:
            line(f"if pos != {stop}: raise ValueError")
        self.depth -= 1
        return made or name

    def value(self, type: Type, target: str, flexible: bool) -> None:
        """Read one value into `target`."""
        if type.name in FIXED:
            self.run.append((FIXED[type.name][0], target))
        elif type.name in VARINTS:
            self.varint(type.name, target)
        elif type.name in SIZED:
            self.sized(type, target, flexible)
        elif type.name == "Struct":
            self.nested(type, target)
        else:
            self.array(type, target, flexible)

    def varint(self, name: str, target: str) -> None:
        line, size = self.source.line, self.source.fresh("n")
        self.run.append(("B", size))
        self.flush()
        line(f"if {size} > 127: {size}, pos = read_uvarint(buf, pos - 1, {VARINTS[name]})")
        line(f"{target} = ({size} >> 1) ^ -({size} & 1)")

    def length(self, type: Type, flexible: bool) -> tuple[str, str]:
        """Read a length or count; return its variable and the condition under which it means null."""
        line, size = self.source.line, self.source.fresh("n")
        if type.name.startswith("Varint"):
            self.varint("Varint", size)
            return size, f"{size} < 0"
        if type.name == "OldString" or not flexible:
            self.run.append(("h" if type.name in ("String", "OldString") else "i", size))
            self.flush()
            return size, f"{size} < 0"
        self.run.append(("B", size))
        self.flush()
        line(f"if {size} > 127: {size}, pos = read_uvarint(buf, pos - 1)")
        line(f"{size} -= 1")
        return size, f"{size} < 0"

    def sized(self, type: Type, target: str, flexible: bool) -> None:
        line = self.source.line
        size, is_null = self.length(type, flexible)
        # Any negative length is null, not only -1: so does Kafka.
        if type.nullable:
            line(f"if {is_null}: {target} = None")
            line("else:")
        else:
            line(f"if {is_null}: raise ValueError")
            line("if True:")
        with self.source:
            stop = self.source.fresh("e")
            line(f"{stop} = pos + {size}")
            if type.name.endswith("String"):
                # Broken UTF-8 becomes U+FFFD and is no error: so does Kafka.
                line(f'{target} = str(buf[pos:{stop}], "utf-8", "replace")')
            elif type.name == "Records":
                line(f"{target} = view[pos:{stop}]")
            else:
                line(f"{target} = bytes(buf[pos:{stop}])")
            line(f"pos = {stop}")

    def nested(self, type: Type, target: str) -> None:
        assert type.plan
        if not type.nullable:
            self.flush()
            self.source.line(f"{target} = {self.struct(type.plan)}")
            return
        present = self.source.fresh("n")
        self.run.append(("b", present))
        self.flush()
        self.source.line(f"if {present} < 0: {target} = None")
        self.source.line("else:")
        with self.source:
            self.source.line(f"{target} = {self.struct(type.plan)}")

    def array(self, type: Type, target: str, flexible: bool) -> None:
        line, element = self.source.line, type.element
        assert element
        size, is_null = self.length(type, flexible)
        if type.nullable:
            line(f"if {is_null}: {target} = None")
            line("else:")
        else:
            line(f"if {is_null}: raise ValueError")
            line("if True:")
        with self.source:
            line(f"if {size} > end - pos: raise ValueError")
            if element.name in FIXED and element.name != "Uuid":
                format, width = FIXED[element.name]
                line(f'{target} = list(unpack_from(f">{{{size}}}{format}", buf, pos))')
                line(f"pos += {size} * {width}" if width > 1 else f"pos += {size}")
                return
            items, add = self.source.fresh("a"), self.source.fresh("add")
            line(f"{items} = []")
            line(f"{add} = {items}.append")
            line(f"for _ in range({size}):")
            with self.source:
                if element.plan:
                    item = self.struct(element.plan)
                else:
                    item = self.source.fresh("v")
                    self.value(element, item, flexible)
                    self.flush()
                line(f"{add}({item})")
            line(f"{target} = {items}")

    def tags(self, plan: Plan, name: str) -> None:
        line, count = self.source.line, self.source.fresh("t")
        self.run.append(("B", count))
        self.flush()
        line(f"if {count}:")
        with self.source:
            line(f"if {count} > 127: {count}, pos = read_uvarint(buf, pos - 1)")
            if not plan.tagged:
                line(f"pos = skip_unknown_tags({name}, buf, pos, end, {count})")
                return
            seen, tag, size, stop = (self.source.fresh(prefix) for prefix in ("seen", "tag", "n", "e"))
            line(f"{seen} = set()")
            line(f"for _ in range({count}):")
            with self.source:
                line(f"{tag}, pos = read_uvarint(buf, pos)")
                line(f"{size}, pos = read_uvarint(buf, pos)")
                line(f"{stop} = pos + {size}")
                line(f"if {stop} > end or {tag} in {seen}: raise ValueError")
                line(f"{seen}.add({tag})")
                for index, field in enumerate(plan.tagged):
                    line(f"{'elif' if index else 'if'} {tag} == {field.tag}:")
                    with self.source:
                        self.value(field.type, f"{name}.{field.name}", plan.flexible)
                        self.flush()
                line("else:")
                with self.source:
                    line(f"keep_unknown_tag({name}, {tag}, bytes(buf[pos:{stop}]))")
                    line(f"pos = {stop}")
                line(f"if pos != {stop}: raise ValueError")


class _Encoder:
    """Writes the statements that hand out the pieces of a value."""

    def __init__(self, source: _Source, out: str):
        self.source = source
        self.out = out
        self.run: list[tuple[str, str]] = []  # fixed-width values not yet written: format, expression

    def flush(self, varint: str | None = None) -> None:
        """Write the fixed-width values collected so far in one call, a varint behind them."""
        run, self.run = self.run, []
        line = self.source.line
        formats = "".join(format for format, _ in run)
        values = ", ".join(value for _, value in run)
        if varint is None:
            if run:
                line(f"{self.out}({self.source.layout(formats, 'pack')}({values}))")
        elif not run:
            line(f"{self.out}(uvarint({varint}))")
        else:
            # Nearly every length fits into one byte and can share the call.
            short = self.source.layout(formats + "B", "pack")
            line(f"if {varint} < 128: {self.out}({short}({values}, {varint}))")
            line("else:")
            with self.source:
                line(f"{self.out}({self.source.layout(formats, 'pack')}({values}))")
                line(f"{self.out}(uvarint({varint}))")

    def struct(self, plan: Plan, value: str) -> None:
        fields = list(plan.fields)
        for index, field in enumerate(fields):
            if field.type.name == "SizeVarint":
                self.rest(plan, fields[index + 1 :], value)
                return
            self.value(field.type, f"{value}.{field.name}", plan.flexible)
        if plan.flexible:
            self.tags(plan, value)

    def rest(self, plan: Plan, fields: list[Field], value: str) -> None:
        """Write the rest of a struct behind its size."""
        self.flush()
        rest = self.source.fresh("rest")
        self.source.line(f"{rest} = []")
        within = _Encoder(self.source, f"{rest}.append")
        for field in fields:
            within.value(field.type, f"{value}.{field.name}", plan.flexible)
        within.flush()
        self.source.line(f"{rest} = b''.join({rest})")
        self.source.line(f"{self.out}(uvarint(len({rest}) << 1))")
        self.source.line(f"{self.out}({rest})")

    def value(self, type: Type, value: str, flexible: bool) -> None:
        """Write one value."""
        if type.name in FIXED:
            if type.name == "Uuid":
                self.source.line(f"if len({value}) != 16: raise ValueError('a uuid has 16 bytes')")
            self.run.append((FIXED[type.name][0], value))
        elif type.name in VARINTS:
            self.flush(f"zigzag({value})")
        elif type.name in SIZED:
            self.sized(type, value, flexible)
        elif type.name == "Struct":
            self.nested(type, value)
        else:
            self.array(type, value, flexible)

    def length(self, type: Type, size: str, flexible: bool) -> None:
        """Write a length or count, given as the name of a variable that is -1 for null."""
        if type.name.startswith("Varint"):
            self.flush(f"zigzag({size})")
        elif type.name == "OldString" or not flexible:
            self.run.append(("h" if type.name in ("String", "OldString") else "i", size))
        else:
            self.source.line(f"{size} += 1")
            self.flush(size)

    def sized(self, type: Type, value: str, flexible: bool) -> None:
        line, data, size = self.source.line, self.source.fresh("d"), self.source.fresh("n")
        encode = ".encode()" if type.name.endswith("String") else ""
        if type.nullable:
            line(f"{data} = {value}")
            line(f"if {data} is None: {data} = b''; {size} = -1")
            line("else:")
            with self.source:
                if encode:
                    line(f"{data} = {data}{encode}")
                line(f"{size} = len({data})")
        else:
            line(f"{data} = {value}{encode}")
            line(f"{size} = len({data})")
        self.length(type, size, flexible)
        self.flush()
        line(f"{self.out}({data})")

    def nested(self, type: Type, value: str) -> None:
        assert type.plan
        name = self.source.fresh("s")
        if not type.nullable:
            self.source.line(f"{name} = {value}")
            self.struct(type.plan, name)
            return
        self.flush()
        self.source.line(f"{name} = {value}")
        self.source.line(f"if {name} is None: {self.out}(b'\\xff')")
        self.source.line("else:")
        with self.source:
            self.source.line(f"{self.out}(b'\\x01')")
            self.struct(type.plan, name)
            self.flush()

    def array(self, type: Type, value: str, flexible: bool) -> None:
        line, element = self.source.line, type.element
        assert element
        items, size = self.source.fresh("a"), self.source.fresh("n")
        line(f"{items} = {value}")
        if type.nullable:
            line(f"if {items} is None: {items} = (); {size} = -1")
            line(f"else: {size} = len({items})")
        else:
            line(f"{size} = len({items})")
        if element.name in FIXED and element.name != "Uuid":
            self.length(type, size, flexible)
            self.flush()
            line(f'if {items}: {self.out}(pack(f">{{len({items})}}{FIXED[element.name][0]}", *{items}))')
            return
        self.length(type, size, flexible)
        self.flush()
        item = self.source.fresh("s")
        line(f"for {item} in {items}:")
        with self.source:
            if element.plan:
                self.struct(element.plan, item)
            else:
                self.value(element, item, flexible)
            self.flush()

    def tags(self, plan: Plan, value: str) -> None:
        line = self.source.line
        if not plan.tagged:
            tags = self.source.fresh("t")
            line(f"{tags} = {value}.unknown_tags")
            line(f"if {tags}:")
            with self.source:
                run = list(self.run)
                self.flush()
                line(f"{self.out}(tagged_section([], {tags}))")
            self.run = [*run, ("B", "0")]
            line("else:")
            with self.source:
                self.flush()
            return
        known = self.source.fresh("tags")
        line(f"{known} = []")
        for field in plan.tagged:
            self.tagged(field, f"{value}.{field.name}", known, plan.flexible)
        line(f"if {known} or {value}.unknown_tags:")
        with self.source:
            run = list(self.run)
            self.flush()
            line(f"{self.out}(tagged_section({known}, {value}.unknown_tags))")
        self.run = [*run, ("B", "0")]
        line("else:")
        with self.source:
            self.flush()

    def tagged(self, field: Field, value: str, known: str, flexible: bool) -> None:
        """Add a tagged field to the list unless it has its default: then it does not travel."""
        line, name = self.source.line, self.source.fresh("v")
        default = self.source.constant(field.default)
        line(f"{name} = {value}")
        line(f"if {name} is not {default} and {name} != {default}:" if default.startswith("K") else
             f"if {name} != {default}:" if default != "None" else f"if {name} is not None:")  # fmt: skip
        with self.source:
            part = self.source.fresh("part")
            line(f"{part} = []")
            within = _Encoder(self.source, f"{part}.append")
            within.value(field.type, name, flexible)
            within.flush()
            line(f"{known}.append(({field.tag}, b''.join({part})))")
