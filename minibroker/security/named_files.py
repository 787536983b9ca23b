"""The door to files that settings of security name: keystores, and keys of who signs tokens."""

from __future__ import annotations


def read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
