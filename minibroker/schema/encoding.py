"""Writes the statements that hand out the pieces of a value, in the order of the wire."""

from __future__ import annotations

from minibroker.schema.bounds import NUMBERS_BITS, PIECE
from minibroker.schema.plan import FIXED, SIZED, VARINTS, Field, Plan, Type
from minibroker.schema.source import SHORT, Source


class EncoderWriter:
    """Writes the statements that hand out the pieces of a value."""

    def __init__(self, source: Source, out: str, *, in_pieces: bool = False):
        self.source = source
        self.in_pieces = in_pieces
        self.out = out
        self.run: list[tuple[str, str]] = []  # fixed-width values not yet written: format, expression

    def flush(self, varint: str | None = None, write: str = "uvarint") -> None:
        """Write the fixed-width values collected so far in one call, a varint behind them.

        write: what makes the bytes of the varint.
        """
        run, self.run = self.run, []
        line = self.source.line
        formats = "".join(format for format, _ in run)
        values = ", ".join(value for _, value in run)
        if varint is None:
            if run == [("B", "0")]:
                line(f"{self.out}.append(b'\\0')")
            elif run:
                line(f"{self.out}.append({self.source.layout(formats, 'pack')}({values}))")
        elif not run:
            line(f"{self.out}.append(ONE_BYTE[{varint}] if {varint} < 128 else {write}({varint}))")
        else:
            # Nearly every length fits into one byte and can share the call.
            short = self.source.layout(formats + "B", "pack")
            line(f"if {varint} < 128: {self.out}.append({short}({values}, {varint}))")
            line("else:")
            with self.source:
                line(f"{self.out}.append({self.source.layout(formats, 'pack')}({values}))")
                line(f"{self.out}.append({write}({varint}))")

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
        within = EncoderWriter(self.source, rest, in_pieces=self.in_pieces)
        for field in fields:
            within.value(field.type, f"{value}.{field.name}", plan.flexible)
        within.flush()
        self.source.line(f"{rest} = b''.join({rest})")
        self.source.line(f"{self.out}.append(uvarint(len({rest}) << 1))")
        self.source.line(f"{self.out}.append({rest})")

    def value(self, type: Type, value: str, flexible: bool) -> None:
        """Write one value."""
        if type.name in FIXED:
            if type.name == "Uuid":
                self.source.line(f"if len({value}) != 16: raise ValueError('a uuid has 16 bytes')")
            self.run.append((FIXED[type.name][0], value))
        elif type.name in VARINTS:
            self.zigzag(value)
        elif type.name in SIZED:
            self.sized(type, value, flexible)
        elif type.name == "Struct":
            self.nested(type, value)
        else:
            self.array(type, value, flexible)

    def zigzag(self, value: str) -> None:
        number = self.source.fresh("z")  # flush names it more than once
        self.source.line(f"{number} = zigzag({value})")
        self.flush(number)

    def length(self, type: Type, size: str, flexible: bool) -> None:
        """Write a length or count, given as the name of a variable that is -1 for null."""
        if type.name.startswith("Varint"):
            self.zigzag(size)
        elif type.name == "OldString" or not flexible:
            self.run.append(("h" if type.name in ("String", "OldString") else "i", size))
        else:
            self.source.line(f"{size} += 1")
            self.flush(size, "string_uvarint" if type.name == "String" else "uvarint")

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
        line(f"{self.out}.append({data})")

    def nested(self, type: Type, value: str) -> None:
        assert type.plan
        name = self.source.fresh("s")
        if not type.nullable:
            self.source.line(f"{name} = {value}")
            self.struct(type.plan, name)
            return
        self.flush()
        self.source.line(f"{name} = {value}")
        self.source.line(f"if {name} is None: {self.out}.append({bytes([type.null_marker & 0xFF])!r})")
        self.source.line("else:")
        with self.source:
            self.source.line(f"{self.out}.append(b'\\x01')")
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
        if element.name in FIXED and element.name != "Uuid" and not type.name.startswith("Varint"):
            # A short one shares the call of what precedes it, its length included.
            format, run = FIXED[element.name][0], list(self.run)
            if self.in_pieces:
                line(f"piece -= {size} >> {NUMBERS_BITS}")
                line(f"if piece <= 0: yield {PIECE} - piece; piece = {PIECE}")
            head = "".join(format for format, _ in run) + ("B" if flexible else "i")
            values = "".join(f"{value}, " for _, value in run) + (f"{size} + 1" if flexible else size)
            line(f"if 0 < {size} < {SHORT}:")
            with self.source:
                line(f"{self.out}.append({self.source.layouts(head, format, 'pack')}[{size}]({values}, *{items}))")
            line("else:")
            with self.source:
                self.length(type, size, flexible)
                self.flush()
                line(f'if {items}: {self.out}.append(pack(f">{{len({items})}}{format}", *{items}))')
            return
        self.length(type, size, flexible)
        self.flush()
        item = self.source.fresh("s")
        line(f"for {item} in {items}:")
        with self.source:
            if self.in_pieces:
                line("piece -= 1")
                line(f"if piece <= 0: yield {PIECE} - piece; piece = {PIECE}")
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
                line(f"{self.out}.append(tagged_section([], {tags}))")
            self.run = [*run, ("B", "0")]
            line("else:")
            with self.source:
                self.flush()
            return
        # Nearly always every one has its default, as the same object that the declaration names: one test for all.
        tests = [f"not {value}.unknown_tags"]
        for field in plan.tagged:
            default = self.source.constant(field.default)
            same = "is" if default.startswith("K") or default == "None" else "=="
            tests.append(f"{value}.{field.name} {same} {default}")
        run = list(self.run)
        self.run = [*run, ("B", "0")]
        line(f"if {' and '.join(tests)}:")
        with self.source:
            self.flush()
        line("else:")
        with self.source:
            self.run = run
            self.flush()
            known = self.source.fresh("tags")
            line(f"{known} = []")
            for field in plan.tagged:
                self.tagged(field, f"{value}.{field.name}", known, plan.flexible)
            line(f"{self.out}.append(tagged_section({known}, {value}.unknown_tags))")

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
            within = EncoderWriter(self.source, part, in_pieces=self.in_pieces)
            within.value(field.type, name, flexible)
            within.flush()
            line(f"{known}.append(({field.tag}, b''.join({part})))")
