"""Settings of a broker that mean something here, as text in the notation of setting.py, in order of their names.

Types, defaults, valid values and how a value can be changed are those of Kafka 4.4.
Not here: settings that are accepted and do nothing (other_rows.py).
"""

BROKER = """\
advertised.listeners | list read-only | null
  What clients are told to connect to, where that differs from the address they reached.
alter.config.policy.class.name | class read-only refused | null
  Java class that may refuse changed settings.
authorizer.class.name | string read-only refused |  | non-null string
  Java class that decides who may do what; refused, so that nobody believes to be guarded.
auto.create.topics.enable | boolean read-only | true
  Whether asking for an unknown topic may create it.
auto.leader.rebalance.enable | boolean read-only | true
  Whether partitions go back to their preferred leaders by themselves.
broker.heartbeat.interval.ms | int read-only | 2000
  How often a broker of a cluster tells the controller that it lives.
broker.id | int read-only | -1
  Older name of node.id.
broker.rack | string read-only | null
  Rack of this broker, told to clients that read from the closest replica.
broker.session.timeout.ms | int read-only | 9000
  A broker that is silent for that long is fenced; others lead what it led.
client.quota.callback.class | class read-only refused | null
  Java class that sets quotas.
compression.gzip.level | int cluster-wide | -1 | [1,...,9] or -1
  Level with which the broker compresses by gzip.
compression.lz4.level | int cluster-wide | 9 | [1,...,17]
  Level with which the broker compresses by lz4.
compression.type | string cluster-wide | producer | [uncompressed, zstd, lz4, snappy, gzip, producer]
  Codec of stored batches; producer keeps what came.
compression.zstd.level | int cluster-wide | 3 | [-131072,...,22]
  Level with which the broker compresses by zstd.
connection.failed.authentication.delay.ms | int read-only later | 100 | [0,...]
  How long a failed login waits for its answer.
connections.max.idle.ms | long read-only | 600000
  A connection without a request for that long is closed.
connections.max.reauth.ms | long read-only later | 0
  How long a login is valid; 0 is for ever.
controlled.shutdown.enable | boolean read-only | true
  Whether leaders move before their broker stops.
controller.listener.names | list read-only | null
  Listeners of the controller; they are not opened, for the controller is in the broker's process.
  here CONTROLLER: Kafka has no default; the name is that of its sample files
controller.quorum.bootstrap.servers | list read-only |  | non-empty list
  Where controllers are found; one address at most, for the broker is its own controller.
controller.quorum.voters | list read-only |  | non-empty list
  Controllers as id@host:port; only this broker itself can be one.
create.topic.policy.class.name | class read-only refused | null
  Java class that may refuse new topics.
default.replication.factor | int read-only | 1
  Replicas of a topic that is created without a number.
delete.topic.enable | boolean read-only | true
  Whether topics can be deleted.
fetch.max.bytes | int read-only | 57671680 | [1024,...]
  Most that one fetch answer holds.
group.consumer.assignment.interval.ms | int cluster-wide | 1000 | [0,...]
  Time between two assignments of a group of the consumer protocol.
group.consumer.assignors | list read-only | uniform,range
  Assignors of consumer groups on the broker, best first.
group.consumer.heartbeat.interval.ms | int read-only | 5000 | [1,...]
  How often members of consumer groups report.
group.consumer.max.assignment.interval.ms | int read-only | 15000 | [0,...]
  Most that a group may be told instead.
group.consumer.max.heartbeat.interval.ms | int read-only | 15000 | [1,...]
  Largest heartbeat interval that a group can be given.
group.consumer.max.session.timeout.ms | int read-only | 60000 | [1,...]
  Largest session timeout that a group can be given.
group.consumer.max.size | int read-only | 2147483647 | [1,...]
  Most members of a consumer group.
group.consumer.migration.policy | string read-only | bidirectional | (case insensitive) [DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL]
  Whether groups may change between the classic and the consumer protocol.
group.consumer.min.assignment.interval.ms | int read-only | 0 | [0,...]
  Least that a group may be told instead.
group.consumer.min.heartbeat.interval.ms | int read-only | 5000 | [1,...]
  Smallest heartbeat interval that a group can be given.
group.consumer.min.session.timeout.ms | int read-only | 45000 | [1,...]
  Smallest session timeout that a group can be given.
group.consumer.regex.refresh.interval.ms | int read-only internal | 600000 | [10000,...]
  How often a group's regular expressions are compared with the topics anew.
group.consumer.session.timeout.ms | int read-only | 45000 | [1,...]
  A consumer group's member that is silent for that long is out.
group.coordinator.rebalance.protocols | list read-only | classic,consumer,streams | [consumer, classic, share, streams]
  Group protocols that are served; share and streams are not there yet.
group.initial.rebalance.delay.ms | int read-only | 3000
  How long the first rebalance of an empty group waits for more members.
  here 0: a test must not wait three seconds for its first record
group.max.session.timeout.ms | int read-only | 1800000
  Largest session timeout a member of a classic group can ask for.
group.max.size | int read-only | 2147483647 | [1,...]
  Most members of a classic group.
group.min.session.timeout.ms | int read-only | 6000
  Smallest session timeout a member of a classic group can ask for.
group.share.delivery.count.limit | int read-only later | 5 | [2,...,10]
  How often a share group delivers a record at most.
group.share.heartbeat.interval.ms | int read-only later | 5000 | [1,...]
  How often members of share groups report.
group.share.max.size | int read-only later | 200 | [1,...,1000]
  Most members of a share group.
group.share.partition.max.record.locks | int read-only later | 2000 | [100,...,10000]
  Most records of a partition that are locked at once for a share group.
group.share.record.lock.duration.ms | int read-only later | 30000 | [1000,...,3600000]
  How long a record is locked for the consumer that got it.
group.share.session.timeout.ms | int read-only later | 45000 | [1,...]
  A share group's member that is silent for that long is out.
group.streams.heartbeat.interval.ms | int read-only later | 5000 | [1,...]
  How often members of streams groups report.
group.streams.initial.rebalance.delay.ms | int read-only later | 3000 | [0,...]
  How long the first assignment of an empty streams group waits for more members.
  here 0: a test must not wait three seconds for its first record
group.streams.max.size | int read-only later | 2147483647 | [1,...]
  Most members of a streams group.
group.streams.num.standby.replicas | int read-only later | 0 | [0,...]
  Standby copies of each streams task.
group.streams.session.timeout.ms | int read-only later | 45000 | [1,...]
  A streams group's member that is silent for that long is out.
inter.broker.listener.name | string read-only | null
  Listener that brokers use among themselves; it must be one that is there. Brokers of one process need none.
leader.imbalance.check.interval.seconds | long read-only | 300 | [1,...]
  How often the controller looks for partitions that are not led by their preferred leaders.
listener.security.protocol.map | string per-broker at-start | SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
  Security protocol of each listener name; a listener starts only with PLAINTEXT.
listeners | list per-broker at-start | PLAINTEXT://:9092
  Addresses to listen on, as NAME://host:port; an empty host is all interfaces, port 0 any free port.
  here PLAINTEXT://127.0.0.1:9092: nobody else on the network shall reach a broker that asks for no password
log.cleaner.backoff.ms | long cluster-wide | 15000 | [0,...]
  How long the cleaner rests when there is nothing to clean.
log.cleaner.dedupe.buffer.size | long cluster-wide | 134217728
  Bytes in which compaction notes keys; what has no room comes in the next pass.
log.cleaner.delete.retention.ms | long cluster-wide | 86400000 | [0,...]
  How long compaction keeps the marks of deleted keys.
log.cleaner.enable | boolean read-only | true
  Whether compacted topics are compacted.
log.cleaner.io.buffer.load.factor | double cluster-wide | 0.9
  Share of that buffer that is used.
log.cleaner.io.max.bytes.per.second | double cluster-wide | 1.7976931348623157E308
  Most that compaction reads and writes in a second.
log.cleaner.max.compaction.lag.ms | long cluster-wide | 9223372036854775807 | [1,...]
  Latest time at which a record is compacted.
log.cleaner.min.cleanable.ratio | double cluster-wide | 0.5 | [0,...,1]
  Share of uncompacted bytes at which a log is compacted.
log.cleaner.min.compaction.lag.ms | long cluster-wide | 0 | [0,...]
  Time for which a record is safe from compaction.
log.cleaner.threads | int cluster-wide | 1 | [0,...]
  0: nothing is compacted. Any other number is one log at a time.
log.cleanup.policy | list cluster-wide | delete | [compact, delete]
  What happens to old data: delete, compact or both.
log.dir | list read-only | /tmp/kafka-logs
  Data directory, if log.dirs says nothing.
log.dirs | list read-only | null
  Data directory; there can be one.
log.flush.interval.messages | long cluster-wide | 9223372036854775807 | [1,...]
  Records after which a log is flushed to disk.
log.flush.interval.ms | long cluster-wide | null
  Time after which a log is flushed to disk; unset, log.flush.scheduler.interval.ms.
log.flush.offset.checkpoint.interval.ms | int read-only | 60000 | [0,...]
  How often it is noted how far logs are flushed: from there on a start reads them after a crash.
log.flush.scheduler.interval.ms | long read-only | 9223372036854775807
  How often it is checked whether a log must be flushed.
log.flush.start.offset.checkpoint.interval.ms | int read-only | 60000 | [0,...]
  How often it is noted where logs begin.
log.index.interval.bytes | int cluster-wide | 4096 | [0,...]
  Bytes of log between two entries of its offset index.
log.index.size.max.bytes | int cluster-wide | 10485760 | [4,...]
  Largest size of an index file; a full one begins a new segment.
log.initial.task.delay.ms | long read-only internal | 30000 | [0,...]
  How long after the start old segments are looked for first.
log.message.downconversion.enable | boolean cluster-wide 3.9 | true
  Whether old clients get records in their format; with --as-version below 4.0.
log.message.format.version | string read-only 3.9 | 3.0-IV1 | [0.8.0, 0.8.1, 0.8.2, 0.9.0, 0.10.0-IV0, 0.10.0-IV1, 0.10.1-IV0, 0.10.1-IV1, 0.10.1-IV2, 0.10.2-IV0, 0.11.0-IV0, 0.11.0-IV1, 0.11.0-IV2, 1.0-IV0, 1.1-IV0, 2.0-IV0, 2.0-IV1, 2.1-IV0, 2.1-IV1, 2.1-IV2, 2.2-IV0, 2.2-IV1, 2.3-IV0, 2.3-IV1, 2.4-IV0, 2.4-IV1, 2.5-IV0, 2.6-IV0, 2.7-IV0, 2.7-IV1, 2.7-IV2, 2.8-IV0, 2.8-IV1, 3.0-IV0, 3.0-IV1, 3.1-IV0, 3.2-IV0, 3.3-IV0, 3.3-IV1, 3.3-IV2, 3.3-IV3, 3.4-IV0, 3.5-IV0, 3.5-IV1, 3.5-IV2, 3.6-IV0, 3.6-IV1, 3.6-IV2, 3.7-IV0, 3.7-IV1, 3.7-IV2, 3.7-IV3, 3.7-IV4, 3.8-IV0, 3.9-IV0, 4.0-IV0, 4.0-IV1]
  Format of stored records; with --as-version below 3.0.
log.message.timestamp.after.max.ms | long cluster-wide | 3600000 | [0,...]
  How far in the future a record's timestamp may be.
log.message.timestamp.before.max.ms | long cluster-wide | 9223372036854775807 | [0,...]
  How far in the past a record's timestamp may be.
log.message.timestamp.difference.max.ms | long cluster-wide 3.9 | 9223372036854775807 | [0,...]
  How far a record's timestamp may be from now; with --as-version below 4.0.
log.message.timestamp.type | string cluster-wide | CreateTime | [CreateTime, LogAppendTime]
  Whether records carry the producer's time or that of the append.
log.retention.bytes | long cluster-wide | -1
  Bytes of a partition above which its oldest segments go; -1 is no limit.
log.retention.check.interval.ms | long read-only | 300000 | [1,...]
  How often old segments are looked for.
log.retention.hours | int read-only | 168
  Hours after which segments go; log.retention.minutes and .ms come before it.
log.retention.minutes | int read-only | null
  Minutes after which segments go; log.retention.ms comes before it.
log.retention.ms | long cluster-wide | null
  Milliseconds after which segments go; -1 is never.
log.roll.hours | int read-only | 168 | [1,...]
  Hours after which a new segment begins; log.roll.ms comes before it.
log.roll.jitter.hours | int read-only | 0 | [0,...]
  Hours by which log.roll.hours may be shortened, by chance.
log.roll.jitter.ms | long cluster-wide | null
  Milliseconds by which log.roll.ms may be shortened, by chance.
log.roll.ms | long cluster-wide | null
  Milliseconds after which a new segment begins.
log.segment.bytes | int cluster-wide | 1073741824 | [1048576,...]
  Largest size of a segment file.
log.segment.delete.delay.ms | long cluster-wide | 60000 | [0,...]
  How long a deleted segment's files stay.
max.connections | int cluster-wide | 2147483647 | [0,...]
  Most connections to this broker; listener.name.NAME.max.connections is for one listener.
max.connections.per.ip | int cluster-wide | 2147483647 | [0,...]
  Most connections from one address; 0 only if the overrides let somebody in.
max.connections.per.ip.overrides | string cluster-wide |
  Other limits for some addresses, as in host:100,127.0.0.1:200.
max.decompressed.message.bytes | int cluster-wide | 2147483639 | [1,...,2147483639]
  Most bytes of one record, its batch having been unpacked.
max.incremental.fetch.session.cache.slots | int read-only | 1000 | [0,...]
  Most fetch sessions that are kept.
max.request.partition.size.limit | int read-only | 2000 | [1,...]
  Most partitions in one answer of DescribeTopicPartitions.
message.max.bytes | int cluster-wide | 1048588 | [0,...]
  Largest batch that is accepted, with its compression.
metadata.log.dir | string read-only | null
  Directory of the metadata log; it can only be the data directory.
metadata.log.segment.bytes | int read-only | 1073741824 | [8388608,...]
  Largest size of a segment of the metadata log.
min.insync.replicas | int cluster-wide | 1 | [1,...]
  In-sync replicas that a write with acks=all needs.
node.id | int read-only | null | [0,...]
  Id of this broker.
  here 1: Kafka has no default; one broker needs no choice
num.partitions | int read-only | 1 | [1,...]
  Partitions of a topic that is created without a number.
num.recovery.threads.per.data.dir | int cluster-wide | 2 | [1,...]
  In how many threads a stop flushes the logs; a start opens them one after the other.
offset.metadata.max.bytes | int read-only | 4096
  Longest text beside a committed offset.
offsets.commit.timeout.ms | int read-only | 5000 | [1,...]
  How long a commit waits for the replicas in sync.
offsets.retention.check.interval.ms | long read-only | 600000 | [1,...]
  How often expired offsets are looked for.
offsets.retention.minutes | int read-only | 10080 | [1,...]
  How long an empty group's offsets are kept.
offsets.topic.compression.codec | int read-only | 0
  Codec of the topic of committed offsets, by number.
offsets.topic.num.partitions | int read-only | 50 | [1,...]
  Partitions of the topic of committed offsets.
offsets.topic.replication.factor | short read-only | 3 | [1,...]
  Replicas of the topic of committed offsets, or as many as there are brokers.
offsets.topic.segment.bytes | int read-only | 104857600 | [1,...]
  Segment size of the topic of committed offsets.
principal.builder.class | class per-broker refused | org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
  Java class that names who is connected.
process.roles | list read-only | null | [broker, controller]
  What this process is; it can only be both.
  here broker,controller: Kafka has no default; one broker is both
producer.id.expiration.ms | int cluster-wide | 86400000 | [1,...]
  How long an idempotent producer that wrote nothing is remembered.
remote.log.storage.system.enable | boolean read-only refused | false
  Whether old segments move to other storage.
replica.fetch.backoff.ms | int read-only | 1000 | [0,...]
  How long a follower waits after a fetch that failed.
replica.fetch.max.bytes | int read-only | 1048576 | [0,...]
  Most that a follower asks for of one partition.
replica.fetch.min.bytes | int read-only | 1
  Least that a follower waits for.
replica.fetch.response.max.bytes | int read-only | 10485760 | [0,...]
  Most that a follower asks for at once.
replica.fetch.wait.max.ms | int read-only | 500
  How long a follower's fetch waits when there is nothing new.
replica.high.watermark.checkpoint.interval.ms | long read-only | 5000
  How often high watermarks are written down.
replica.lag.time.max.ms | long read-only | 30000
  A follower that has not caught up for that long is out of sync.
replica.selector.class | string read-only | null
  org.apache.kafka.common.replica.RackAwareReplicaSelector sends consumers to a replica in their rack.
replica.socket.timeout.ms | int read-only | 30000
  How long a follower waits for an answer of its leader.
sasl.enabled.mechanisms | list per-broker later | GSSAPI
  Login mechanisms that are offered.
sasl.jaas.config | password per-broker later | null
  Users and passwords in the notation of JAAS.
security.inter.broker.protocol | string read-only | PLAINTEXT | [PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL]
  Security protocol among brokers, unless inter.broker.listener.name is set; it can only be PLAINTEXT.
share.coordinator.state.topic.min.isr | short read-only later | 2 | [1,...]
  In-sync replicas that the topic of share group state needs.
  here 1: one broker has no more
share.coordinator.state.topic.num.partitions | int read-only later | 50 | [1,...]
  Partitions of the topic of share group state.
share.coordinator.state.topic.replication.factor | short read-only later | 3 | [1,...]
  Replicas of the topic of share group state.
  here 1: one broker has no more
share.coordinator.state.topic.segment.bytes | int read-only later | 104857600 | [1,...]
  Segment size of the topic of share group state.
socket.listen.backlog.size | int read-only | 50 | [1,...]
  Connections that may wait to be accepted.
  here 1024: a test that opens many at once must not meet a full queue
socket.receive.buffer.bytes | int read-only | 102400
  Receive buffer of sockets; -1 is the system's choice.
  here -1: a system that sizes them by itself does better than a fixed size
socket.request.max.bytes | int read-only | 104857600 | [1,...]
  Largest request that is read.
socket.send.buffer.bytes | int read-only | 102400
  Send buffer of sockets; -1 is the system's choice.
  here -1: a system that sizes them by itself does better than a fixed size
ssl.client.auth | string per-broker refused | none | [required, requested, none]
  Whether clients must show a certificate; anything but none is refused.
transaction.abort.timed.out.transaction.cleanup.interval.ms | int read-only later | 10000 | [1,...]
  How often transactions that took too long are looked for.
transaction.max.timeout.ms | int read-only later | 900000 | [1,...]
  Longest time that a transaction can ask for.
transaction.partition.verification.enable | boolean cluster-wide later | true
  Whether a write is checked to belong to an open transaction.
transaction.remove.expired.transaction.cleanup.interval.ms | int read-only later | 3600000 | [1,...]
  How often expired transactional ids are looked for.
transaction.state.log.min.isr | int read-only later | 2 | [1,...]
  In-sync replicas that the topic of transactions needs.
  here 1: one broker has no more
transaction.state.log.num.partitions | int read-only later | 50 | [1,...]
  Partitions of the topic of transactions.
transaction.state.log.replication.factor | short read-only later | 3 | [1,...]
  Replicas of the topic of transactions.
  here 1: one broker has no more
transaction.state.log.segment.bytes | int read-only later | 104857600 | [1,...]
  Segment size of the topic of transactions.
transaction.two.phase.commit.enable | boolean read-only later | false
  Whether transactions may stay open without a limit.
transactional.id.expiration.ms | int read-only later | 604800000 | [1,...]
  How long an unused transactional id is remembered.
unclean.leader.election.enable | boolean cluster-wide | false
  Whether a replica that is out of sync may become leader, losing records.
"""  # noqa: E501
