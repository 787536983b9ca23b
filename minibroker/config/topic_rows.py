"""Settings of topics, as text in the notation of setting.py, in order of their names.

A topic that does not set one takes what the broker has under the names in the last column: the first that is set.
"""

TOPIC = """\
cleanup.policy | list | delete | [compact, delete] | log.cleanup.policy
  What happens to old data: delete, compact or both.
compression.gzip.level | int | -1 | [1,...,9] or -1 | compression.gzip.level
  Level, if compression.type is gzip.
compression.lz4.level | int | 9 | [1,...,17] | compression.lz4.level
  Level, if compression.type is lz4.
compression.type | string | producer | [uncompressed, zstd, lz4, snappy, gzip, producer] | compression.type
  Codec of stored batches; producer keeps what came.
compression.zstd.level | int | 3 | [-131072,...,22] | compression.zstd.level
  Level, if compression.type is zstd.
delete.retention.ms | long | 86400000 | [0,...] | log.cleaner.delete.retention.ms
  How long compaction keeps the marks of deleted keys.
errors.deadletterqueue.group.enable | boolean ignored | false
file.delete.delay.ms | long | 60000 | [0,...] | log.segment.delete.delay.ms
  How long a deleted segment's files stay.
flush.messages | long | 9223372036854775807 | [1,...] | log.flush.interval.messages
  Records after which the log is flushed to disk.
flush.ms | long | 9223372036854775807 | [0,...] | log.flush.interval.ms,log.flush.scheduler.interval.ms
  Time after which the log is flushed to disk.
follower.replication.throttled.replicas | list ignored |  | [partitionId]:[brokerId],[partitionId]:[brokerId],...
index.interval.bytes | int | 4096 | [0,...] | log.index.interval.bytes
  Bytes of log between two entries of its offset index.
internal.segment.bytes | int internal | null
  Segment size below the least that segment.bytes allows; for tests.
leader.replication.throttled.replicas | list ignored |  | [partitionId]:[brokerId],[partitionId]:[brokerId],...
local.retention.bytes | long ignored | -2 | [-2,...] | log.local.retention.bytes
local.retention.ms | long ignored | -2 | [-2,...] | log.local.retention.ms
max.compaction.lag.ms | long | 9223372036854775807 | [1,...] | log.cleaner.max.compaction.lag.ms
  Latest time at which a record is compacted.
max.decompressed.message.bytes | int | 2147483639 | [1,...,2147483639] | max.decompressed.message.bytes
  Most bytes of one record, its batch having been unpacked.
max.message.bytes | int | 1048588 | [0,...] | message.max.bytes
  Largest batch that is accepted, with its compression.
message.downconversion.enable | boolean 3.9 | true |  | log.message.downconversion.enable
  Whether old clients get records in their format; with --as-version below 4.0.
message.format.version | string 3.9 | 3.0-IV1 | [0.8.0, 0.8.1, 0.8.2, 0.9.0, 0.10.0-IV0, 0.10.0-IV1, 0.10.1-IV0, 0.10.1-IV1, 0.10.1-IV2, 0.10.2-IV0, 0.11.0-IV0, 0.11.0-IV1, 0.11.0-IV2, 1.0-IV0, 1.1-IV0, 2.0-IV0, 2.0-IV1, 2.1-IV0, 2.1-IV1, 2.1-IV2, 2.2-IV0, 2.2-IV1, 2.3-IV0, 2.3-IV1, 2.4-IV0, 2.4-IV1, 2.5-IV0, 2.6-IV0, 2.7-IV0, 2.7-IV1, 2.7-IV2, 2.8-IV0, 2.8-IV1, 3.0-IV0, 3.0-IV1, 3.1-IV0, 3.2-IV0, 3.3-IV0, 3.3-IV1, 3.3-IV2, 3.3-IV3, 3.4-IV0, 3.5-IV0, 3.5-IV1, 3.5-IV2, 3.6-IV0, 3.6-IV1, 3.6-IV2, 3.7-IV0, 3.7-IV1, 3.7-IV2, 3.7-IV3, 3.7-IV4, 3.8-IV0, 3.9-IV0, 4.0-IV0, 4.0-IV1] | log.message.format.version
  Format of stored records; with --as-version below 3.0.
message.timestamp.after.max.ms | long | 3600000 | [0,...] | log.message.timestamp.after.max.ms
  How far in the future a record's timestamp may be.
message.timestamp.before.max.ms | long | 9223372036854775807 | [0,...] | log.message.timestamp.before.max.ms
  How far in the past a record's timestamp may be.
message.timestamp.difference.max.ms | long 3.9 | 9223372036854775807 | [0,...] | log.message.timestamp.difference.max.ms
  How far a record's timestamp may be from now; with --as-version below 4.0.
message.timestamp.type | string | CreateTime | [CreateTime, LogAppendTime] | log.message.timestamp.type
  Whether records carry the producer's time or that of the append.
min.cleanable.dirty.ratio | double | 0.5 | [0,...,1] | log.cleaner.min.cleanable.ratio
  Share of uncompacted bytes at which the log is compacted.
min.compaction.lag.ms | long | 0 | [0,...] | log.cleaner.min.compaction.lag.ms
  Time for which a record is safe from compaction.
min.insync.replicas | int | 1 | [1,...] | min.insync.replicas
  In-sync replicas that a write with acks=all needs.
preallocate | boolean ignored | false |  | log.preallocate
remote.copy.lag.bytes | long ignored | -1 | [-1,...] | log.remote.copy.lag.bytes
remote.copy.lag.ms | long ignored | 0 | [-1,...] | log.remote.copy.lag.ms
remote.log.copy.disable | boolean ignored | false
remote.log.delete.on.disable | boolean ignored | false
remote.storage.enable | boolean ignored | false
retention.bytes | long | -1 |  | log.retention.bytes
  Bytes of a partition above which its oldest segments go; -1 is no limit.
retention.ms | long | 604800000 | [-1,...] | log.retention.ms,log.retention.minutes,log.retention.hours
  Time after which segments go; -1 is never.
segment.bytes | int | 1073741824 | [1048576,...] | log.segment.bytes
  Largest size of a segment file.
segment.index.bytes | int | 10485760 | [4,...] | log.index.size.max.bytes
  Largest size of an index file; a full one begins a new segment.
segment.jitter.ms | long | 0 | [0,...] | log.roll.jitter.ms,log.roll.jitter.hours
  Time by which segment.ms may be shortened, by chance.
segment.ms | long | 604800000 | [1,...] | log.roll.ms,log.roll.hours
  Time after which a new segment begins.
unclean.leader.election.enable | boolean | false |  | unclean.leader.election.enable
  Whether a replica that is out of sync may become leader, losing records.
"""  # noqa: E501
