"""Bugs planted on purpose, by name: a check that never found anything may be blind.

Empty in every program. A test puts names here, and the simulation or the explorer must notice within its budget. Each
name is asked for where the rule stands that it breaks; tests/replication/ says who finds which.
"""

from __future__ import annotations

planted: frozenset[str] = frozenset()
