"""Why a setting that is accepted has no effect: no client can tell the difference.

What a client could tell is not accepted: it has its effect, or it is refused. Each name fits one row, the first.
"""

from __future__ import annotations

# A reason, and below it, indented, names, or beginnings or ends of names with a star.
_TABLE = """\
Kafka 4 does not have it any more either
  zookeeper.* broker.id.generation.enable reserved.broker.max.id control.plane.listener.name
  inter.broker.protocol.version alter.config.policy.kraft.compatibility.enable group.coordinator.new.enable
  group.share.enable eligible.leader.replicas.enable leader.imbalance.per.broker.percentage
  offsets.commit.required.acks password.encoder.* delegation.token.master.key auto.include.jmx.reporter
  metadata.log.segment.min.bytes controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms
only a listener with TLS or a login asks for it, and such a listener is refused
  sasl.* ssl.* security.providers delegation.token.* connections.max.reauth.ms
  connection.failed.authentication.delay.ms
there are no transactions yet
  transaction.* transactional.* add.partitions.to.txn.*
there are no share groups yet
  group.share.* share.* errors.deadletterqueue.*
there are no streams groups yet
  group.streams.* streams.*
old segments stay here: remote.log.storage.system.enable is refused
  remote.* log.remote.* log.local.* local.* follower.fetch.last.tiered.offset.enable
one loop does all the work, without pools of threads
  background.threads num.* group.coordinator.threads group.coordinator.background.threads
  group.consumer.assignor.offload.enable consumer.assignor.offload.enable
metrics are those of GET /metrics
  metric.reporters metrics.* kafka.metrics.* telemetry.max.bytes
the controller is in the same process, and alone
  controller.* initial.broker.registration.timeout.ms metadata.* internal.metadata.* server.max.startup.time.ms
  request.timeout.ms early.start.listeners log.dir.failure.timeout.ms unclean.leader.election.interval.ms
  socket.connection.setup.* unstable.feature.versions.enable
nothing is throttled between brokers of one process, and there are no quotas
  leader.replication.throttled.* follower.replication.throttled.* replica.alter.log.dirs.io.*
  replication.quota.* alter.log.dirs.replication.quota.* controller.quota.* quota.window.*
it sizes what Kafka keeps in memory; ours is kept otherwise, and has limits of its own
  *.purgatory.purge.interval.requests *.load.buffer.size *.cached.buffer.max.bytes *.append.linger.ms
  log.cleaner.io.buffer.size replica.socket.receive.buffer.bytes queued.max.requests queued.max.request.bytes
  producer.id.expiration.check.interval.ms
it is about files that no client sees, and that are written otherwise here
  preallocate log.preallocate
"""


def _read(table: str) -> tuple[tuple[tuple[str, ...], str], ...]:
    found: dict[str, list[str]] = {}
    reason = ""
    for line in table.splitlines():
        if line.startswith("  "):
            found[reason] += line.split()
        else:
            reason = line
            found[reason] = []
    return tuple((tuple(patterns), reason) for reason, patterns in found.items())


REASONS = _read(_TABLE)


def reason_of(name: str) -> str:
    """Return why a setting has no effect; KeyError for one that needs no reason."""
    for patterns, reason in REASONS:
        if any(_fits(name, pattern) for pattern in patterns):
            return reason
    raise KeyError(f"nobody has said why {name} is ignored")


def _fits(name: str, pattern: str) -> bool:
    if pattern.startswith("*"):
        return name.endswith(pattern[1:])
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
