"""The rules of the house that a machine can check, over our own source.

What must hold: imports point down; time, files, sockets and chance come in by their doors; importing a message or a
record loads nothing heavy; every module says what it is; what we import is declared, what can be set is documented.
A rule that does not bite is worse than none, so the two scanners have tests of their own on made-up source.
"""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from minibroker.config.tables import broker_settings, group_settings, other_settings, topic_settings

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "minibroker"
MODULES = sorted(PACKAGE.rglob("*.py"))
SCRIPTS = sorted([*(ROOT / "bench").rglob("*.py"), *(ROOT / "docs").rglob("*.py")])

# Which parts a part may import. The root package imports nothing; a new part needs a row, a new arrow an ADR.
MAY_IMPORT: dict[str, set[str]] = {
    "__init__": set(),
    "__main__": {"cli"},
    "errors": set(),
    "clock": set(),
    "in_pieces": set(),
    "events": {"clock"},
    "audit_kinds": {"events"},
    "state_kinds": {"events"},
    "trouble_kinds": {"events"},
    "event_kinds": {"events", "audit_kinds", "state_kinds", "trouble_kinds"},
    "turns": {"errors"},
    "reporter": set(),
    "taught": set(),
    "schema": {"errors"},
    "protocol": {"schema", "errors", "stored"},  # stored only by name: `message("OffsetCommitValue")`
    "stored": {"schema", "errors"},
    "log": {"schema", "errors", "stored", "in_pieces"},
    "metadata": {"errors", "in_pieces", "protocol", "stored", "log"},
    "config": {"errors", "log"},
    "parts": {"errors", "clock", "turns", "reporter", "events", "log", "metadata", "config"},
    "replication": {
        *("errors", "in_pieces", "clock", "turns", "reporter", "events", "event_kinds"),
        *("protocol", "log", "metadata", "config", "quotas", "parts"),
    },
    "controller": {
        *("errors", "in_pieces", "events", "event_kinds", "protocol", "stored", "metadata", "config", "security"),
    },
    "coordinator": {"errors", "clock", "turns", "event_kinds", "log", "parts", "replication"},
    "groups": {
        *("errors", "clock", "turns", "event_kinds"),
        *("protocol", "stored", "log", "metadata", "config", "parts", "replication", "coordinator"),
    },
    "transactions": {
        *("errors", "clock", "reporter", "event_kinds"),
        *("protocol", "stored", "log", "metadata", "config", "parts", "replication", "coordinator"),
    },
    "cleaner": {
        *("errors", "in_pieces", "clock", "event_kinds"),
        *("schema", "stored", "log", "metadata", "parts", "replication"),
    },
    "client": {"__init__", "clock", "schema", "errors", "protocol", "log"},
    "security": {"errors", "clock", "events", "event_kinds", "protocol", "stored", "metadata", "config"},
    "view": {
        *("errors", "clock", "in_pieces", "turns", "taught", "events", "event_kinds", "schema"),
        *("log", "metadata", "replication", "tools"),
    },
    "quotas": {"errors", "metadata"},
    "instances": {"config", "events", "event_kinds", "metadata", "schema", "protocol"},
    "server": {"errors", "clock", "turns", "reporter", "security", "quotas"},
    "faults": {"errors", "in_pieces", "clock", "events", "event_kinds", "schema", "protocol", "server"},
    "traffic": {"errors", "clock", "turns", "reporter", "schema", "protocol", "log", "server", "client"},
    "broker": {
        *("errors", "clock", "in_pieces", "turns", "reporter", "events", "event_kinds"),
        *("schema", "protocol", "stored", "log", "metadata", "config", "parts"),
        *("replication", "controller", "coordinator", "groups", "transactions", "cleaner", "security", "quotas"),
        *("instances", "server", "faults", "view", "taught"),
    },
    "cluster": {
        *("errors", "clock", "turns", "reporter", "events", "event_kinds", "taught"),
        *("protocol", "stored", "log", "metadata", "config", "quotas", "instances", "parts"),
        *("replication", "controller", "groups", "transactions", "cleaner", "security", "broker", "view"),
        "server",  # what stands before a broker's dispatcher, as a type
    },
    "embedded": {
        *("errors", "clock", "reporter", "events", "event_kinds", "log", "metadata", "config"),
        *("replication", "groups", "transactions", "cleaner", "security", "server", "faults", "broker", "cluster"),
        *("client", "simulation", "traffic"),
    },
    "serve": {
        *("errors", "clock", "events", "log", "metadata", "config", "security", "server", "faults", "broker"),
        *("embedded", "traffic", "reporter"),
    },
    "simulation": {"clock", "events", "event_kinds", "log"},
    "tools": {"schema", "errors", "in_pieces", "protocol", "stored", "log"},
    "watch": {"cluster", "event_kinds"},  # of the feed the JSON alone
    "lessons": {
        *("errors", "clock", "reporter", "events", "event_kinds", "protocol", "stored", "log", "replication"),
        *("cluster", "client", "security", "simulation", "tools", "watch", "taught"),
    },
    "spark": {
        *("clock", "errors", "in_pieces", "schema", "stored", "protocol", "log", "metadata", "config", "controller"),
        *("cleaner", "client", "tools"),
    },
    "cli": {
        *("__init__", "errors", "clock", "events", "protocol", "log", "client", "cluster", "tools", "serve"),
        *("lessons", "taught", "watch", "spark", "view", "event_kinds"),  # of view the reducer alone
        "groups",  # only the expressions that members bring, for --validate-regex
        "security",  # only access rules and what they decide, for acls and who-may
        "quotas",  # only whose limit holds
        *("traffic", "reporter", "server"),  # of server a type
    },
    "pytest_plugin": {"embedded"},
}
# Modules of a part that import each other in a circle, types and imports within functions included. The list may only
# shrink: who holds one of them has to hold all of them.
CIRCLES = (
    "groups: classic classic_rebalance",
    "server: connection http server",
    "config: broker listeners start",
)
HANDED_OUT = ("__init__", "embedded")  # by the root when somebody asks for Broker or Cluster, so nothing depends on it


