"""What a driver does, to be killed: one micro-batch after the other in a transaction, and then a note that it is done.

    python -m tests.spark.sink.killed_driver SERVERS TOPIC NOTE BATCHES

NOTE is a file with the number of the batch that is next, as Spark has a commit log. Rows of a batch come in another
order each time, and some of them are equal.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pyarrow as pa

from minibroker.spark.sink.options import parse
from minibroker.spark.sink.sender import write_rows
from minibroker.spark.sink.transaction import WriteTransaction

TRANSACTIONAL_ID = "minibroker-spark-killed"
ROWS, EQUAL = 60, 4
BEGIN_MS = 1_700_000_000_000


def rows_of(batch: int) -> list[tuple[bytes, bytes, int]]:
    numbers = [batch * ROWS + number // EQUAL for number in range(ROWS)]
    return [(b"k%d" % (number % 7), b"%d" % number, BEGIN_MS + number) for number in numbers]


def main(servers: str, topic: str, note: str, batches: str) -> None:
    # A batch each record, so that there is time to be killed in between.
    options = parse({"kafka.bootstrap.servers": servers, "topic": topic, "kafka.batch.size": "1"})
    for batch in range(int(Path(note).read_text()), int(batches)):
        rows = rows_of(batch)
        random.SystemRandom().shuffle(rows)
        columns = dict(zip(("key", "value", "timestamp"), map(pa.array, zip(*rows))))
        write_rows([pa.record_batch(columns)], options, WriteTransaction(TRANSACTIONAL_ID, batch, 60_000))
        Path(f"{note}.new").write_text(f"{batch + 1}")
        os.replace(f"{note}.new", note)


if __name__ == "__main__":
    main(*sys.argv[1:])
