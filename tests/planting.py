"""Bugs planted on purpose: a search that never found anything may be blind.

    with planted("hw-is-log-end"):
        assert explore(range(20)) is not None

A bug is the patches that break one rule: who has it, its name there, and what takes its place. The product knows
nothing of them. Within how much of a search each must be found stands beside that search, in its BUDGETS.
Nothing can be planted in what is compiled: its callers do not look up the name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import BuiltinFunctionType, GetSetDescriptorType, MethodDescriptorType, WrapperDescriptorType
from unittest.mock import patch

import pytest

from tests.controller.bugs import BUGS as OF_CONTROLLER
from tests.groups.bugs import BUGS as OF_GROUPS
from tests.replication.bugs import BUGS as OF_REPLICATION
from tests.simulation.cleaning_bugs import BUGS as OF_CLEANING
from tests.transactions.bugs import BUGS as OF_TRANSACTIONS

BUGS = OF_REPLICATION | OF_CONTROLLER | OF_GROUPS | OF_CLEANING | OF_TRANSACTIONS
COMPILED = BuiltinFunctionType, GetSetDescriptorType, MethodDescriptorType, WrapperDescriptorType


@contextmanager
def planted(*names: str) -> Iterator[None]:
    with ExitStack() as stack:
        for name in names:
            for owner, attribute, broken in BUGS[name]:
                if isinstance(getattr(owner, attribute), COMPILED):
                    pytest.skip(f"{owner.__name__}.{attribute} is compiled: no bug can be planted there")
                stack.enter_context(patch.object(owner, attribute, broken))
        yield
