"""The tables of a transaction's states: they are whole, and they are Kafka's."""

from __future__ import annotations

import pytest

from minibroker.errors import Error
from minibroker.transactions.records import decode
from minibroker.transactions.states import (
    ABORT,
    ADD,
    BEGIN,
    CHECK,
    COMMIT,
    COMPLETE,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    EVENTS,
    FENCE,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    REQUESTS,
    STATES,
    STORED,
    State,
)
from tests.transactions.histories import DIRECTORIES, history

# From which states Kafka lets each be reached (TransactionState.validPreviousStates of 4.4). Two are passed through by
# Kafka while it fences a producer, within one request: here that is one step.
REACHED_FROM: dict[State, set[State]] = {
    EMPTY: {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
    ONGOING: {ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
    PREPARE_COMMIT: {ONGOING},
    PREPARE_ABORT: {ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
    COMPLETE_COMMIT: {PREPARE_COMMIT},
    COMPLETE_ABORT: {PREPARE_ABORT},
    DEAD: {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
    PREPARE_EPOCH_FENCE: set(),
}


def test_events_lead_where_kafka_goes_and_nowhere_else() -> None:
    reached: dict[State, set[State]] = {state: set() for state in STATES}
    for steps in EVENTS.values():
        for before, after in steps.items():
            reached[after].add(before)
    assert reached == REACHED_FROM


def test_numbers_and_names_are_those_of_kafka() -> None:
    assert [(state.number, state.name) for state in STATES] == list(
        enumerate(
            (
                *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort"),
                *("CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"),
            )
        )
    )


@pytest.mark.parametrize("request_name", REQUESTS)
def test_every_request_has_an_outcome_in_every_state_and_every_event_is_possible_there(request_name: str) -> None:
    row = REQUESTS[request_name]
    assert set(row) == set(STORED)
    for state, outcome in row.items():
        if not isinstance(outcome, Error) and outcome != CHECK:
            assert state in EVENTS[ABORT if outcome == FENCE else outcome]


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_every_step_that_brokers_have_written_is_an_event(directory: str) -> None:
    last: dict[str, State] = {}
    seen = set()
    for key, value in history(directory):
        found = decode(key, value)
        assert found is not None
        name, metadata = found
        assert metadata is not None
        before = last.get(name, EMPTY)
        events = [event for event, steps in EVENTS.items() if steps.get(before) is metadata.state]
        assert len(events) == 1, f"{name}: {before} -> {metadata.state}"
        seen |= set(events)
        last[name] = metadata.state
    assert seen == {BEGIN, ADD, COMMIT, ABORT, COMPLETE}


def test_nothing_leads_out_of_a_decision_but_its_completion() -> None:
    for state in (PREPARE_COMMIT, PREPARE_ABORT):
        assert [event for event, steps in EVENTS.items() if state in steps] == [COMPLETE]


def test_only_what_has_begun_is_committed() -> None:
    assert set(EVENTS[COMMIT]) == {ONGOING}
    commits = [name for name in REQUESTS if "commit" in name]
    for name in commits:
        assert [state for state, outcome in REQUESTS[name].items() if outcome == COMMIT] in ([], [ONGOING])


def test_who_asks_again_for_what_was_decided_is_told_so_and_for_the_other_is_refused() -> None:
    again = {name.removesuffix(" again"): REQUESTS[name] for name in REQUESTS if name.endswith("again")}
    for name, row in again.items():
        done, other = (
            (COMPLETE_COMMIT, COMPLETE_ABORT) if name.endswith("commit") else (COMPLETE_ABORT, COMPLETE_COMMIT)
        )
        assert row[done] is Error.NONE
        assert row[other] is Error.INVALID_TXN_STATE
