"""What clients of others leave behind, put away before a later test is blamed for it."""

from __future__ import annotations

import gc
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def put_away() -> Iterator[None]:
    """Collect the sockets that kafka-python leaves open when it cannot log in.

    It logs the connections that have failed, and a test's log is kept until the test is over.
    """
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