class Door(NamedTuple):
    """Names of the outside world, and the only files that may say them."""

    keepers: tuple[str, ...]  # paths below minibroker/; a folder ends with a slash
    banned: str  # matches the whole dotted name; a method of an unknown object reads `?.name`


FILE_CALLS = (
    "open|listdir|scandir|walk|stat|lstat|remove|unlink|rename|replace|mkdir|makedirs|rmdir|truncate|ftruncate|"
    "fsync|fdatasync|read|write|pread|pwrite|sendfile|link|symlink|path\\.(exists|isfile|isdir|getsize|getmtime)"
)
DOORS = {
    "time": Door(
        ("clock/", "simulation/"),
        r"time\.(time|monotonic|perf_counter|process_time)(_ns)?|time\.(sleep|localtime)"
        r"|datetime\.(datetime|date)\.(now|utcnow|today)"
        r"|asyncio\.(sleep|wait_for|timeout|timeout_at)|\?\.(call_later|call_at)",
    ),
    "files": Door(
        (
            "log/storage.py",
            "log/read_only_storage.py",
            "log/copying.py",  # clones, of which a storage knows nothing
            "cli/",
            "serve.py",
            "spark/java.py",
            "spark/packing.py",
            "security/named_files.py",
            "server/buffers.py",  # maps of memory, of no file
            "security/tls.py",  # keystores, which a setting names
            "security/throwaway_ca.py",
            "embedded/client_settings.py",  # what has been made there, for clients that take no files
            "embedded/writing.py",  # rows that a test puts into a topic
            "traffic/files.py",  # recordings, which an option names
            "log/pages.py",  # the same, and how this machine counts addresses
        ),
        rf"(io\.)?open|os\.({FILE_CALLS})|mmap\.mmap|(pathlib|shutil|tempfile)(\..*)?"
        r"|\?\.(read_text|write_text|read_bytes|write_bytes)",
    ),
    "network": Door(
        (
            *("server/", "client/", "cli/health.py", "simulation/", "faults/links.py"),
            *("security/tls.py", "embedded/client_settings.py"),  # contexts of TLS, and no sockets
        ),
        r"(socket|ssl)(\..*)?|asyncio\.(open_connection|start_server|open_unix_connection|start_unix_server)"
        r"|\?\.(create_connection|create_server)",
    ),
    "chance": Door(
        ("serve.py", "embedded/", "simulation/", "client/security.py"),  # of the last the nonce of a login
        r"random\.(?!Random$).*|secrets(\..*)?|os\.(urandom|getrandom)|uuid\.uuid[14]",
    ),
}

