"""The comments of declarations, read from their source: what a pupil sees in the file, `explain` shows at the bytes.

A field's comment stands behind it on its line, or on lines of its own above it. Read when somebody asks, never before;
without source (a stripped installation) there are none.
"""

from __future__ import annotations

import ast
import linecache
import sys
from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.schema.types import StructMeta


def field_comment(cls: StructMeta | None, field: str) -> str:
    """Return the comment of a field, or nothing."""
    if cls is None:
        return ""
    return _module_comments(cls.__module__).get(f"{cls.__qualname__}.{field}", "")


@cache
def _module_comments(module: str) -> dict[str, str]:
    """Return the comments of all fields declared in a module, by qualified name."""
    loaded = sys.modules[module]
    lines = linecache.getlines(loaded.__file__ or "", vars(loaded))
    found: dict[str, str] = {}

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                comment = _behind(lines, node) or _above(lines, node.lineno - 1)
                if comment:
                    found[prefix + node.target.id] = comment

    visit(ast.parse("".join(lines)).body, "")
    return found


def _behind(lines: list[str], node: ast.AnnAssign) -> str:
    # ast counts columns in UTF-8 bytes.
    rest = lines[(node.end_lineno or node.lineno) - 1].encode()[node.end_col_offset or 0 :].decode()
    return rest.partition("#")[2].strip()


def _above(lines: list[str], index: int) -> str:
    above: list[str] = []
    while index > 0 and lines[index - 1].lstrip().startswith("#"):
        index -= 1
        above.insert(0, lines[index].strip().lstrip("# "))
    return " ".join(above)
