"""Builds the compiled wheel: the hot modules by mypyc, everything else as it is. Only with MINIBROKER_COMPILED=1.

The modules are those of `[tool.hatch.build.targets.wheel.hooks.custom]` in pyproject.toml. Each keeps its source in the
wheel, for tracebacks and for readers. What is made on the way lies in build/compiled, so the checkout stays pure and a
second build is quick. Why, and what it asks of the source: docs/adr/0016-hot-modules-are-compiled.md.
"""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

GROUP = "minibroker"  # of all modules: they call each other without Python in between


class CompiledWheel(BuildHookInterface):
    def dependencies(self) -> list[str]:
        # The types of what minibroker needs itself are among those that are compiled.
        return ["mypy[mypyc]>=2.0", "setuptools>=75", *self.metadata.core.dependencies] if is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or not is_wanted():
            return
        built = Path(self.root, "build", "compiled")
        modules = self.config["modules"]
        compile_modules(modules, Path(self.root), built)
        wanted = {name.removesuffix(".py") for name in modules} | {f"{GROUP}__mypyc"}
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        for library in sorted((built / "modules").rglob(f"*{suffix}")):
            name = library.relative_to(built / "modules").as_posix()
            if name.removesuffix(suffix) in wanted:  # not one that was listed before
                build_data["force_include"][str(library)] = name
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def is_wanted() -> bool:
    asked = os.environ.get("MINIBROKER_COMPILED", "")
    if asked not in ("", "0", "1"):
        raise ValueError(f"MINIBROKER_COMPILED is {asked!r}; it may be 1, 0 or empty")
    return asked == "1"


def compile_modules(modules: list[str], root: Path, built: Path) -> None:
    """Compile modules of the tree at `root` into `built`/modules."""
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.errors import BaseError

    before = Path.cwd()
    os.chdir(root)  # mypyc names modules by their paths
    try:
        extensions = mypycify(
            ["--cache-dir", str(built / "mypy"), *modules],
            opt_level="2",
            debug_level="0",
            group_name=GROUP,
            target_dir=str(built / "c"),
        )
        for extension in extensions:
            extension.extra_compile_args += [] if os.name == "nt" else ["-fvisibility=hidden"]  # calls may be inlined
        options = {"build_ext": {"build_lib": str(built / "modules"), "build_temp": str(built / "objects")}}
        distribution = Distribution({"name": GROUP, "ext_modules": extensions, "options": options})
        try:
            distribution.run_command("build_ext")
        except BaseError as failure:
            raise SystemExit(f"the compiled wheel needs a C compiler: {failure}") from failure
    finally:
        os.chdir(before)