# Milliseconds each, so never at the top of a module that a client imports; inside a function they are fine.
HEAVY = {
    *("asyncio", "dataclasses", "enum", "inspect", "json", "logging", "pathlib", "re", "ssl", "tokenize", "typing"),
    *("cryptography", "google_crc32c", "lz4", "re2", "snappy", "uvloop", "xxhash", "zstandard"),
}
LIGHT_PARTS = {
    *("__init__", "errors", "clock", "events", "event_kinds", "schema", "protocol", "stored", "log"),
    *("in_pieces", "metadata", "config", "controller"),
}

# Types and nothing else: imported by type checkers, never when something runs.
TYPES_ONLY = {
    *("minibroker/log/batch_info.py", "minibroker/log/storage_types.py"),
    *("minibroker/replication/follower_types.py", "minibroker/replication/known_broker.py"),
}
TYPES_ONLY_PACKAGES = {"mypy_extensions"}

FILE_LINES_MAX = 700  # a whole thought may be long; what one request crosses is counted in test_reading_path.py

# An optional part may import what its extra installs.
EXTRA_OF_PART = {"spark": "spark", "security": "tls", "pytest_plugin": "test"}
# Records as columns, for Spark; and a test's rows from Parquet.
NEEDS_SPARK = re.compile(r"spark/columns/\w*\.py|embedded/writing\.py")


# Reading source


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def part_of(path: Path) -> str:
    """Name the part a file belongs to: minibroker/log/index.py -> log, minibroker/errors.py -> errors."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def part_named(dotted: str) -> str | None:
    """Name the part of minibroker that a dotted name speaks of, None if it speaks of something else."""
    first, *rest = dotted.rstrip(".").split(".")
    if first != "minibroker":
        return None
    part = rest[0] if rest else "__init__"
    return part if (PACKAGE / part).is_dir() or (PACKAGE / f"{part}.py").is_file() else "__init__"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def origin(node: ast.ImportFrom, path: Path) -> str:
    """Return the absolute dotted name an import takes from, relative ones resolved."""
    if not node.level:
        return node.module or ""
    parts = module_name(path).split(".")
    kept = len(parts) - node.level + (path.name == "__init__.py")
    return ".".join([*parts[:kept], *([node.module] if node.module else [])])


def names_imported(node: ast.stmt | ast.AST, path: Path) -> dict[str, str]:
    """Map each local name that an import statement binds to what it stands for."""
    if isinstance(node, ast.Import):
        return {a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0] for a in node.names}
    if isinstance(node, ast.ImportFrom):
        return {alias.asname or alias.name: f"{origin(node, path)}.{alias.name}" for alias in node.names}
    return {}


def modules_imported(tree: ast.AST, path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of everything imported anywhere, and of modules named in strings for later import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{origin(node, path)}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Constant) and re.fullmatch(r"minibroker(\.\w+)+\.?", str(node.value)):
            yield node.lineno, str(node.value)


def statements_at_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when a module is imported: not function bodies, not `if TYPE_CHECKING`."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            yield from statements_at_import(statement.orelse)
            continue
        for field in ("body", "orelse", "finalbody", "handlers"):
            for child in getattr(statement, field, []):
                yield from statements_at_import(child.body if isinstance(child, ast.ExceptHandler) else [child])


def outside_names(tree: ast.Module, path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of every name used, under its real name however it was imported.

    Not only calls: `wait = time.monotonic` or a default argument passes a door just as well.
    """
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        aliases |= names_imported(node, path)
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((node.lineno, name) for name in names_imported(node, path).values())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            whole = ast.unparse(node)
            head, _, tail = whole.partition(".")
            known = head in aliases and re.fullmatch(
                r"[\w.]+", whole
            )  # `random.Random(7).random` is a method, no module's
            yield node.lineno, f"{aliases[head]}.{tail}" if known else f"?.{node.attr}"
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.lineno, aliases.get(node.id, node.id)


