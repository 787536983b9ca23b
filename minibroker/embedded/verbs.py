"""How the verbs of a broker are made of those of its engine, wherever it runs."""

from __future__ import annotations

from minibroker.embedded.engine import Engine
from minibroker.embedded.expectations import Expectations
from minibroker.embedded.hosted import Hosted, Verbs
from minibroker.embedded.overview import Overview

OF_ENGINE: Verbs[Engine] = Verbs(lambda engine: engine, blocks=False)
WAITING: Verbs[Engine] = Verbs(lambda engine: engine)
EXPECTING: Verbs[Engine] = Verbs(Expectations)
SEEING: Verbs[Engine] = Verbs(lambda engine: Overview(engine, engine))


class Asked(Hosted[Engine]):
    """A broker, and what any can be asked for and told by Kafka's own protocol, be it ours or not."""

    create_topic, acreate_topic = OF_ENGINE(Engine.create_topic)
    delete_topic, adelete_topic = OF_ENGINE(Engine.delete_topic)
    topics, atopics = OF_ENGINE(Engine.topics)
    records, arecords = OF_ENGINE(Engine.records)
    ends, aends = OF_ENGINE(Engine.ends)
    last_records, alast_records = OF_ENGINE(Engine.last_records)
    wait_records, await_records = WAITING(Engine.wait_records)
    expect, aexpect = EXPECTING(Expectations.expect)
    never, anever = EXPECTING(Expectations.never)

    groups, agroups = OF_ENGINE(Engine.groups)
    group, agroup = OF_ENGINE(Engine.group)
    wait_group, await_group = WAITING(Engine.wait_group)
    wait_committed, await_committed = WAITING(Engine.wait_committed)
    overview, aoverview = SEEING(Overview.overview)
