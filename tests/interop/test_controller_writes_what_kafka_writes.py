"""Our controller beside Kafka's: the same requests in the same order, and the same records and answers, byte for byte.

Sequences are drawn from a seed: brokers come, stop, fall silent and come back with or without their data; leaders
propose ISRs, right ones and wrong ones; administrators elect, move replicas and change their minds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from minibroker.controller.alter_partition import alter_partition
from minibroker.controller.elections import balance_leaders, elect_leaders, elect_uncleanly
from minibroker.controller.reassignment import alter_reassignments, list_reassignments
from minibroker.controller.registrations import SESSION_TIMEOUT_MS
from minibroker.errors import Error, KafkaError
from minibroker.metadata.image import NO_LEADER
from minibroker.metadata.records import read_record, write_record
from minibroker.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from minibroker.stored.brokers import BrokerRegistrationChangeRecord
from tests.controller.small_cluster import CLUSTER_ID, SmallCluster, elect_request, reassign_request
from tests.interop.kafka_controller import KafkaController

BROKERS = (1, 2, 3, 4, 5)
STEPS = 120
SEEDS = 25  # of each release
OWN_FAULT = "is not assigned to this partition."  # the last known leader has been moved away


SEEN = {
    "register": "NONE DUPLICATE_BROKER_REGISTRATION INCONSISTENT_CLUSTER_ID INVALID_REGISTRATION",
    "heartbeat": "NONE STALE_BROKER_EPOCH",
    "alter": "NONE STALE_BROKER_EPOCH UNKNOWN_TOPIC_ID UNKNOWN_TOPIC_OR_PARTITION NOT_CONTROLLER FENCED_LEADER_EPOCH "
    "INVALID_REQUEST INVALID_UPDATE_VERSION INELIGIBLE_REPLICA NEW_LEADER_ELECTED",
    "elect": "NONE UNKNOWN_TOPIC_OR_PARTITION ELECTION_NOT_NEEDED PREFERRED_LEADER_NOT_AVAILABLE "
    "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    "reassign": "NONE UNKNOWN_TOPIC_OR_PARTITION INVALID_REPLICA_ASSIGNMENT INVALID_REPLICATION_FACTOR "
    "NO_REASSIGNMENT_IN_PROGRESS",
}


class KafkaFailsError(Exception):
    """Kafka's controller has met a case that it did not think of; from there on there is nothing to compare."""