def passing(door: Door, tree: ast.Module, path: Path) -> list[str]:
    used = outside_names(tree, path)
    return [f"{path.name}:{line}: {name}" for line, name in used if re.fullmatch(door.banned, name)]


def is_keeper(door: Door, path: Path) -> bool:
    below = path.relative_to(PACKAGE).as_posix()
    return any(below == keeper or (keeper.endswith("/") and below.startswith(keeper)) for keeper in door.keepers)


# The rules


def test_imports_point_down() -> None:
    arrows = []
    for path in MODULES:
        part = part_of(path)
        assert part in MAY_IMPORT, f"{path.relative_to(ROOT)}: a new part needs a row in MAY_IMPORT"
        for line, dotted in modules_imported(tree_of(path), path):
            target = part_named(dotted)
            if target not in {None, part} | MAY_IMPORT[part] and (part, target) != HANDED_OUT:
                arrows.append(f"{path.relative_to(ROOT)}:{line}: {part} imports {target}")
    assert not arrows, "\n".join(arrows)


def test_no_two_parts_import_each_other() -> None:
    def below(part: str) -> set[str]:
        return MAY_IMPORT[part].union(*(below(lower) for lower in MAY_IMPORT[part]))

    assert not [part for part in MAY_IMPORT if part in below(part)]


def imports_of_modules() -> dict[str, set[str]]:
    """Return which modules of ours each module imports, wherever in it; what a folder hands out is its module's."""
    names = {module_name(path): path for path in MODULES}
    handed = handed_out(names)
    imported: dict[str, set[str]] = {}
    for name, path in names.items():
        found = imported[name] = set()
        for _, dotted in modules_imported(tree_of(path), path):
            target = handed.get(dotted, dotted).rstrip(".")
            while target and target not in names:
                target = target.rpartition(".")[0]
            if target and not f"{name}.".startswith(f"{target}."):  # nor the folder that it lies in
                found.add(target)
    return imported


def handed_out(paths: dict[str, Path]) -> dict[str, str]:
    """Return what names taken from a folder stand for: `config.BrokerConfig` is `config.broker.BrokerConfig`."""
    return {
        f"{folder}.{name}": dotted
        for folder, path in paths.items()
        if path.name == "__init__.py"
        for node in ast.walk(tree_of(path))
        for name, dotted in names_imported(node, path).items()
        if isinstance(node, ast.ImportFrom)
    }


