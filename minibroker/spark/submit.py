"""Script for spark-submit: `spark-submit --py-files minibroker.zip submit.py export --path data ...`."""

from __future__ import annotations

import sys

from minibroker.spark.jobs.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "submit.py"))
