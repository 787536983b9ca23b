"""Leader epochs: where logs of two replicas part."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibroker.log.batches import batches
from minibroker.log.checkpoints import LEADER_EPOCHS, parse_epochs
from minibroker.log.epochs import LeaderEpochs
from tests import goldens

UNDEFINED = (-1, -1)


def three_leaders() -> LeaderEpochs:
    return LeaderEpochs([(2, 10), (5, 20), (9, 30)])


def test_a_leader_keeps_the_first_offset_it_was_seen_with() -> None:
    epochs = LeaderEpochs()
    assert epochs.assign(0, 0)
    assert not epochs.assign(0, 7)
    assert epochs.assign(3, 8)
    assert epochs.entries == [(0, 0), (3, 8)]


def test_a_leader_that_wrote_nothing_gives_way_to_the_next() -> None:
    epochs = LeaderEpochs([(0, 0), (2, 10)])
    assert epochs.assign(4, 10)
    assert epochs.entries == [(0, 0), (4, 10)]


def test_a_new_entry_removes_what_contradicts_it() -> None:
    epochs = three_leaders()
    assert epochs.assign(6, 15)
    assert epochs.entries == [(2, 10), (6, 15)]
    assert epochs.assign(1, 40)
    assert epochs.entries == [(1, 40)]


def test_the_latest_epoch_can_move_back_but_not_forward() -> None:
    epochs = three_leaders()
    assert epochs.assign(9, 25)
    assert not epochs.assign(9, 26)
    assert epochs.entries == [(2, 10), (5, 20), (9, 25)]


def test_the_latest_epoch_ends_where_the_log_ends() -> None:
    assert three_leaders().end_offset_for(9, 77) == (9, 77)


def test_an_earlier_epoch_ends_where_the_next_begins() -> None:
    assert three_leaders().end_offset_for(5, 77) == (5, 30)


def test_an_epoch_that_left_nothing_is_answered_with_the_one_before() -> None:
    assert three_leaders().end_offset_for(7, 77) == (5, 30)


def test_an_epoch_older_than_all_ends_where_the_first_begins() -> None:
    assert three_leaders().end_offset_for(0, 77) == (0, 10)


def test_nothing_is_known_of_later_epochs_or_without_any() -> None:
    assert three_leaders().end_offset_for(10, 77) == UNDEFINED
    assert three_leaders().end_offset_for(-1, 77) == UNDEFINED
    assert LeaderEpochs().end_offset_for(0, 77) == UNDEFINED


def test_each_offset_has_the_epoch_of_its_leader() -> None:
    epochs = three_leaders()
    assert [epochs.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 30, 99)] == [None, 2, 2, 5, 9, 9]


def test_neighbours_of_an_epoch() -> None:
    epochs = three_leaders()
    assert [epochs.previous_epoch(epoch) for epoch in (2, 5, 7)] == [None, 2, 5]
    assert (epochs.earliest, epochs.latest, epochs.latest_epoch) == ((2, 10), (9, 30), 9)


def test_cutting_the_end_forgets_leaders_whose_records_are_gone() -> None:
    epochs = three_leaders()
    assert not epochs.truncate_from_end(31)
    assert epochs.truncate_from_end(30)
    assert epochs.entries == [(2, 10), (5, 20)]
    assert epochs.truncate_from_end(0)
    assert (epochs.earliest, epochs.latest, epochs.latest_epoch) == (None, None, None)


def test_cutting_the_start_lets_the_leader_of_that_offset_begin_there() -> None:
    epochs = three_leaders()
    assert not epochs.truncate_from_start(9)
    assert not epochs.truncate_from_start(10)
    assert epochs.truncate_from_start(25)
    assert epochs.entries == [(5, 25), (9, 30)]
    assert epochs.truncate_from_start(99)
    assert epochs.entries == [(9, 99)]


# What real brokers left

GOLDEN_EPOCHS = [
    (directory, path)
    for directory in goldens.LOG_DIRECTORIES
    for path in goldens.log_files(directory)
    if path.endswith(LEADER_EPOCHS)
]


@pytest.mark.parametrize(("directory", "path"), GOLDEN_EPOCHS)
def test_golden_epochs_are_those_of_the_batches(directory: str, path: str) -> None:
    files = goldens.log_files(directory)
    partition = path.partition("/")[0]
    known = LeaderEpochs(parse_epochs(files[path], path))
    assert known.entries == parse_epochs(files[path], path)
    found = LeaderEpochs()
    next_offset = 0
    is_whole = True  # nothing was cleaned away
    for name in sorted(name for name in files if name.startswith(f"{partition}/") and name.endswith(".log")):
        for batch in batches(files[name]):
            if batch.magic < 2:
                found.clear()
            else:
                found.assign(batch.partition_leader_epoch, batch.base_offset)
                is_whole = is_whole and batch.base_offset == next_offset
            if known.earliest is not None and batch.last_offset >= known.earliest.start_offset:
                assert known.epoch_for_offset(batch.last_offset) == batch.partition_leader_epoch
            next_offset = batch.next_offset
    if is_whole and known.earliest is not None:
        found.truncate_from_start(known.earliest.start_offset)
        # Leaders that wrote nothing stand only in the checkpoint.
        assert set(found.entries) <= set(known.entries)
        assert all(start == next_offset for _, start in set(known.entries) - set(found.entries))


# A model without any cleverness: a dict, looked through from one end to the other.


class Model:
    def __init__(self) -> None:
        self.starts: dict[int, int] = {}

    def assign(self, epoch: int, start: int) -> None:
        if self.starts and epoch == max(self.starts) and start >= self.starts[epoch]:
            return
        self.starts = {old: at for old, at in self.starts.items() if old < epoch and at < start} | {epoch: start}

    def truncate_from_end(self, end: int) -> None:
        self.starts = {epoch: at for epoch, at in self.starts.items() if at < end}

    def truncate_from_start(self, start: int) -> None:
        gone = [epoch for epoch, at in self.starts.items() if at <= start]
        self.starts = {epoch: max(at, start) for epoch, at in self.starts.items() if epoch not in gone[:-1]}

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        later = [at for other, at in self.starts.items() if other > epoch]
        upto = [other for other in self.starts if other <= epoch]
        if later and epoch >= 0:
            return (max(upto) if upto else epoch), min(later)
        return (epoch, log_end) if epoch in self.starts else UNDEFINED


small = st.integers(0, 12)
steps = st.one_of(
    st.tuples(st.just("assign"), small, small),
    st.tuples(st.sampled_from(["truncate_from_end", "truncate_from_start"]), small),
)


@pytest.mark.outside
@settings(derandomize=True, max_examples=500, deadline=None)
@given(st.lists(steps, max_size=12))
def test_epochs_agree_with_a_model_that_looks_through_everything(script: list[tuple[str, ...]]) -> None:
    epochs, model = LeaderEpochs(), Model()
    for name, *arguments in script:
        before = epochs.entries
        changed = getattr(epochs, name)(*arguments)
        getattr(model, name)(*arguments)
        assert epochs.entries == sorted(model.starts.items())
        assert changed == (epochs.entries != before)
        for number in range(-1, 14):
            assert epochs.end_offset_for(number, 50) == model.end_offset_for(number, 50)
            below = [epoch for epoch, at in sorted(model.starts.items()) if at <= number]
            assert epochs.epoch_for_offset(number) == (below[-1] if below else None)
            assert epochs.previous_epoch(number) == max(
                (epoch for epoch in model.starts if epoch < number), default=None
            )
