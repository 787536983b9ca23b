"""A topic's setting has its effect: from the start, when it is altered, and when the topic follows its broker.

The effects are those that can be seen from outside (setting_probes.py), for each setting alone and for random sets.
"""

from __future__ import annotations

from random import Random

import pytest

from minibroker.config.setting import READ_ONLY
from minibroker.config.tables import broker_settings, topic_settings
from tests.broker.setting_probes import BROKER, PROBES, TOPIC, Lab, alter, laboratory, look, pins


@pytest.mark.parametrize("name", PROBES)
async def test_a_topics_setting_has_its_effect_from_the_start_and_when_it_is_altered(name: str) -> None:
    topic, _, (first, second) = PROBES[name]
    async with laboratory() as lab:
        await lab.create(topic, pins(topic) | {name: first})
        await look(lab, name, first)
        assert await alter(lab.client, TOPIC, topic, {name: second}) is None
        await look(lab, name, second)
        assert await alter(lab.client, TOPIC, topic, {name: None}) is None
        if (default := topic_settings()[name].default) is not None:
            await look(lab, name, default)


UNITS = {"minutes": 60_000, "hours": 3_600_000}
FOLLOWED = [(name, synonym) for name in PROBES for synonym in topic_settings()[name].synonyms]


def in_unit(name: str, synonym: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return two values of a broker's setting, with what they are for a topic."""
    first, second = PROBES[name].values
    unit_ms = UNITS.get(synonym.rpartition(".")[2])
    return ((first, first), (second, second)) if unit_ms is None else (("1", str(unit_ms)), ("2", str(2 * unit_ms)))


@pytest.mark.parametrize(("name", "synonym"), FOLLOWED)
async def test_a_topic_follows_the_broker_from_the_start_and_when_that_is_altered(name: str, synonym: str) -> None:
    topic = PROBES[name].topic
    (first, wanted), (second, then) = in_unit(name, synonym)
    async with laboratory(**{synonym: first}) as lab:
        await lab.create(topic, pins(topic))
        await look(lab, name, wanted)
        for broker in ("", "1"):
            refused = await alter(lab.client, BROKER, broker, {synonym: second})
            if broker_settings()[synonym].update == READ_ONLY:
                assert refused == f"Cannot update these configs dynamically: [{synonym}]"
                continue
            assert refused is None
            await look(lab, name, then)
            assert await alter(lab.client, BROKER, broker, {synonym: None}) is None
            await look(lab, name, wanted)


@pytest.mark.parametrize("delay_ms", [10_000, 40_000])
async def test_what_the_cleaner_has_replaced_lies_there_for_file_delete_delay_ms_too(delay_ms: int) -> None:
    async with laboratory() as lab:
        await lab.create("t", {"cleanup.policy": "compact", "file.delete.delay.ms": str(delay_ms)})
        for _ in range(2):
            await lab.written("t", key=b"k")
        await lab.begin_segment("t")
        await lab.node.cleaning.compact_now("t")
        await lab.pass_time(delay_ms - 1)
        assert lab.files("t", ".deleted")
        await lab.pass_time(1)
        assert not lab.files("t", ".deleted")


MODELLED = [name for name in PROBES if topic_settings()[name].synonyms]


def broker_name_of(name: str) -> str:
    return topic_settings()[name].synonyms[0]


class Layers:
    """A model of where settings are set: the strongest layer that has one counts.

    The broker's settings of its start are below those of all brokers, and above the defaults.
    """

    def __init__(self, chance: Random):
        self.chance = chance
        self.start = self.some_values(8)
        self.everywhere: dict[str, str] = {}
        self.broker: dict[str, str] = {}
        self.topic: dict[str, str] = {}  # each in the topic in which it is probed

    def some_values(self, count: int) -> dict[str, str]:
        return {name: self.chance.choice(PROBES[name].values) for name in self.chance.sample(MODELLED, count)}

    def in_force(self, name: str) -> str:
        for layer in (self.topic, self.broker, self.everywhere, self.start):
            if name in layer:
                return layer[name]
        return topic_settings()[name].default or ""

    def in_force_beside(self, name: str) -> dict[str, str]:
        topic = PROBES[name].topic
        return {each: self.in_force(each) for each in MODELLED if PROBES[each].topic == topic and each != name}

    async def change(self, lab: Lab) -> list[str]:
        """Set some settings of a layer and take others back, all in one request for each resource; return which."""
        layer = self.chance.choice((self.topic, self.topic, self.broker, self.everywhere))
        changes: dict[str, str | None] = dict(self.some_values(4))
        changes |= dict.fromkeys(self.chance.sample(sorted(layer), min(2, len(layer))))
        if layer is not self.topic:
            changes = {name: value for name, value in changes.items() if is_dynamic(name)}
        by_resource: dict[tuple[int, str], dict[str, str | None]] = {}
        for name, value in changes.items():
            of_topic = layer is self.topic
            where = (TOPIC, PROBES[name].topic) if of_topic else (BROKER, "1" if layer is self.broker else "")
            by_resource.setdefault(where, {})[name if of_topic else broker_name_of(name)] = value
            layer.pop(name, None)
            if value is not None:
                layer[name] = value
        for (kind, resource), rows in by_resource.items():
            assert await alter(lab.client, kind, resource, rows) is None
        return list(changes)


def is_dynamic(name: str) -> bool:
    return broker_settings()[broker_name_of(name)].update != READ_ONLY


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
async def test_random_sets_of_settings_that_change_while_a_broker_runs_have_their_effects(seed: int) -> None:
    """The topic's word before that of one broker, of all brokers, of the start, and the default."""
    layers = Layers(Random(seed))
    given = {broker_name_of(name): value for name, value in layers.start.items()}
    async with laboratory(**given) as lab:
        for topic in sorted({probed.topic for probed in PROBES.values()}):
            await lab.create(topic, pins(topic))
        for _ in range(4):
            changed = await layers.change(lab)
            # And such as were not touched.
            for name in dict.fromkeys([*changed, *layers.chance.sample(MODELLED, 3)]):
                await look(lab, name, layers.in_force(name), layers.in_force_beside(name))
