"""Transactions of the clients that Python drives: `python transactions.py ADAPTER BOOTSTRAP`.

Commands come on the input, what became of them goes to the output; test_transactions.py is the other end, README.md has
the words. Not here: what a client is called and how: the adapters, such as `confluent_transactions.py`, each with a
class Producer (`begin`, `send`, `offset`, `commit`, `abort`, `close`) and a class Copy (`poll`, `write`, `close`).
"""

from __future__ import annotations

import importlib
import sys
import threading
import traceback
from typing import Any

from group_member import say


def obey(producer: Any, word: str, told: dict[str, str]) -> None:
    if word == "send":
        producer.send(told["topic"], [value.encode() for value in told["values"].split(",")])
    elif word == "offset":
        producer.offset(told["group"], told["topic"], int(told["at"]))
    else:
        getattr(producer, word)()


def copy(adapter: Any, bootstrap: str, told: dict[str, str]) -> None:
    """Copy a topic, each poll in a transaction that also commits how far it has read, until the program ends.

    Every third transaction is aborted, and its records read again; after an error all begins anew.
    """
    transactions = 0
    while True:
        made = None
        try:
            made = adapter.Copy(bootstrap, told["id"], told["group"], told["from"], told["to"])
            while True:
                if records := made.poll():
                    transactions += 1
                    commits = transactions % 3 != 2
                    made.write(records, commits)
                    say(event="committed" if commits else "aborted", records=len(records))
        except Exception:
            say(event="again", text=traceback.format_exc())
        if made is not None:
            try:
                made.close()
            except Exception:
                say(event="again", text=traceback.format_exc())


def main(name: str, bootstrap: str) -> None:
    adapter = importlib.import_module(f"{name}_transactions")
    say(client=name, version=adapter.VERSION)
    producers: dict[str, Any] = {}
    for line in sys.stdin:
        word, producer, *words = line.split()
        told = dict(one.split("=", 1) for one in words)
        try:
            if word == "copy":
                threading.Thread(target=copy, args=(adapter, bootstrap, told), daemon=True).start()
                continue
            if word == "open":
                producers[producer] = adapter.Producer(bootstrap, told["id"], int(told["timeout"]))
            else:
                obey(producers[producer], word, told)
        except Exception:
            say(event="error", text=traceback.format_exc())
        else:
            say(event="done")


if __name__ == "__main__":
    main(*sys.argv[1:])