class Both(SmallCluster):
    """A cluster whose every record Kafka's controller hears of, and whose every request it answers too."""

    def __init__(self, kafka: KafkaController, chance: Random, release: str):
        self.kafka = kafka
        self.chance = chance
        self.done: Counter[str] = Counter()
        self.history: list[str] = []
        self.is_silent = False  # what is appended is known to Kafka already
        kafka.begin(CLUSTER_ID, SESSION_TIMEOUT_MS)
        super().__init__(release=release)

    def append(self, records: Any) -> None:
        for record in records if not self.is_silent else ():
            self.kafka.replay(record, self.image.metadata_version or record.feature_level)
        super().append(records)

    def compare(
        self, operation: str, records: Any, response: Any = None, request: Any = None, version: int = 0
    ) -> None:
        theirs, answer, error = self.kafka.ask(operation, version, request)
        self.history.append(f"{operation} {version} {request}")
        said = "" if response is None else response
        code = getattr(response, "error_code", 0)
        told = f"{len(self.history)} steps, the last:\n" + "\n".join(self.history[-3:])
        if error.endswith(OWN_FAULT):
            raise KafkaFailsError
        if error:
            assert Error(code).name == error.split()[0], f"{told}\nKafka: {error}\nwe: {said}"
        elif response is not None:
            expected = type(response).decode(answer, version)
            if operation == "reassign" and expected.responses[0].partitions[0].error_code == Error.UNKNOWN_SERVER_ERROR:
                raise KafkaFailsError
            assert response == expected, f"{told}\nwe: {said}"
        self.agree(operation, theirs, records)
        self.done.update(f"{operation} {Error(each).name}" for each in codes(response))

    def agree(self, name: str, theirs: list[bytes], records: Any) -> None:
        written = [write_record(record, self.image.metadata_version) for record in records]
        if sorted(written) != sorted(theirs):
            told = "\n".join(self.history[-3:])
            shown = "\n".join(str(read_record(each)) for each in theirs)
            ours = "\n".join(map(str, records))
            pytest.fail(f"{len(self.history)} steps, the last:\n{told}\nKafka:\n{shown}\nwe:\n{ours}")
        self.is_silent = True
        self.append(records)
        self.is_silent = False
        self.done[name] += 1

    # One step each

    def come(self) -> None:
        broker = self.chance.choice(BROKERS)
        registered = self.image.brokers.get(broker)
        more: dict[str, Any] = {}
        if self.chance.random() < 0.8:
            self.lives[broker] = self.lives.get(broker, 0) + 1
        if registered is not None and self.chance.random() < 0.4:
            more["previous_broker_epoch"] = self.chance.choice([-1, registered.broker_epoch - 1])
        if self.chance.random() < 0.1:
            more["log_dirs"] = self.chance.choice(
                [
                    [],
                    [bytes(16)],
                    [bytes([9]) * 16] * 2,
                    [bytes([broker % 5 + 1]) * 16],
                    [bytes([broker]) * 16, b"x" * 16],
                ]
            )
        if self.chance.random() < 0.05:
            more["cluster_id"] = "AAECAwQFBgcICQoLDA0ODw"
        if self.chance.random() < 0.05:
            more["features"] = []
        request = self.registration_request(broker, **more)
        self.compare(
            "register",
            *self.registrations.register(request, next_offset=self.next_offset, steady_ms=self.now_ms),
            request,
            4,
        )

    def beat(self) -> None:
        for broker in self.chance.sample(BROKERS, 3):
            more: dict[str, Any] = {}
            draw = self.chance.random()
            if draw < 0.15:
                more["want_shut_down"] = True
            elif draw < 0.2:
                more["want_fence"] = True
            elif draw < 0.25:
                more["current_metadata_offset"] = self.next_offset - self.chance.randrange(5)
            elif draw < 0.28:
                more["broker_epoch"] = 1
            elif draw < 0.31 and broker in self.image.brokers:
                more["offline_log_dirs"] = [b"x" * 16]
            elif draw < 0.34 and self.release == "4.4":
                more["cordoned_log_dirs"] = self.chance.choice([[], [bytes([broker]) * 16]])
            request = self.heartbeat_request(broker, **more)
            records, response = self.registrations.heartbeat(
                request, next_offset=self.next_offset, steady_ms=self.now_ms
            )
            if response.should_shut_down:
                # Kafka keeps the session of a broker that may stop; we do not.
                self.registrations.sessions[broker].contact_ms = self.now_ms
            self.compare("heartbeat", records, response, request, 2)

    def wait(self) -> None:
        passed_ms = self.chance.choice([1, 3000, 4000, SESSION_TIMEOUT_MS + 1])
        self.now_ms += passed_ms
        self.kafka.ask("advance", passed_ms)
        silent = [broker for broker, each in self.registrations.sessions.items() if each.contact_ms is not None]
        silent = [broker for broker in silent if not self.registrations.has_session(broker, self.now_ms)]
        while True:
            # Whom Kafka takes first is up to a hash map; then it is this one's turn with us too.
            theirs, _, _ = self.kafka.ask("expire")
            changes = [read_record(each) for each in theirs]
            fenced = [each.broker_id for each in changes if isinstance(each, BrokerRegistrationChangeRecord)]
            if not fenced:
                break
            silent.remove(fenced[0])
            self.agree("expire", theirs, self.registrations.end_session(fenced[0]))
        assert not silent
        assert not self.registrations.expire(self.now_ms)

    def forget(self) -> None:
        if self.image.brokers and self.chance.random() < 0.3:
            broker = self.chance.choice(list(self.image.brokers))
            used = any(broker in each.replicas for topic in self.image.topics.values() for each in topic.partitions)
            if not used or self.chance.random() < 0.2:
                self.compare("unregister", self.registrations.unregister(broker), version=broker)

    def make(self) -> None:
        if len(self.image.topics) > 3 or not self.image.brokers:
            return
        replicas = [
            self.chance.sample(list(self.image.brokers), min(3, len(self.image.brokers)))
            for _ in range(self.chance.choice([1, 2]))
        ]
        configs = {}
        if self.chance.random() < 0.4:
            configs["unclean.leader.election.enable"] = "true"
        if self.chance.random() < 0.6:
            configs["min.insync.replicas"] = "2"
        try:
            self.create(*replicas, name=f"t{len(self.image.topics)}", configs=configs)
        except KafkaError:
            return

    def some(self) -> tuple[str, int]:
        topic = self.chance.choice(list(self.image.topics.values()))
        return topic.name, self.chance.choice(topic.partitions).id

    def propose(self) -> None:
        topic, number = self.some()
        partition = self.partition(number, topic)
        if partition.leader == NO_LEADER:
            return
        draw = self.chance.random()
        isr = [partition.leader, *(each for each in partition.replicas if self.chance.random() < 0.7)]
        isr = list(dict.fromkeys(isr))
        more: dict[str, Any] = {}
        version = self.chance.choice([2, 3, 3])
        if draw < 0.5:
            isr = [each for each in isr if not self.is_away(each)] or isr
        elif draw < 0.55:
            more["leader_epoch"] = partition.leader_epoch + self.chance.choice([-1, 1])
        elif draw < 0.6:
            more["partition_epoch"] = partition.partition_epoch + self.chance.choice([-1, 1])
        elif draw < 0.65:
            more["broker_id"] = self.chance.choice(BROKERS)
        elif draw < 0.7:
            more["broker_epoch"] = 0
        elif draw < 0.75:
            isr = self.chance.choice([[], [9, *isr], [*isr, isr[0]], isr[1:]])
        elif draw < 0.8:
            more["leader_recovery_state"] = 1
        elif draw < 0.85:
            more["epochs"] = {isr[-1]: self.chance.choice([-1, 2])}
        elif draw < 0.88:
            more["topic_id"] = bytes(15) + b"z"
        elif draw < 0.9:
            more["partition_index"] = 7
        request = self.alter_request(isr, number, topic, **more)
        for each in request.topics[0].partitions:  # only what the version says
            if version >= 3:
                each.new_isr = []
            else:
                each.new_isr_with_epochs = []
        request.topics[0].topic_name = ""
        self.compare("alter", *alter_partition(self.controller, request, version), request, version)

    def is_away(self, broker: int) -> bool:
        found = self.image.brokers.get(broker)
        return found is None or found.fenced or found.in_controlled_shutdown

    def elect_one(self) -> None:
        topic, number = self.some()
        asked = self.chance.choice([{topic: [number]}, {topic: [number, 7]}, {"none": [0], topic: [0]}, None])
        request = elect_request(self.chance.choice([0, 1]), asked)
        records, response = elect_leaders(self.controller, request)
        if asked is None:  # Kafka's topics are in the order of a hash map
            self.compare("elect", records, None, request, 2)
        else:
            self.compare("elect", records, response, request, 2)

    def move(self) -> None:
        topic, number = self.some()
        target = self.chance.sample(BROKERS, self.chance.choice([1, 2, 3, 3, 4]))
        draw = self.chance.random()
        if draw < 0.1:
            target = self.chance.choice([[], [1, 1], [9], [-1]])
        request = reassign_request(
            None if draw > 0.7 else target,
            self.chance.choice([number, number, number, 9]),
            self.chance.choice([topic, topic, topic, "none"]),
            may_resize=self.chance.random() < 0.7,
        )
        self.compare("reassign", *alter_reassignments(self.controller, request), request, 1)
        listing = ListPartitionReassignmentsRequest(
            topics=[
                ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 1])
                for name in self.image.topics
            ]
        )
        self.compare("list", [], list_reassignments(self.controller, listing), listing)

    def tidy(self) -> None:
        self.compare("balance", balance_leaders(self.controller))
        self.compare("unclean", elect_uncleanly(self.controller))

    def step(self) -> None:
        steps = [(self.come, 3), (self.beat, 8), (self.wait, 2), (self.forget, 1), (self.make, 1)]
        if self.image.topics:
            steps += [(self.propose, 8), (self.elect_one, 2), (self.move, 4), (self.tidy, 1)]
        self.chance.choices([step for step, _ in steps], [weight for _, weight in steps])[0]()


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaController]:
    controller = KafkaController()
    yield controller
    controller.close()


@pytest.mark.parametrize("release", ["4.4", "4.0"])  # with ELR and without
def test_our_controller_writes_and_answers_what_kafkas_does(kafka: KafkaController, release: str) -> None:
    done: Counter[str] = Counter()
    for seed in range(SEEDS):
        both = Both(kafka, Random(f"{release} {seed}"), release)
        with suppress(KafkaFailsError):
            for _ in range(STEPS):
                both.step()
        done += both.done
    for operation, names in SEEN.items():
        for name in names.split():
            assert done[f"{operation} {name}"], f"{operation}: no {name} in {SEEDS} seeds"


def codes(response: Any) -> list[int]:
    """Return the error code of an answer, and those of the partitions in it."""
    found = [] if response is None or not hasattr(response, "error_code") else [response.error_code]
    for name in ("topics", "partitions", "responses", "replica_election_results", "partition_result"):
        for inner in getattr(response, name, ()):
            found += codes(inner)
    return found
