"""Runs a target under atheris: minibroker instrumented, with bounds on time and memory for every input.

Instrumented are minibroker's modules and nothing else: not the targets, not the standard library. Codecs are generated
while the target runs, so they are instrumented one by one as they are made.
Started by the fuzz_*.py files as scripts; nothing imports it, so the tests do without atheris.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

# The script's own folder comes first on the path of a script, the project's must be there too.
sys.path.insert(0, str(Path(__file__).parent.parent.parent))

# Later options win, so each can be overruled. One input may take 10 s before the process is ended from outside; what
# takes 2 s or 256 MiB fails by `bounded`.
OPTIONS = ["-timeout=10", "-rss_limit_mb=2048", "-max_len=2048", "-print_final_stats=1"]


def fuzz(name: str) -> None:
    """Feed the target until libFuzzer is told to stop; it reads its options from the command line."""
    import atheris

    with atheris.instrument_imports(include=["minibroker"]):
        target = import_module(f"tests.fuzz.{name}")
        _load_messages()
    _instrument_generated_code(atheris.instrument_func)
    bounded = import_module("tests.fuzz.bounds").bounded
    atheris.Setup([sys.argv[0], *OPTIONS, *sys.argv[1:]], lambda data: bounded(target.check, data))
    atheris.Fuzz()


def _load_messages() -> None:
    """Import what would be imported on demand, while imports are instrumented."""
    from minibroker.protocol import message, names

    for name in names():
        message(name)


def _instrument_generated_code(instrument: Any) -> None:
    from minibroker.schema.source import Source

    generate = Source.function
    Source.function = lambda source, name: instrument(generate(source, name))  # type: ignore[method-assign]
