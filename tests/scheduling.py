"""Which worker of xdist runs which test: each gets the next one, but all that need Spark go to one and the same.

They share a session there, which takes seconds to start and minutes to become quick.
xdist has groups for this (`--dist loadgroup`), but those of 3.8 are lost with pytest 9.2, which keeps names of tests
elsewhere. Here the name says enough: the process that hands out has not collected the tests itself.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parents[1]
FIXTURES = {"spark", "connector"}


class SparkInOnePlace(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        path, _, name = nodeid.partition("::")
        return "spark" if name.partition("[")[0] in needing_spark(path) else nodeid


@cache
def needing_spark(path: str) -> frozenset[str]:
    """Return the tests of a file that use the session."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(
        each.name
        for each in tree.body
        if isinstance(each, ast.FunctionDef) and FIXTURES & {argument.arg for argument in each.args.args}
    )
