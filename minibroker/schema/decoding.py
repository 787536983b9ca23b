"""Writes the statements that read values: what they check and what not is said in compile.py."""

from __future__ import annotations

from struct import Struct as Layout

from minibroker.schema.bounds import PIECE
from minibroker.schema.plan import FIXED, SIZED, VARINTS, Plan, Type
from minibroker.schema.source import SHORT, Source
from minibroker.schema.varint import STRING_BYTES_MAX


class DecoderWriter:
    """Writes the statements that read values."""

    def __init__(
        self,
        source: Source,
        *,
        elements_max: int = 0,
        in_pieces: bool = False,
    ):
        """elements_max: `left` says how many there may still be; 0: any number. in_pieces: yields again and again."""
        self.elements_max = elements_max
        self.in_pieces = in_pieces
        self.source = source
        self.run: list[tuple[str, str]] = []  # fixed-width values not yet read: format, target

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
        line(f"{name} = new({self.source.constant(cls, cls.__name__ + '_')})")
        stop = None
        for field in plan.fields:
            self.value(field.type, f"{name}.{field.name}", plan.flexible)
            if field.type.name == "SizeVarint":
                stop = self.source.fresh("e")
                line(f"{stop} = pos + {name}.{field.name}")
        if plan.flexible:
            self.tags(plan, name)
        self.flush()
        if stop:
            line(f"if pos != {stop}: raise ValueError")
        return name

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
        line(f"if {size} > 127:")
        with self.source:
            # Two bytes are common enough to be read without a call.
            second = self.source.fresh("b")
            line(f"{second} = buf[pos]")
            line(f"if {second} < 128: {size} += ({second} - 1) << 7; pos += 1")
            line(f"else: {size}, pos = read_uvarint(buf, pos - 1, {VARINTS[name]})")
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
        line(f"if {size} > 127:")
        with self.source:
            line(f"{size}, pos = read_uvarint(buf, pos - 1)")
            if type.name == "String":
                line(f"if {size} > {STRING_BYTES_MAX + 1}: raise ValueError")
        line(f"{size} -= 1")
        return size, f"{size} < 0"

    def sized(self, type: Type, target: str, flexible: bool) -> None:
        line = self.source.line
        size, is_null = self.length(type, flexible)
        if type.name.endswith("String"):
            line(f"if {size} < 1:")  # empty ones are common, and quicker without a call
            with self.source:
                if type.nullable:
                    line(f"{target} = None if {is_null} else ''")
                else:
                    line(f"if {is_null}: raise ValueError")
                    line(f"{target} = ''")
            line("else:")
        else:
            self.unless_null(type, target, is_null)
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

    def unless_null(self, type: Type, target: str, is_null: str) -> None:
        """Open the block for a value that is there. Any negative length is null, not only -1: so does Kafka."""
        if type.nullable:
            self.source.line(f"if {is_null}: {target} = None")
            self.source.line("else:")
        else:
            self.source.line(f"if {is_null}: raise ValueError")
            self.source.line("if True:")

    def nested(self, type: Type, target: str) -> None:
        assert type.plan
        if not type.nullable:
            self.flush()
            self.source.line(f"{target} = {self.struct(type.plan)}")
            return
        present = self.source.fresh("n")
        self.run.append(("b", present))
        self.flush()
        self.source.line(f"if {present} <= {type.null_marker}: {target} = None")
        self.source.line("else:")
        with self.source:
            self.source.line(f"{target} = {self.struct(type.plan)}")

    def array(self, type: Type, target: str, flexible: bool) -> None:
        line, element = self.source.line, type.element
        assert element
        size, is_null = self.length(type, flexible)
        self.unless_null(type, target, is_null)
        with self.source:
            line(f"if {size} > end - pos: raise ValueError")
            self.count(size)
            if element.name in FIXED and element.name != "Uuid":
                format, width = FIXED[element.name]
                line(f"if not {size}: {target} = []")  # common, and quicker without a call
                line("else:")
                with self.source:
                    layouts = self.source.layouts("", format, "unpack_from")
                    line(f"if {size} < {SHORT}: {target} = [*{layouts}[{size}](buf, pos)]")
                    line(f'else: {target} = [*unpack_from(f">{{{size}}}{format}", buf, pos)]')
                    line(f"pos += {size} * {width}" if width > 1 else f"pos += {size}")
                return
            items = self.source.fresh("a")
            line(f"{items} = []")
            line(f"while {size}:")
            with self.source:
                line(f"{size} -= 1")
                if self.in_pieces:
                    line("piece -= 1")
                    line(f"if not piece: piece = {PIECE}; yield {PIECE}")
                if element.plan:
                    item = self.struct(element.plan)
                else:
                    item = self.source.fresh("v")
                    self.value(element, item, flexible)
                    self.flush()
                line(f"{items}.append({item})")
            line(f"{target} = {items}")

    def count(self, size: str) -> None:
        """Take elements, or tagged fields, from those that a request may have."""
        if self.elements_max:
            self.source.line(f"left -= {size}")
            self.source.line(f"if left < 0: too_many(pos, end, {self.elements_max})")

    def tags(self, plan: Plan, name: str) -> None:
        line, count = self.source.line, self.source.fresh("t")
        self.run.append(("B", count))
        self.flush()
        line(f"if {count}:")
        with self.source:
            line(f"if {count} > 127: {count}, pos = read_uvarint(buf, pos - 1)")
            self.count(count)
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
