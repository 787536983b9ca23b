"""Mutants: small changes to the core, one at a time, and whether the quick tests of its part notice them.

    make mutants PART=log SAMPLE=50 SEED=1
    python -m tests.mutants groups --sample 50 --seed 1 [--only classic.py] [--show 17]

A part is a folder of minibroker and the tests that are its own (PARTS). All its tests run once, and it is noted which
functions each of them enters. Then, for each mutant of a sample, a fork gets the code of the changed function in place
of the old one and runs the tests that enter it, the quickest first, until one fails. What no test notices is printed;
it asks for a test, or shows that the line does nothing, and goes. Exit status 1 if less than NOTICED_MIN are noticed.

What must hold: the files stay as they are (functions change in memory, in the fork); the seed is the whole choice; a
mutant that never ends, or eats memory, counts as noticed.
Not here: code at the level of modules and classes (tables, schemas), assertions, texts of errors. What a function
returned while modules were imported stays, so a change to one that makes code (record_walks.py) is not noticed.
"""

from __future__ import annotations

import argparse
import ast
import gc
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from types import CodeType, FrameType, FunctionType
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PARTS = {  # folder of minibroker -> tests that are its own
    "log": ["tests/log"],
    "replication": ["tests/replication", "tests/cluster"],
    "groups": ["tests/groups"],
    "transactions": [
        "tests/transactions",
        "tests/broker/handlers/test_transactions.py",
        "tests/broker/handlers/test_long_transactions.py",
        "tests/broker/test_transactions_on_failing_disks.py",
        "tests/broker/test_transactions_and_a_model.py",
        "tests/cluster/test_transactions.py",
        "tests/cluster/test_transaction_faults.py",
    ],
    "coordinator": [
        "tests/coordinator",
        "tests/groups/test_coordinator_log.py",
        "tests/groups/test_loading.py",
        "tests/transactions/test_partition.py",
    ],
    "cleaner": ["tests/cleaner"],
    "broker/handlers": ["tests/broker", "tests/server", "tests/differential/test_sessions.py"],
}
QUICK = "not interop and not slow and not fuzz"
NOTICED_MIN = 0.9
SECONDS_MIN = 20  # of processor time that a mutant has at least
MEMORY_BYTES_MAX = 4 << 30
OTHER_WAY = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}


class Mutant(NamedTuple):
    """One change: which function of which file, the line, and what stands there before and after."""

    path: str
    function_line: int  # of `def`, or of its first decorator: how code objects count
    line: int
    before: str
    after: str
    code: CodeType

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before}  ->  {self.after}"


# Making mutants


def changes(node: ast.AST) -> Iterator[ast.AST | None]:
    """Yield what may stand in place of a node of a function's body; None: nothing at all."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in OTHER_WAY:
            yield ast.Compare(node.left, [OTHER_WAY[type(op)]()], node.comparators)
        case ast.BoolOp():
            yield ast.BoolOp(OTHER_WAY[type(node.op)](), node.values)
            for index in range(len(node.values)):
                kept = node.values[:index] + node.values[index + 1 :]
                yield kept[0] if len(kept) == 1 else ast.BoolOp(node.op, kept)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.BinOp() if type(node.op) in OTHER_WAY:
            yield ast.BinOp(node.left, OTHER_WAY[type(node.op)](), node.right)
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int()):
            yield ast.Constant(node.value + 1)
        case ast.If() | ast.IfExp() | ast.While():
            for value in (False, True) if not isinstance(node, ast.While) else (False,):
                changed = deepcopy(node)
                changed.test = ast.Constant(value)
                yield changed
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Continue() | ast.Break():
            yield None
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.Delete():
            yield None


def in_bodies(function: ast.AST) -> Iterator[tuple[ast.AST, str, int | None]]:
    """Yield (parent, field, index) of each node that may change: not texts of errors, assertions or annotations."""
    for field, value in ast.iter_fields(function):
        if field in {"decorator_list", "args", "returns", "annotation", "name"}:
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Assert | ast.Raise | ast.JoinedStr):
                continue
            yield function, field, index
            yield from in_bodies(child)


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions and methods of a module, not those within others: they change with these."""
    todo: list[ast.stmt] = list(tree.body)
    for each in todo:
        if isinstance(each, ast.ClassDef):
            todo += each.body
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name not in {"__repr__", "__str__"}:
            yield each


def code_of(whole: CodeType, name: str, first_line: int) -> CodeType | None:
    """Find the code of a function in that of its module."""
    for each in whole.co_consts:
        if isinstance(each, CodeType):
            if (each.co_name, each.co_firstlineno) == (name, first_line):
                return each
            if (found := code_of(each, name, first_line)) is not None:
                return found
    return None


def places_of(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, ast.AST, str, int | None]]:
    for function in functions(tree):
        for place in list(in_bodies(function)):
            yield function, *place