def circles_in(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the sets of nodes of a graph in which each leads to all others, by Tarjan's algorithm."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_nodes: list[str] = []
    circles = []

    def visit(node: str) -> None:
        number[node] = lowest[node] = len(number)
        open_nodes.append(node)
        for target in graph[node]:
            if target not in number:
                visit(target)
            if target in open_nodes:
                lowest[node] = min(lowest[node], lowest[target])
        if lowest[node] == number[node]:
            place = open_nodes.index(node)
            circles.append(set(open_nodes[place:]))
            del open_nodes[place:]

    for node in graph:
        if node not in number:
            visit(node)
    return [circle for circle in circles if len(circle) > 1]


def test_who_takes_a_name_from_his_own_folder_depends_on_the_module_that_has_it() -> None:
    handed = handed_out({module_name(path): path for path in MODULES})
    assert handed["minibroker.config.BrokerConfig"] == "minibroker.config.broker.BrokerConfig"


def test_no_new_circle_of_modules() -> None:
    known = []
    for line in CIRCLES:
        part, _, modules = line.partition(": ")
        known.append({f"minibroker.{part}.{module}" for module in modules.split()})
    found = circles_in(imports_of_modules())
    new = [sorted(circle) for circle in found if not any(circle <= allowed for allowed in known)]
    assert not new, f"these import each other: let one of them be handed what it takes from the other: {new}"
    opened = sorted(set().union(*known) - set().union(*found))
    assert not opened, f"no longer in a circle: take them out of CIRCLES: {opened}"


@pytest.mark.parametrize(
    ("graph", "circles"),
    [
        ({"a": {"b"}, "b": set()}, []),
        ({"a": {"b"}, "b": {"a"}}, [{"a", "b"}]),
        ({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}, [{"b", "c"}]),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"c", "e"}, "e": {"d"}}, [{"a", "b", "c"}, {"d", "e"}]),
        ({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}, []),
    ],
)
def test_circles_are_found(graph: dict[str, set[str]], circles: list[set[str]]) -> None:
    assert sorted(circles_in(graph), key=min) == circles


@pytest.mark.parametrize("name", DOORS)
def test_the_outside_world_enters_by_its_door(name: str) -> None:
    door = DOORS[name]
    found = [hit for path in MODULES if not is_keeper(door, path) for hit in passing(door, tree_of(path), path)]
    assert not found, f"only {door.keepers or 'whoever starts the program'} may do this:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("time", "import time\ntime.time()"),
        ("time", "import time as t\nnow = t.monotonic_ns"),
        ("time", "from time import monotonic as now\ndef f(clock=now): ..."),
        ("time", "import asyncio\nasync def f(): await asyncio.sleep(1)"),
        ("time", "from datetime import datetime\ndatetime.now()"),
        ("time", "def f(loop): loop.call_later(1, f)"),
        ("files", "open('x')"),
        ("files", "import os\nos.path.exists('x')"),
        ("files", "from pathlib import Path"),
        ("network", "import socket\nsocket.socket()"),
        ("chance", "import random\nrandom.random()"),
        ("chance", "from random import choice\nchoice([1])"),
        ("chance", "import uuid\nuuid.uuid4()"),
    ],
)
def test_a_way_around_a_door_is_noticed(name: str, source: str) -> None:
    assert passing(DOORS[name], ast.parse(source), PACKAGE / "made_up.py")


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("time", "def f(clock): return clock.now_ms"),
        ("time", "import struct\ntime = struct.unpack('>q', b'x')"),
        ("files", "def f(storage): return storage.open('x')"),
        ("chance", "import random\nrandom.Random(7).random()"),
        ("chance", "from random import Random\ndef f(chance: Random): return chance.random()"),
    ],
)
def test_using_a_door_is_allowed(name: str, source: str) -> None:
    assert not passing(DOORS[name], ast.parse(source), PACKAGE / "made_up.py")


def test_nothing_heavy_is_imported_at_the_top_of_a_light_module() -> None:
    found = []
    for path in MODULES:
        if part_of(path) not in LIGHT_PARTS or path.relative_to(ROOT).as_posix() in TYPES_ONLY:
            continue
        for statement in statements_at_import(tree_of(path).body):
            for dotted in names_imported(statement, path).values():
                if dotted.split(".")[0] in HEAVY:
                    found.append(f"{path.relative_to(ROOT)}:{statement.lineno}: {dotted}")
    assert not found, "import it where it is used:\n" + "\n".join(found)


