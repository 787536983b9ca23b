"""Settings of groups, as text in the notation of setting.py, in order of their names.

A group that does not set one takes what the broker has under the name in the last column.
"""

GROUP = """\
consumer.assignment.interval.ms | int | 1000 | [0,...] | group.consumer.assignment.interval.ms
consumer.assignor.offload.enable | boolean later internal | true |  | group.consumer.assignor.offload.enable
consumer.heartbeat.interval.ms | int | 5000 | [1,...] | group.consumer.heartbeat.interval.ms
consumer.session.timeout.ms | int | 45000 | [1,...] | group.consumer.session.timeout.ms
errors.deadletterqueue.copy.record.enable | boolean later | false
errors.deadletterqueue.topic.name | string later |
share.assignment.interval.ms | int later | 1000 | [0,...] | group.share.assignment.interval.ms
share.assignor.offload.enable | boolean later internal | true |  | group.share.assignor.offload.enable
share.auto.offset.reset | string later | latest | [latest, earliest, by_duration:PnDTnHnMn.nS]
share.delivery.count.limit | int later | 5 | [2,...] | group.share.delivery.count.limit
share.heartbeat.interval.ms | int later | 5000 | [1,...] | group.share.heartbeat.interval.ms
share.isolation.level | string later | read_uncommitted | [read_committed, read_uncommitted]
share.partition.max.record.locks | int later | 2000 | [100,...] | group.share.partition.max.record.locks
share.record.lock.duration.ms | int later | 30000 | [1000,...] | group.share.record.lock.duration.ms
share.renew.acknowledge.enable | boolean later | true
share.session.timeout.ms | int later | 45000 | [1,...] | group.share.session.timeout.ms
streams.acceptable.recovery.lag | long later internal | 10000 | [0,...] | group.streams.acceptable.recovery.lag
streams.assignment.interval.ms | int later | 1000 | [0,...] | group.streams.assignment.interval.ms
streams.assignor.name | string later | null |  | group.streams.assignors
streams.assignor.offload.enable | boolean later internal | true |  | group.streams.assignor.offload.enable
streams.heartbeat.interval.ms | int later | 5000 | [1,...] | group.streams.heartbeat.interval.ms
streams.initial.rebalance.delay.ms | int later | 3000 | [0,...] | group.streams.initial.rebalance.delay.ms
streams.num.standby.replicas | int later | 0 | [0,...] | group.streams.num.standby.replicas
streams.num.warmup.replicas | int later internal | 2 | [0,...] | group.streams.num.warmup.replicas
streams.rack.aware.assignment.tags | list later |  |  | group.streams.rack.aware.assignment.tags
streams.session.timeout.ms | int later | 45000 | [1,...] | group.streams.session.timeout.ms
streams.task.offset.interval.ms | int later internal | 60000 | [1,...] | group.streams.task.offset.interval.ms
"""
