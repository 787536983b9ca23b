"""What a repair puts back where the metadata log has lost something: topics, read off the directories of partitions.

A directory says the name, the number, the topic's id and the epochs of its leaders. What nothing but the metadata knew
stays lost: settings, and that there were more partitions than directories.
What must hold: nothing is deleted because something is not known. So a topic without settings keeps all of its
records until somebody says otherwise, internal topics have what they are made with, and until the next start neither
retention nor compaction runs, for what the gap had changed may be the settings of any topic, or of the broker. No
producer id is given twice, and no leader epoch. Every topic that is put back is said.
Only for a broker that is its own controller: of a cluster each broker has a part of the partitions.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from minibroker.controller.controller import Controller
from minibroker.controller.placement import new_partition
from minibroker.errors import ProtocolError
from minibroker.groups import OFFSETS_TOPIC, offsets_topic_configs
from minibroker.log.checkpoints import read_leader_epochs, read_topic_id
from minibroker.metadata.image import TOPIC, Topic, partition_record
from minibroker.metadata.rescue import Rescue, forgotten
from minibroker.replication.replica_set import Partitions
from minibroker.stored.kinds import MetadataRecord

KEEPS_ALL = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
NAMES_MAX = 10  # in one line
NO_SETTINGS = """\
{topics}: no settings are known any more; nothing is deleted there until you set cleanup.policy, retention.ms and \
retention.bytes with `minibroker configs --alter`"""
KEPT = """\
what the metadata have lost may be settings of other topics or of the broker, too: until the next start nothing is \
deleted or compacted anywhere; look at them before (`minibroker configs`)"""


class Restoration:
    """What is to be written so that everything that is there is known."""

    def __init__(self, partitions: Partitions, controller: Controller, rescue: Rescue | None):
        """rescue: what could be read behind damage; None: the log was whole."""
        self.parts = partitions.parts
        self._upkeep = partitions.upkeep
        self._controller = controller
        self._is_complete = rescue is None or rescue.is_complete
        self._removed_ids: set[bytes] = set() if rescue is None else rescue.removed_ids
        self._without_settings: list[str] = []

    def records(self) -> list[MetadataRecord]:
        """Return the records, and say what they mean."""
        parts = self.parts
        counts: dict[str, int] = {}
        for topic, partition in parts.directory.found():
            counts[topic] = max(counts.get(topic, 0), partition + 1)
        records: list[MetadataRecord] = []
        for name in sorted(counts):
            records += self._topic(name, counts[name])
        for name in parts.image.topics.keys() - counts.keys() if not self._is_complete else ():
            parts.reporter.say(f"topic {name} has no directories; it may have been deleted, and is empty now")
        if not self._is_complete or records:
            records += self._nobodys_settings(counts)
            records.append(self._producer_ids())
            self._upkeep.keeps_all = True
            if self._without_settings:
                parts.reporter.say(NO_SETTINGS.format(topics=_shortened(self._without_settings)))
            parts.reporter.say(KEPT)
        return records

    def _topic(self, name: str, count: int) -> list[MetadataRecord]:
        """Return the records of a topic, as far as it has directories and is not known."""
        from minibroker.stored.topics import RemoveTopicRecord, TopicRecord

        parts, ids = self.parts, self._ids(name, count)
        if ids and self._removed_ids.issuperset(ids):
            return []  # it was deleted; what is left of it is set aside
        records: list[MetadataRecord] = []
        known = parts.image.topics.get(name)
        if known is not None and ids and known.id not in ids:
            if self._is_complete:
                return []
            records.append(RemoveTopicRecord(topic_id=known.id))  # it was made anew, in what is lost
            known = None
        first = 0
        if known is not None:
            topic_id, first = known.id, len(known.partitions)
            records += self._later_epochs(known)
        else:
            topic_id = self._first_free(ids)
            records.append(TopicRecord(name=name, topic_id=topic_id))
            records += self._settings(name, is_sure=len(records) == 1)
        if first < count:
            parts.reporter.say(f"topic {name} is put back with {count} partitions")
        for number in range(first, count):
            record = new_partition(parts.image, topic_id, number, [parts.node_id])
            record.leader_epoch = self._latest_epoch(f"{name}-{number}") + 1  # type: ignore[attr-defined]
            records.append(record)
        return records

    def _settings(self, name: str, *, is_sure: bool) -> list[MetadataRecord]:
        """Return the settings of a topic that is put back. is_sure: those that are known by its name are its own."""
        from minibroker.stored.topics import ConfigRecord

        settings: Mapping[str, str] = KEEPS_ALL
        if name == OFFSETS_TOPIC:
            settings = offsets_topic_configs(self.parts.config)
        else:
            self._without_settings.append(name)
        known = self.parts.image.topic_configs(name) if is_sure else {}
        return [
            ConfigRecord(resource_type=TOPIC, resource_name=name, name=each, value=value)
            for each, value in settings.items()
            if each not in known
        ]

    def _later_epochs(self, topic: Topic) -> list[MetadataRecord]:
        """Return the partitions of a topic of which the directories know later leaders than the metadata do."""
        records: list[MetadataRecord] = []
        for partition in topic.partitions if not self._is_complete else ():
            latest = self._latest_epoch(f"{topic.name}-{partition.id}")
            if latest >= partition.leader_epoch:
                record = partition_record(topic.id, partition, self.parts.image.metadata_version)
                record.leader_epoch = latest + 1  # type: ignore[attr-defined]
                record.partition_epoch += 1  # type: ignore[attr-defined]
                records.append(record)
        return records

    def _nobodys_settings(self, names: Container[str]) -> list[MetadataRecord]:
        """Return what deletes settings of topics that are not there, or the next one of that name would have them."""
        return [
            record
            for kind, name in self.parts.image.configs
            if kind == TOPIC and name not in names and name not in self.parts.image.topics
            for record in forgotten(self.parts.image, name)
        ]

    def _producer_ids(self) -> MetadataRecord:
        """Return where the next block of producer ids begins: nobody has had as many as milliseconds since 1970."""
        from minibroker.stored.cluster import ProducerIdsRecord

        parts = self.parts
        return ProducerIdsRecord(
            broker_id=parts.node_id,
            broker_epoch=parts.image.brokers[parts.node_id].broker_epoch,
            next_producer_id=max(parts.image.next_producer_id, parts.clock.now_ms()),
        )

    def _ids(self, name: str, count: int) -> list[bytes]:
        found = []
        for number in range(count):
            try:
                topic_id = read_topic_id(self.parts.storage, f"{name}-{number}")
            except ProtocolError:
                continue
            if topic_id is not None:
                found.append(topic_id)
        return found

    def _first_free(self, ids: list[bytes]) -> bytes:
        """Return the id that most directories name, unless another topic has it."""
        for topic_id in sorted(set(ids), key=ids.count, reverse=True):
            if topic_id not in self.parts.image.topics_by_id:
                return topic_id
        return self._controller.new_id()

    def _latest_epoch(self, directory: str) -> int:
        try:
            latest = read_leader_epochs(self.parts.storage, directory).latest_epoch
        except ProtocolError:
            return 0  # a start reads the epochs off the batches then
        return -1 if latest is None else latest


def _shortened(names: list[str]) -> str:
    more = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {more} others" if more > 0 else "")
