"""The steps that both brokers are taken through, by subject, in this order: later ones see what earlier ones did."""

from __future__ import annotations

from tests.differential.play import Play
from tests.differential.scenario import (
    broken,
    cluster,
    configs,
    fetch,
    groups,
    offsets,
    produce,
    topics,
    transactions,
    unused,
)


def play_all(play: Play) -> None:
    """Play every subject."""
    cluster.ask_what_is_served(play)
    cluster.ask_of_an_empty_cluster(play)
    unused.ask_all(play)
    transactions.ask_before_there_is_a_coordinator(play)
    topics.create(play)
    topics.create_badly(play)
    cluster.ask_of_topics(play)
    cluster.ask_for_log_directories(play)
    configs.describe(play)
    configs.alter(play)
    configs.alter_a_part(play)
    produce.produce_every_format(play)
    produce.produce_badly(play)
    produce.produce_with_sequences(play)
    fetch.fetch_everything(play)
    fetch.fetch_by_limits(play)
    fetch.fetch_badly(play)
    fetch.fetch_in_sessions(play)
    fetch.fetch_in_turn(play)
    offsets.list_offsets(play)
    offsets.ask_for_epochs(play)
    offsets.delete_records(play)
    cluster.ask_for_log_sizes(play)
    cluster.elect_leaders(play)
    topics.create_partitions(play)
    topics.delete(play)
    groups.play_groups(play)
    transactions.play_transactions(play)
    broken.ask_with_broken_bytes(play)