def modules_loaded_by(statement: str) -> set[str]:
    """Return the top-level modules that a statement loads in a new interpreter."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    return set(done.stdout.split())


def test_import_minibroker_loads_only_itself() -> None:
    assert modules_loaded_by("import minibroker") == {"minibroker"}


@pytest.mark.parametrize(
    "module", ["protocol.messages.produce", "protocol.messages.fetch", "log.records", "errors", "config"]
)
def test_importing_a_format_loads_nothing_heavy(module: str) -> None:
    loaded = {name.split(".")[0] for name in modules_loaded_by(f"import minibroker.{module}")}
    assert not loaded & HEAVY


def test_types_are_not_imported_when_something_runs() -> None:
    types = {path.removesuffix(".py").replace("/", ".") for path in TYPES_ONLY} | TYPES_ONLY_PACKAGES
    found = []
    for path in MODULES:
        if path.relative_to(ROOT).as_posix() in TYPES_ONLY:
            continue
        for node in statements_at_import(tree_of(path).body):
            if isinstance(node, ast.ImportFrom) and node.module in types:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {node.module}")
    assert not found, "\n".join(found)


def test_what_is_compiled_asks_nothing_that_the_compiler_has_not() -> None:
    """Constants that are no `Final` are looked up each time; the compiler says the same of classes, after a minute."""
    hooks = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]
    compiled = hooks["custom"]["modules"]
    assert compiled == sorted(compiled)
    found = []
    for name in compiled:
        tree = tree_of(ROOT / name)
        for node in tree.body:
            names = [each.id for target in targets_of(node) for each in ast.walk(target) if isinstance(each, ast.Name)]
            is_final = isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).startswith("Final")
            found += [
                f"{name}: {each} is not Final"
                for each in names
                if each.isupper() and each != "TYPE_CHECKING" and not is_final
            ]
            if isinstance(node, ast.If | ast.FunctionDef | ast.ClassDef):
                inner = [each.name for each in ast.walk(node) if isinstance(each, ast.ClassDef) and each is not node]
                found += [f"{name}: {each} is a class within something" for each in inner]
            if isinstance(node, ast.ClassDef):
                many = [each for each in node.body if isinstance(each, ast.Assign) and len(names_in(each)) > 1]
                found += [f"{name}: {node.name} sets several names at once" for _ in many]
    assert not found, "\n".join(found)


def targets_of(node: ast.stmt) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []


def names_in(node: ast.Assign) -> list[str]:
    return [each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)]


def test_every_module_says_what_it_is() -> None:
    silent = [path.relative_to(ROOT).as_posix() for path in MODULES + SCRIPTS if not ast.get_docstring(tree_of(path))]
    assert not silent, f"a module opens with what it is, what must hold, what it does not do: {silent}"


def normalised(requirement: str) -> str:
    """Return the package name of a requirement as registries spell it: `A_b[c]>=1; ...` -> a-b."""
    match = re.match(r"[\w.-]+", requirement)
    assert match, requirement
    return re.sub(r"[-_.]+", "-", match.group()).lower()


def test_every_import_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages_of = importlib.metadata.packages_distributions()
    missing = []
    for path in MODULES:
        needs_spark = NEEDS_SPARK.fullmatch(path.relative_to(PACKAGE).as_posix())
        extra = "spark" if needs_spark else EXTRA_OF_PART.get(part_of(path))
        wanted = project["dependencies"] + (project["optional-dependencies"][extra] if extra else [])
        declared = {normalised(requirement) for requirement in wanted}
        for line, dotted in modules_imported(tree_of(path), path):
            top = dotted.split(".")[0]
            if top in {"minibroker", ""} | TYPES_ONLY_PACKAGES or top in sys.stdlib_module_names:
                continue
            if not declared & {normalised(name) for name in packages_of.get(top, [top])}:
                missing.append(f"{path.relative_to(ROOT)}:{line}: {top}")
    assert not missing, "not among the dependencies in pyproject.toml:\n" + "\n".join(missing)


def test_the_version_is_written_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f'__version__ = "{project["version"]}"' in (PACKAGE / "__init__.py").read_text(encoding="utf-8")


def settings() -> set[str]:
    """Names that a user can set: rows of the configuration tables, and MINIBROKER_ variables."""
    found = {*broker_settings(), *other_settings(), *topic_settings(), *group_settings()}
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= set(re.findall(r"MINIBROKER_[A-Z_]+", node.value))
    return found


def test_what_can_be_set_is_documented() -> None:
    words = "\n".join(path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    assert not [name for name in sorted(settings()) if f"`{name}`" not in words]


def test_make_says_what_it_can_do() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    words = makefile.split("\n\n")[0] + (ROOT / "README.md").read_text(encoding="utf-8")
    targets = {"run", "unit", "test", "check", "bench", "imports", "fuzz", "docs"}
    assert targets <= set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    assert not [target for target in sorted(targets) if f"make {target}" not in words]


def files_of_the_project() -> list[Path]:
    """Every file git tracks or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git work tree")
    return [path for name in listed.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]


