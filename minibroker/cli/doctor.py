"""`minibroker doctor`: what this minibroker runs on, what it lacks, and what makes it slower than it could be.

It asks no broker and needs none. What it says of a package is what importing it showed.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import minibroker
from minibroker.cli.status import DONE, FAILED

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

DESCRIPTION = "Say what this minibroker runs on, and what it lacks. Status 1 if anything that it needs is missing."
# Module and the package that brings it, what it is for, and whether a broker can do without.
PACKAGES = (
    ("google_crc32c", "google-crc32c", "checksums", False),
    ("snappy", "python-snappy", "snappy", False),
    ("lz4.frame", "lz4", "lz4", False),
    ("zstandard", "zstandard", "zstd", False),
    ("re2", "google-re2", "patterns of consumer groups", False),
    ("xxhash", "xxhash", "hashes of consumer groups", False),
    ("uvloop", "uvloop", "event loop", True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-J", "--json", action="store_true", help="one JSON document")


def run(options: argparse.Namespace) -> int:
    compiled = compiled_modules()
    packages = {name: found_version(module, name) for module, name, _, _ in PACKAGES}
    missing = [name for _, name, _, may_lack in PACKAGES if packages[name] is None and not may_lack]
    if compiled and found_version(compiled[0], "minibroker") is None:
        missing.append("the library minibroker__mypyc, beside the folder of the compiled minibroker,")
    advice = list(advices(packages, missing))
    if options.json:
        from minibroker.cli.connect import print_json

        found = {"version": minibroker.__version__, "compiled": compiled, "path": str(PACKAGE), "python": sys.version}
        print_json({**found, "packages": packages, "advice": advice})
    else:
        how = f"{len(compiled)} modules compiled" if compiled else "pure Python"
        print(f"minibroker {minibroker.__version__}, {how}, in {PACKAGE}")
        print(f"Python {platform.python_version()} ({platform.python_implementation()}), {platform.platform()}")
        for _, name, what, _ in PACKAGES:
            print(f"{what}: {name} {packages[name] or 'is missing'}")
        print("\n".join(["", *advice] if advice else ["", "Nothing is missing."]))
    return FAILED if missing else DONE


PACKAGE = Path(minibroker.__file__).parent


def compiled_modules() -> list[str]:
    """Return the modules that run compiled: those with a library beside their source."""
    from importlib.machinery import EXTENSION_SUFFIXES

    names = set()
    for path in PACKAGE.rglob("*"):
        if path.name.endswith(tuple(EXTENSION_SUFFIXES)):
            names.add(path.relative_to(PACKAGE.parent).as_posix().partition(".")[0].replace("/", "."))
    return sorted(names)


def found_version(module: str, package: str) -> str | None:
    """Return the version of a package that can be imported."""
    from importlib import import_module
    from importlib.metadata import PackageNotFoundError, version

    try:
        import_module(module)
    except ImportError:
        return None
    try:
        return version(package)
    except PackageNotFoundError:
        return "of unknown version"


def advices(packages: dict[str, str | None], missing: list[str]) -> list[str]:
    """Say what could be better, a sentence each."""
    said = [f"{name} is missing: pip install {name if name in packages else 'minibroker'}" for name in missing]
    if packages["uvloop"] is None and sys.platform != "win32":
        said.append("Without uvloop the loop is asyncio's own, which is slower: pip install uvloop")
    if packages["google-crc32c"] is not None:
        import google_crc32c

        if google_crc32c.implementation != "c":
            said.append("google-crc32c runs without its C part: checksums are a thousand times slower")
    if sys.dont_write_bytecode and not os.path.exists(getattr(minibroker, "__cached__", None) or ""):
        said.append(
            "PYTHONDONTWRITEBYTECODE is set and there are no .pyc files: each start compiles the sources, "
            "which takes as long again: python -m compileall on the folder above mends it"
        )
    return said
