"""Settings of a broker that do nothing here, as text in the notation of setting.py; ignored.py says why.

Those that a client could tell by what happens are refused.
Apart from the others because few starts need to read them: only one that was given such a setting, or a wrong name.
"""

OTHER = """\
add.partitions.to.txn.retry.backoff.max.ms | int read-only | 100 | [0,...]
add.partitions.to.txn.retry.backoff.ms | int read-only | 20 | [1,...]
advertised.host.name | string read-only 2.8 refused | null
  What clients are told, in Kafka 2; advertised.listeners says it.
advertised.port | int read-only 2.8 refused | null
  What clients are told, in Kafka 2; advertised.listeners says it.
alter.config.policy.kraft.compatibility.enable | boolean read-only 3.9 | false
alter.log.dirs.replication.quota.window.num | int read-only | 11 | [1,...]
alter.log.dirs.replication.quota.window.size.seconds | int read-only | 1 | [1,...]
auto.include.jmx.reporter | boolean read-only 3.9 | true
background.threads | int cluster-wide | 10 | [1,...]
broker.id.generation.enable | boolean read-only 3.9 | true
config.providers | list cluster-wide refused |
  Java classes that put other values in place of ${...}; here the texts would stay as they are.
control.plane.listener.name | string read-only 3.9 | null
controlled.shutdown.max.retries | int read-only 3.9 | 3
controlled.shutdown.retry.backoff.ms | long read-only 3.9 | 5000
controller.performance.always.log.threshold.ms | long read-only internal | 2000 | [0,...]
controller.performance.sample.period.ms | long read-only internal | 60000 | [100,...]
controller.quorum.append.linger.ms | int read-only | 25 | [0,...]
controller.quorum.auto.join.enable | boolean read-only | false
controller.quorum.election.backoff.max.ms | int read-only | 1000 | [0,...]
controller.quorum.election.timeout.ms | int read-only | 1000 | [0,...]
controller.quorum.fetch.max.bytes | int read-only | 1048576 | [1,...]
controller.quorum.fetch.snapshot.max.bytes | int read-only | 1048576 | [1,...]
controller.quorum.fetch.timeout.ms | int read-only | 2000 | [0,...]
controller.quorum.request.timeout.ms | int read-only | 2000 | [0,...]
controller.quorum.retry.backoff.ms | int read-only | 20 | [0,...]
controller.quota.window.num | int read-only | 11 | [1,...]
controller.quota.window.size.seconds | int read-only | 1 | [1,...]
controller.socket.timeout.ms | int read-only | 30000
cordoned.log.dirs | list per-broker refused |
  Data directories that take no new partitions; there is one.
delegation.token.expiry.check.interval.ms | long read-only | 3600000 | [1,...]
delegation.token.expiry.time.ms | long read-only | 86400000 | [1,...]
delegation.token.master.key | password read-only 3.9 | null
delegation.token.max.lifetime.ms | long read-only | 604800000 | [1,...]
delegation.token.secret.key | password read-only | null
delete.records.purgatory.purge.interval.requests | int read-only | 1
early.start.listeners | list read-only | null
eligible.leader.replicas.enable | boolean read-only 3.9 | false
errors.deadletterqueue.auto.create.topics.enable | boolean cluster-wide | false
errors.deadletterqueue.topic.name.prefix | string cluster-wide | dlq.
fetch.purgatory.purge.interval.requests | int read-only | 1000
follower.fetch.last.tiered.offset.enable | boolean cluster-wide | false
follower.replication.throttled.rate | long cluster-wide internal | null | [0,...]
group.consumer.assignor.offload.enable | boolean cluster-wide internal | true
group.coordinator.append.linger.ms | int read-only | -1 | [-1,...]
group.coordinator.background.threads | int read-only | 2 | [1,...]
group.coordinator.cached.buffer.max.bytes | int cluster-wide | 1048588 | [524288,...]
group.coordinator.new.enable | boolean read-only internal 3.9 | false
group.coordinator.threads | int read-only | 4 | [1,...]
group.share.assignment.interval.ms | int cluster-wide | 1000 | [0,...]
group.share.assignor.offload.enable | boolean cluster-wide internal | true
group.share.assignors | list read-only | simple
group.share.dlq.manager.class.name | string read-only internal | org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager
group.share.enable | boolean read-only internal 3.9 | false
group.share.initialize.retry.interval.ms | int read-only internal | 30000 | [1,...]
group.share.max.assignment.interval.ms | int read-only | 15000 | [0,...]
group.share.max.delivery.count.limit | int read-only | 10 | [5,...,25]
group.share.max.groups | short read-only 3.9 | 10 | [1,...,100]
group.share.max.heartbeat.interval.ms | int read-only | 15000 | [1,...]
group.share.max.partition.max.record.locks | int read-only | 4000 | [2000,...,10000]
group.share.max.record.lock.duration.ms | int read-only | 60000 | [30000,...,3600000]
group.share.max.session.timeout.ms | int read-only | 60000 | [1,...]
group.share.max.share.sessions | int read-only | 2000 | [1,...]
group.share.min.assignment.interval.ms | int read-only | 0 | [0,...]
group.share.min.delivery.count.limit | int read-only | 2 | [2,...,5]
group.share.min.heartbeat.interval.ms | int read-only | 5000 | [1,...]
group.share.min.partition.max.record.locks | int read-only | 100 | [100,...,2000]
group.share.min.record.lock.duration.ms | int read-only | 15000 | [1000,...,30000]
group.share.min.session.timeout.ms | int read-only | 45000 | [1,...]
group.share.persister.class.name | string read-only internal | org.apache.kafka.server.share.persister.DefaultStatePersister
group.streams.acceptable.recovery.lag | long read-only internal | 10000 | [0,...]
group.streams.assignment.interval.ms | int cluster-wide | 1000 | [0,...]
group.streams.assignor.offload.enable | boolean cluster-wide internal | true
group.streams.assignors | list read-only | sticky
group.streams.max.assignment.interval.ms | int read-only | 15000 | [0,...]
group.streams.max.heartbeat.interval.ms | int read-only | 15000 | [1,...]
group.streams.max.session.timeout.ms | int read-only | 60000 | [1,...]
group.streams.max.standby.replicas | int read-only | 2 | [0,...]
group.streams.max.warmup.replicas | int read-only internal | 20 | [0,...]
group.streams.min.assignment.interval.ms | int read-only | 0 | [0,...]
group.streams.min.heartbeat.interval.ms | int read-only | 5000 | [1,...]
group.streams.min.session.timeout.ms | int read-only | 45000 | [1,...]
group.streams.min.task.offset.interval.ms | int read-only internal | 15000 | [1,...]
group.streams.num.warmup.replicas | int read-only internal | 2 | [0,...]
group.streams.rack.aware.assignment.tags | list read-only |
group.streams.task.offset.interval.ms | int read-only internal | 60000 | [1,...]
group.streams.topology.description.plugin.class | class read-only | null
host.name | string read-only 2.8 refused |
  Where to listen, in Kafka 2; listeners says it.
initial.broker.registration.timeout.ms | int read-only | 60000
inter.broker.protocol.version | string read-only 3.9 | 3.9-IV0 | [0.8.0, 0.8.1, 0.8.2, 0.9.0, 0.10.0-IV0, 0.10.0-IV1, 0.10.1-IV0, 0.10.1-IV1, 0.10.1-IV2, 0.10.2-IV0, 0.11.0-IV0, 0.11.0-IV1, 0.11.0-IV2, 1.0-IV0, 1.1-IV0, 2.0-IV0, 2.0-IV1, 2.1-IV0, 2.1-IV1, 2.1-IV2, 2.2-IV0, 2.2-IV1, 2.3-IV0, 2.3-IV1, 2.4-IV0, 2.4-IV1, 2.5-IV0, 2.6-IV0, 2.7-IV0, 2.7-IV1, 2.7-IV2, 2.8-IV0, 2.8-IV1, 3.0-IV0, 3.0-IV1, 3.1-IV0, 3.2-IV0, 3.3-IV0, 3.3-IV1, 3.3-IV2, 3.3-IV3, 3.4-IV0, 3.5-IV0, 3.5-IV1, 3.5-IV2, 3.6-IV0, 3.6-IV1, 3.6-IV2, 3.7-IV0, 3.7-IV1, 3.7-IV2, 3.7-IV3, 3.7-IV4, 3.8-IV0, 3.9-IV0, 4.0-IV0, 4.0-IV1]
internal.metadata.delete.delay.millis | long read-only internal | 60000
internal.metadata.log.segment.bytes | int read-only internal | null
internal.metadata.max.batch.size.in.bytes | int read-only internal | 8388608
kafka.metrics.polling.interval.secs | int read-only | 10 | [1,...]
kafka.metrics.reporters | list read-only |
leader.imbalance.per.broker.percentage | int read-only 3.9 | 10
leader.replication.throttled.rate | long cluster-wide internal | null | [0,...]
log.cleaner.io.buffer.size | int cluster-wide | 524288 | [0,...]
log.dir.failure.timeout.ms | long read-only | 30000 | [1,...]
log.local.retention.bytes | long cluster-wide | -2 | [-2,...]
log.local.retention.ms | long cluster-wide | -2 | [-2,...]
log.preallocate | boolean cluster-wide | false
log.remote.copy.lag.bytes | long cluster-wide | -1 | [-1,...]
log.remote.copy.lag.ms | long cluster-wide | 0 | [-1,...]
max.connection.creation.rate | int cluster-wide refused | 2147483647 | [0,...]
  Most connections that are accepted in a second; nobody is throttled here.
metadata.log.max.record.bytes.between.snapshots | long read-only | 20971520 | [1,...]
metadata.log.max.snapshot.interval.ms | long read-only | 3600000 | [0,...]
metadata.log.segment.min.bytes | int read-only internal 3.9 | 8388608 | [12,...]
metadata.log.segment.ms | long read-only | 604800000
metadata.max.idle.interval.ms | int read-only | 500 | [0,...]
metadata.max.retention.bytes | long read-only | 104857600
metadata.max.retention.ms | long read-only | 604800000
metric.reporters | list cluster-wide | org.apache.kafka.common.metrics.JmxReporter
metrics.num.samples | int read-only | 2 | [1,...]
metrics.recording.level | string read-only | INFO
metrics.sample.window.ms | long read-only | 30000 | [1,...]
num.io.threads | int cluster-wide | 8 | [1,...]
num.network.threads | int cluster-wide | 3 | [1,...]
num.replica.alter.log.dirs.threads | int read-only | null
num.replica.fetchers | int cluster-wide | 1 | [1,...]
offsets.commit.required.acks | short read-only 3.9 | -1
offsets.load.buffer.size | int read-only | 5242880 | [1,...]
password.encoder.cipher.algorithm | string read-only 3.9 | AES/CBC/PKCS5Padding
password.encoder.iterations | int read-only 3.9 | 4096 | [1024,...]
password.encoder.key.length | int read-only 3.9 | 128 | [8,...]
password.encoder.keyfactory.algorithm | string read-only 3.9 | null
password.encoder.old.secret | password read-only 3.9 | null
password.encoder.secret | password read-only 3.9 | null
port | int read-only 2.8 refused | 9092
  Where to listen, in Kafka 2; listeners says it.
producer.id.expiration.check.interval.ms | int read-only internal | 600000 | [1,...]
producer.purgatory.purge.interval.requests | int read-only | 1000
queued.max.request.bytes | long read-only | -1
queued.max.requests | int read-only | 500 | [1,...]
quota.consumer.default | long read-only 2.8 refused | 9223372036854775807 | [1,...]
  Bytes in a second for each consumer; nobody is throttled here.
quota.producer.default | long read-only 2.8 refused | 9223372036854775807 | [1,...]
  Bytes in a second for each producer; nobody is throttled here.
quota.window.num | int read-only | 11 | [1,...]
quota.window.size.seconds | int read-only | 1 | [1,...]
remote.fetch.max.wait.ms | int cluster-wide | 500 | [1,...]
remote.list.offsets.request.timeout.ms | long cluster-wide | 30000 | [1,...]
remote.log.index.file.cache.total.size.bytes | long cluster-wide | 1073741824 | [1,...]
remote.log.index.file.cache.ttl.ms | long read-only internal | 900000 | [-1,...]
remote.log.manager.copier.thread.pool.size | int cluster-wide | 10 | [1,...]
remote.log.manager.copy.max.bytes.per.second | long cluster-wide | 9223372036854775807 | [1,...]
remote.log.manager.copy.quota.window.num | int read-only | 11 | [1,...]
remote.log.manager.copy.quota.window.size.seconds | int read-only | 1 | [1,...]
remote.log.manager.expiration.thread.pool.size | int cluster-wide | 10 | [1,...]
remote.log.manager.fetch.max.bytes.per.second | long cluster-wide | 9223372036854775807 | [1,...]
remote.log.manager.fetch.quota.window.num | int read-only | 11 | [1,...]
remote.log.manager.fetch.quota.window.size.seconds | int read-only | 1 | [1,...]
remote.log.manager.follower.thread.pool.size | int cluster-wide | 2 | [1,...]
remote.log.manager.task.interval.ms | long read-only | 30000 | [1,...]
remote.log.manager.task.retry.backoff.max.ms | long read-only internal | 30000 | [1,...]
remote.log.manager.task.retry.backoff.ms | long read-only internal | 500 | [1,...]
remote.log.manager.task.retry.jitter | double read-only internal | 0.2 | [0,...,0.5]
remote.log.manager.thread.pool.size | int read-only | 2 | [1,...]
remote.log.metadata.custom.metadata.max.bytes | int read-only | 128 | [0,...]
remote.log.metadata.manager.class.name | string read-only | org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager | non-empty string
remote.log.metadata.manager.class.path | string read-only | null
remote.log.metadata.manager.impl.prefix | string read-only | rlmm.config. | non-empty string
remote.log.metadata.manager.listener.name | string read-only | null | non-empty string
remote.log.reader.max.pending.tasks | int read-only | 100 | [1,...]
remote.log.reader.threads | int cluster-wide | 10 | [1,...]
remote.log.storage.manager.class.name | string read-only | null | non-empty string
remote.log.storage.manager.class.path | string read-only | null
remote.log.storage.manager.impl.prefix | string read-only | rsm.config. | non-empty string
replica.alter.log.dirs.io.max.bytes.per.second | long cluster-wide internal | null | [0,...]
replica.socket.receive.buffer.bytes | int read-only | 65536
replication.quota.window.num | int read-only | 11 | [1,...]
replication.quota.window.size.seconds | int read-only | 1 | [1,...]
request.timeout.ms | int read-only | 30000
reserved.broker.max.id | int read-only 3.9 | 1000 | [0,...]
sasl.client.callback.handler.class | class read-only | null
sasl.kerberos.kinit.cmd | string per-broker | /usr/bin/kinit
sasl.kerberos.min.time.before.relogin | long per-broker | 60000
sasl.kerberos.principal.to.local.rules | list per-broker | DEFAULT
sasl.kerberos.service.name | string per-broker | null
sasl.kerberos.ticket.renew.jitter | double per-broker | 0.05
sasl.kerberos.ticket.renew.window.factor | double per-broker | 0.8
sasl.login.callback.handler.class | class read-only | null
sasl.login.class | class read-only | null
sasl.login.connect.timeout.ms | int read-only | null
sasl.login.read.timeout.ms | int read-only | null
sasl.login.refresh.buffer.seconds | short per-broker | 300
sasl.login.refresh.min.period.seconds | short per-broker | 60
sasl.login.refresh.window.factor | double per-broker | 0.8
sasl.login.refresh.window.jitter | double per-broker | 0.05
sasl.login.retry.backoff.max.ms | long read-only | 10000
sasl.login.retry.backoff.ms | long read-only | 100
sasl.mechanism.controller.protocol | string read-only | GSSAPI
sasl.mechanism.inter.broker.protocol | string per-broker | GSSAPI
sasl.oauthbearer.allow.unverified.audience | boolean read-only | false
sasl.oauthbearer.allow.unverified.issuer | boolean read-only | false
sasl.oauthbearer.assertion.algorithm | string read-only | RS256 | (case insensitive) [ES256, RS256]
sasl.oauthbearer.assertion.claim.aud | string read-only | null
sasl.oauthbearer.assertion.claim.exp.seconds | int read-only | 300 | [0,...,86400]
sasl.oauthbearer.assertion.claim.iss | string read-only | null
sasl.oauthbearer.assertion.claim.jti.include | boolean read-only | false
sasl.oauthbearer.assertion.claim.nbf.seconds | int read-only | 60 | [0,...,3600]
sasl.oauthbearer.assertion.claim.sub | string read-only | null
sasl.oauthbearer.assertion.file | string read-only | null
sasl.oauthbearer.assertion.private.key.file | string read-only | null
sasl.oauthbearer.assertion.private.key.passphrase | password read-only | null
sasl.oauthbearer.assertion.template.file | string read-only | null
sasl.oauthbearer.client.credentials.client.id | string read-only | null
sasl.oauthbearer.client.credentials.client.secret | password read-only | null
sasl.oauthbearer.clock.skew.seconds | int read-only | 30
sasl.oauthbearer.expected.audience | list read-only |
sasl.oauthbearer.expected.issuer | string read-only | null
sasl.oauthbearer.jwks.endpoint.refresh.ms | long read-only | 3600000
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms | long read-only | 10000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms | long read-only | 100
sasl.oauthbearer.jwks.endpoint.url | string read-only | null
sasl.oauthbearer.jwt.retriever.class | class read-only | org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
sasl.oauthbearer.jwt.validator.class | class read-only | org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
sasl.oauthbearer.scope | string read-only | null
sasl.oauthbearer.scope.claim.name | string read-only | scope
sasl.oauthbearer.sub.claim.name | string read-only | sub
sasl.oauthbearer.token.endpoint.url | string read-only | null
sasl.server.callback.handler.class | class read-only | null
sasl.server.max.receive.size | int read-only | 524288
security.providers | string read-only | null
server.max.startup.time.ms | long read-only internal | 9223372036854775807 | [0,...]
share.coordinator.append.linger.ms | int read-only | -1 | [-1,...]
share.coordinator.cached.buffer.max.bytes | int cluster-wide | 1048588 | [524288,...]
share.coordinator.cold.partition.snapshot.interval.ms | int read-only internal | 300000 | [1,...]
share.coordinator.load.buffer.size | int read-only | 5242880 | [1,...]
share.coordinator.snapshot.update.records.per.snapshot | int read-only | 500 | [0,...,500]
share.coordinator.state.topic.compression.codec | int read-only | 0
share.coordinator.state.topic.prune.interval.ms | int read-only internal | 300000 | [1,...]
share.coordinator.threads | int read-only | 1 | [1,...]
share.coordinator.write.timeout.ms | int read-only | 5000 | [1,...]
share.fetch.purgatory.purge.interval.requests | int read-only | 1000
socket.connection.setup.timeout.max.ms | long read-only | 30000
socket.connection.setup.timeout.ms | long read-only | 10000
ssl.allow.dn.changes | boolean read-only | false
ssl.allow.san.changes | boolean read-only | false
ssl.cipher.suites | list per-broker |
ssl.enabled.protocols | list per-broker | TLSv1.2,TLSv1.3
ssl.endpoint.identification.algorithm | string per-broker | https
ssl.engine.factory.class | class per-broker | null
ssl.key.password | password per-broker | null
ssl.keymanager.algorithm | string per-broker | SunX509
ssl.keystore.certificate.chain | password per-broker | null
ssl.keystore.key | password per-broker | null
ssl.keystore.location | string per-broker | null
ssl.keystore.password | password per-broker | null
ssl.keystore.type | string per-broker | JKS
ssl.principal.mapping.rules | string read-only | DEFAULT
ssl.protocol | string per-broker | TLSv1.3
ssl.provider | string per-broker | null
ssl.secure.random.implementation | string per-broker | null
ssl.trustmanager.algorithm | string per-broker | PKIX
ssl.truststore.certificates | password per-broker | null
ssl.truststore.location | string per-broker | null
ssl.truststore.password | password per-broker | null
ssl.truststore.type | string per-broker | JKS
telemetry.max.bytes | int read-only | 1048576 | [1,...]
transaction.state.log.load.buffer.size | int read-only | 5242880 | [1,...]
unclean.leader.election.interval.ms | long read-only internal | 300000 | [1,...]
unstable.api.versions.enable | boolean read-only internal refused | false
  Whether APIs are served that are not finished; none is.
unstable.feature.versions.enable | boolean read-only internal | false
zookeeper.clientCnxnSocket | string read-only 3.9 | null
zookeeper.connect | string read-only 3.9 | null
zookeeper.connection.timeout.ms | int read-only 3.9 | null
zookeeper.max.in.flight.requests | int read-only 3.9 | 10 | [1,...]
zookeeper.metadata.migration.enable | boolean read-only 3.9 | false
zookeeper.metadata.migration.min.batch.size | int read-only internal 3.9 | 200 | [1,...]
zookeeper.session.timeout.ms | int read-only 3.9 | 18000
zookeeper.set.acl | boolean read-only 3.9 | false
zookeeper.ssl.cipher.suites | list read-only 3.9 | null
zookeeper.ssl.client.enable | boolean read-only 3.9 | false
zookeeper.ssl.crl.enable | boolean read-only 3.9 | false
zookeeper.ssl.enabled.protocols | list read-only 3.9 | null
zookeeper.ssl.endpoint.identification.algorithm | string read-only 3.9 | HTTPS
zookeeper.ssl.keystore.location | string read-only 3.9 | null
zookeeper.ssl.keystore.password | password read-only 3.9 | null
zookeeper.ssl.keystore.type | string read-only 3.9 | null
zookeeper.ssl.ocsp.enable | boolean read-only 3.9 | false
zookeeper.ssl.protocol | string read-only 3.9 | TLSv1.2
zookeeper.ssl.truststore.location | string read-only 3.9 | null
zookeeper.ssl.truststore.password | password read-only 3.9 | null
zookeeper.ssl.truststore.type | string read-only 3.9 | null
zookeeper.sync.time.ms | int read-only 2.8 | 2000
"""  # noqa: E501
