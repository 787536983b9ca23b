"""Changes of topics against a quota: strict for newer versions, permissive for older ones (KIP-599)."""

from __future__ import annotations

import pytest

from minibroker.errors import Error, KafkaError
from minibroker.quotas.controller_mutations import MutationQuota

LIMIT = 2.0


def quota() -> MutationQuota:
    found = MutationQuota(10, 1000)
    found.take_limits({(("user", "u"),): {"controller_mutation_rate": LIMIT}})
    return found


def test_strict_is_done_until_there_is_a_debt_and_then_refused_until_it_is_gone() -> None:
    now_ms = 0
    found = quota()
    request = found.begin("u", "c", lambda: now_ms, is_strict=True)
    assert request is not None
    request.take(25)  # of 20, at once: it leaves a debt of 5
    assert request.throttle_ms == 0
    with pytest.raises(KafkaError) as refused:
        request.take(1)
    assert refused.value.code == Error.THROTTLING_QUOTA_EXCEEDED
    assert request.throttle_ms == 2500
    now_ms = 1000
    assert request.throttle_ms == 1500  # as the answer says it then
    now_ms = 2500
    again = found.begin("u", "c", lambda: now_ms, is_strict=True)
    assert again is not None
    again.take(1)
    assert again.throttle_ms == 0


def test_permissive_is_always_done_and_who_has_a_debt_waits() -> None:
    found = quota()
    request = found.begin("u", "c", lambda: 0, is_strict=False)
    assert request is not None
    request.take(20)
    assert request.throttle_ms == 0
    request.take(10)
    assert request.throttle_ms == 5000


def test_whom_nobody_limits_is_not_counted() -> None:
    assert quota().begin("v", "c", lambda: 0, is_strict=True) is None