def count_of(path: Path) -> int:
    """Count the mutants of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return sum(1 for _, *place in places_of(tree) for _ in changes(get(*place)))


def mutants_of(path: Path, numbers: set[int]) -> Iterator[Mutant]:
    """Make the mutants of a file that have these numbers."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    number = -1
    for function, *place in places_of(tree):
        old = get(*place)
        for change in changes(old):
            number += 1
            if number not in numbers:
                continue
            new: ast.AST = ast.Pass() if change is None else change
            ast.fix_missing_locations(ast.copy_location(new, old))
            put(*place, new)
            first_line = min([function.lineno, *(each.lineno for each in function.decorator_list)])
            code = code_of(compile(tree, str(path), "exec", dont_inherit=True), function.name, first_line)
            put(*place, old)
            assert code is not None, (path, function.name)
            texts = [ast.unparse(each).splitlines()[0] for each in (old, new)]
            yield Mutant(path.relative_to(ROOT).as_posix(), first_line, old.lineno, *texts, code)


def get(parent: ast.AST, field: str, index: int | None) -> ast.AST:
    value = getattr(parent, field)
    return value if index is None else value[index]


def put(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


# Trying them


class Trial:
    """A plugin of pytest that runs the collected tests once, and then, in forks, with one mutant after the other."""

    def __init__(self, mutants: list[Mutant]):
        self.mutants = mutants
        self.survivors: list[tuple[Mutant, int]] = []  # and how many tests entered its function
        self.entered: dict[tuple[str, int], list[pytest.Item]] = {}
        self._seconds: dict[pytest.Item, float] = {}
        self._failed = False

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings

        settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate], database=None, derandomize=True)
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        places = {(str(ROOT / each.path), each.function_line) for each in self.mutants}
        items = [each for each in session.items if self._run_recorded(each, places)]
        print(f"\n{len(items)} tests in {sum(self._seconds.values()):.0f} s; {len(self.mutants)} mutants", flush=True)
        gc.collect()
        for number, mutant in enumerate(self.mutants):
            items = self.entered.get((str(ROOT / mutant.path), mutant.function_line), [])
            items.sort(key=lambda item: self._seconds[item])
            if not self._is_noticed(mutant, items):
                self.survivors.append((mutant, len(items)))
                print(f"{number}: {mutant}  ({len(items)} tests)", flush=True)
        return True

    def _run_recorded(self, item: pytest.Item, places: set[tuple[str, int]]) -> bool:
        """Run a test, and note which of the functions it enters; return whether it passed."""
        entered = set()

        def note(frame: FrameType, event: str, argument: object) -> None:
            code = frame.f_code
            if event == "call" and (place := (code.co_filename, code.co_firstlineno)) in places:
                entered.add(place)

        self._failed = False
        before = time.process_time()
        sys.setprofile(note)  # settrace belongs to tests that count steps
        try:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        finally:
            sys.setprofile(None)
        self._seconds[item] = time.process_time() - before
        if self._failed:
            print(f"fails without a mutant, and is left out: {item.nodeid}")
            return False
        for place in entered:
            self.entered.setdefault(place, []).append(item)
        return True

    def _is_noticed(self, mutant: Mutant, items: list[pytest.Item]) -> bool:
        sys.stdout.flush()
        if not items:
            return False
        child = os.fork()
        if child:
            return os.waitpid(child, 0)[1] != 0
        seconds = SECONDS_MIN + 3 * int(sum(self._seconds[each] for each in items))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        signal.alarm(4 * seconds)  # for one that waits for ever
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        try:
            put_in_place(mutant)
            self._failed = False
            for item in items:
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
                if self._failed:
                    os._exit(1)
            os._exit(0)
        finally:
            os._exit(2)


def put_in_place(mutant: Mutant) -> None:
    """Give every function that was made of the old code the new one."""
    filename = str(ROOT / mutant.path)
    found = 0
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            code = each.__code__
            if code.co_filename == filename and code.co_firstlineno == mutant.function_line:
                each.__code__ = mutant.code
                found += 1
    assert found, f"{mutant}: nobody has this function"


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.split("\n")[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--sample", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="*.py", help="files of the part, as a pattern")
    asked = parser.parse_args(words)
    paths = sorted((ROOT / "minibroker" / asked.part).glob(asked.only))
    every = [(path, number) for path in paths for number in range(count_of(path))]
    chosen = Random(asked.seed).sample(every, min(asked.sample, len(every)))
    sample = [each for path in paths for each in mutants_of(path, {number for one, number in chosen if one == path})]
    trial = Trial(sample)
    quiet = ["-o", "addopts=", "-n0", "-p", "no:cacheprovider", "-p", "no:terminal"]
    status = pytest.main([*quiet, "-m", QUICK, *PARTS[asked.part]], plugins=[trial])
    assert status < 2, status
    noticed = len(sample) - len(trial.survivors)
    print(f"{asked.part}: {noticed} of {len(sample)} noticed, out of {len(every)} mutants")
    return noticed < NOTICED_MIN * len(sample)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
