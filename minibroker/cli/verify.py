"""`minibroker verify`: what is wrong in a log directory."""

from __future__ import annotations

import os
import sys

from minibroker.cli.status import DONE, FAILED, USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

DESCRIPTION = "Read everything in a log directory, or in the directory of one partition, and say what is wrong."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="as in log.dirs, or one <topic>-<partition> in it")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(options: argparse.Namespace) -> int:
    from minibroker.errors import StorageError
    from minibroker.log.storage import OsStorage
    from minibroker.tools.verify.log_directory import VerifiedCounts, verify_directory

    if not os.path.isdir(options.directory):
        print(f"minibroker verify: {options.directory}: is no directory", file=sys.stderr)
        return USAGE

    def progress(name: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{name}", end="", file=sys.stderr, flush=True)

    verified, problems = VerifiedCounts(), []
    try:
        own_name = os.path.basename(os.path.abspath(options.directory))
        for problem in verify_directory(OsStorage(options.directory), verified, progress, own_name=own_name):
            problem.path = f"{options.directory.rstrip('/')}/{problem.path.lstrip('/')}"
            problems.append(problem)
            if not options.json:
                progress("")
                print(problem)
    except StorageError as failure:
        print(f"minibroker verify: {failure}", file=sys.stderr)
        return USAGE
    finally:
        progress("")
    if not verified.logs:
        print(f"minibroker verify: {options.directory}: holds no logs", file=sys.stderr)
        return USAGE
    if options.json:
        import json

        shown = [{"path": one.path, "place": one.place, "reason": one.reason} for one in problems]
        print(json.dumps({**vars(verified), "problems": shown}, indent=1))
    else:
        print(f"{verified}: {counted(len(problems), 'problem') if problems else 'no problems'}")
    return FAILED if problems else DONE


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