def test_no_file_names_a_folder_of_one_machine() -> None:
    homes = b"|".join([b"root", b"work", b"Users", rb"home/\w+"])  # in pieces, or this line would be found
    private = re.compile(rb"(?<![\w.])/(?:%s)/" % homes)
    found = []
    for path in files_of_the_project():
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            if match := private.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {match.group().decode()}")
    assert not found, "\n".join(found)


NAMED_FILE = re.compile(r"(?<![\w/.*<{$-])((?:[\w-]+/)*\w[\w-]*\.py)\b")
# Files of users in examples, patterns of names, and those that decision 6 was made about, which have other names now.
OTHER_FILES = {"query.py", "_client.py", "_group.py", "NAME_client.py", "NAME_group.py", "pool.py", "made_up.py"}
OTHER_FILES |= {"python/NAME_client.py", "sql/__init__.py", "test_readme.py", "test_fixtures.py"}
OTHER_FILES |= {"wire_sending_once.py", "wire_sending_notes.py", "wire_sending_found.py"}


def test_files_that_are_named_exist() -> None:
    """In pages, in decisions, and in what the source says of itself: by their whole path or the end of it."""
    files = files_of_the_project()
    ends: set[str] = set()
    for path in files:
        parts = path.relative_to(ROOT).parts
        ends.update("/".join(parts[start:]) for start in range(len(parts)))
    missing = []
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        if path.suffix not in {".py", ".md", ".toml"} or name.startswith("tests/golden/"):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            named = set(NAMED_FILE.findall(line)) - OTHER_FILES - ends
            missing += [f"{name}:{number}: {each}" for each in sorted(named)]
    assert not missing, "\n".join(missing)


def test_no_file_is_too_long_to_be_read_in_one_go() -> None:
    lines = {path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert not {name: count for name, count in lines.items() if count > FILE_LINES_MAX}


CORE = {
    *("log", "metadata", "config", "replication", "controller"),
    *("groups", "cleaner", "server", "faults", "broker", "cluster"),
}
CLASS_NAMES_TWICE_MAX = 52  # may only shrink; messages, whose parts are Kafka's, are not counted


def test_no_more_class_names_are_used_for_several_things() -> None:
    parts_of: dict[str, list[str]] = {}
    for path in MODULES:
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(("protocol/messages/", "stored/")):
            for node in tree_of(path).body:
                if isinstance(node, ast.ClassDef):
                    parts_of.setdefault(node.name, []).append(name.split("/")[0])
    several = {name: parts for name, parts in parts_of.items() if len(parts) > 1}
    assert len(several) <= CLASS_NAMES_TWICE_MAX, sorted(several)
    in_one_part = {
        name for name, parts in several.items() for part in set(parts) if parts.count(part) > 1 and part in CORE
    }
    assert in_one_part == {"Member"}  # of groups of both protocols
