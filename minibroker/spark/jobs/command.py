"""A job as a command: its words read, a session opened, its summary printed. Here and by spark-submit."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from errno import EACCES, EDQUOT, EFBIG, EIO, EMFILE, ENOSPC, EROFS

from minibroker.spark.jobs import GONE, JOBS, job_module
from minibroker.spark.jobs.arguments import add_repeated, pairs_of
from minibroker.spark.option_values import OptionError

USAGE = 2
FAILED = 1
PACKAGE = "--package"
# What Spark says of data that cannot be read, of files and tables that are not there: its sentence, not the stack.
OF_DATA = re.compile(
    r"\[(?:MALFORMED_|CAST_|CANNOT_|COLUMN_ALREADY_EXISTS|FAILED_READ_FILE|INVALID_|PATH_NOT_FOUND|UNABLE_TO_INFER|"
    r"USER_RAISED_|DATA_SOURCE_NOT_FOUND|TABLE_OR_VIEW_NOT_FOUND)[A-Z0-9_.]*\] "
    r"((?:.|\n(?!\s+at ))+?(?=\s+SQLSTATE)|.+$)",
    re.MULTILINE,
)
READING = "Encountered error while reading file"  # why, says the last cause alone
CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )+(.+(?:\n(?!\s+at |\s+\.\.\.|Caused by|\n|\Z).+)*)", re.MULTILINE)
# What no job can do anything about, wherever Python or Java met it.
OF_SYSTEM = re.compile(
    r"^\W*(?:Caused by: )?(?:[\w.$]+(?:Error|Exception): )+(.*(?:"
    + "|".join(re.escape(os.strerror(code)) for code in (EACCES, EDQUOT, EFBIG, EIO, EMFILE, ENOSPC, EROFS))
    + r").*)$",
    re.MULTILINE,
)
# A stream begins with a worker that plans: Spark waits 10 s for it, a constant in 4.0 to 4.3. From 4.2 on it waits 60 s
# for those of tasks.
NO_WORKER = re.compile("Python worker (failed )?to connect back")
BUSY = (
    "a Python worker did not start in the time that Spark gives it (10 s, which no setting changes): run the job again "
    "when the machine is less busy, or with --traceback if it is not"
)


def parser_of(name: str, program: str = "minibroker spark") -> argparse.ArgumentParser:
    module = job_module(name)
    parser = argparse.ArgumentParser(
        f"{program} {name}",
        description=module.DESCRIPTION,
        epilog=getattr(module, "EPILOG", None),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    session = parser.add_argument_group("Spark")
    session.add_argument("--master", metavar="URL", help="where Spark runs: local[4], spark://..., sc://... (local[*])")
    session.add_argument(
        "--py-files", metavar="ZIP", help="code for the workers of a cluster, as minibroker spark --package writes it"
    )
    session.add_argument("--driver-memory", metavar="SIZE", help="memory of the driver, as 2g")
    add_repeated(session, "--conf", help="a setting of Spark")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--traceback", action="store_true", help="when a task fails, all that Spark says of it")
    return parser


def overview() -> str:
    width = max(map(len, JOBS))
    lines = [f"  {name.ljust(width)}  {what}" for name, what in JOBS.items()]
    more = [
        "minibroker spark JOB --help tells more.",
        f"minibroker spark {PACKAGE} FILE.zip writes minibroker as a zip for the workers of a cluster.",
    ]
    return "\n".join(["usage: minibroker spark JOB ...", "", *lines, "", *more])


def reason_of(error: Exception) -> str | None:
    """Return what was wrong with data or a task of ours, out of pages of Spark's; None if it was something else."""
    text = str(error)
    if isinstance(error, OSError):
        text = f"{type(error).__name__}: {text}"
    elif not type(error).__module__.startswith(("pyspark.", "py4j.")):
        return None
    elif NO_WORKER.search(text):
        return BUSY
    said = (
        re.search(r"^\s*minibroker\.[\w.]+: (.+)$", text, re.MULTILINE)
        or OF_SYSTEM.search(text)
        or OF_DATA.search(text)
    )
    if not said:
        return None
    causes = CAUSE.findall(text) if said[1].startswith(READING) else []
    return " ".join(" ".join([said[1], *causes[-1:]]).split())


def _write_package(words: Sequence[str]) -> int:
    from minibroker.spark.packing import write_package

    if len(words) != 1:
        print(f"minibroker spark {PACKAGE} FILE.zip: one name is wanted", file=sys.stderr)
        return USAGE
    try:
        print(write_package(words[0]))
    except OptionError as error:
        print(f"minibroker spark {error}", file=sys.stderr)
        return USAGE
    except OSError as error:
        print(f"minibroker spark {PACKAGE}: {error}", file=sys.stderr)
        return FAILED
    return 0


def main(words: Sequence[str], program: str = "minibroker spark") -> int:
    """Run a job; return the exit status."""
    from minibroker.clock import LoopClock
    from minibroker.errors import KafkaError, ProtocolError
    from minibroker.spark.brokers.planning import NoBroker
    from minibroker.spark.java import JavaMissing
    from minibroker.spark.jobs.progress import Progress
    from minibroker.spark.packing import check_workers
    from minibroker.spark.ranges import DataLoss
    from minibroker.spark.session import open_session
    from minibroker.spark.workers import SparkMissing

    if not words or words[0] in ("-h", "--help"):
        print(overview())
        return 0 if words else USAGE
    name, *rest = words
    if name == PACKAGE:
        return _write_package(rest)
    if name not in JOBS:
        instead = GONE.get(name, f"there are {', '.join(JOBS)}")
        print(f"minibroker spark: there is no job {name!r}; {instead}", file=sys.stderr)
        return USAGE
    try:
        parser = parser_of(name, program)
    except ImportError as error:
        print(f"minibroker spark {name}: {SparkMissing(error)}", file=sys.stderr)
        return USAGE
    options = parser.parse_args(rest)
    try:
        settings = pairs_of("--conf", options.conf)
        if options.py_files:
            settings["spark.submit.pyFiles"] = options.py_files
        spark = open_session(options.master, settings, memory=options.driver_memory)
        check_workers(spark)
        steady_ms = LoopClock().steady_ms
        began_ms = steady_ms()
        summary = job_module(name).run(spark, options, Progress(spark, not options.quiet))
        summary.figures.setdefault("seconds", round((steady_ms() - began_ms) / 1000, 1))
    except (OptionError, SparkMissing, JavaMissing) as error:
        print(f"minibroker spark {name}: {error}", file=sys.stderr)
        return USAGE
    except (ProtocolError, KafkaError, DataLoss, NoBroker) as error:
        print(f"minibroker spark {name}: {error}", file=sys.stderr)
        return FAILED
    except Exception as error:
        reason = reason_of(error)
        if reason is None or options.traceback:
            raise
        print(f"minibroker spark {name}: {reason}", file=sys.stderr)
        return FAILED
    print(summary.as_json() if options.json else summary.as_text())
    status: int = summary.status
    return status
