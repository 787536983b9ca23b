"""`minibroker spark`: jobs over topics and log directories, on Apache Spark."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

DESCRIPTION = "Run a job on Apache Spark: export, import, profile, codecs, verify, rewrite, slice."
EPILOG = "minibroker spark without a job lists them; minibroker spark JOB --help tells what it takes."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--package", metavar="FILE.zip", help="write minibroker as a zip for the workers of a cluster (--py-files)"
    )
    parser.add_argument("words", nargs="...", metavar="JOB ...", help="the job and what it takes")


def run(options: argparse.Namespace) -> int:
    from minibroker.spark.jobs.command import PACKAGE, main

    return main(options.words if options.package is None else [PACKAGE, options.package, *options.words])
