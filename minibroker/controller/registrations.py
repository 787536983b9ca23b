"""Who is there: brokers register, tell by heartbeats that they live, stop in order, or fall silent and are fenced.

    registered: fenced --caught up--> unfenced --wants to stop--> in controlled shutdown --leads nothing--> may stop
                   ^---------------- silent for broker.session.timeout.ms ---------------'

A broker epoch is the offset of the metadata log at which a registration was written: it tells one life of a broker
from the next, and whoever carries an old one is refused. An incarnation id is drawn by the broker at each start: it
tells a repeated request from a second process with the same broker id.

A stop in order takes two answers: first the leaders move and the broker leaves every ISR, then, when it leads nothing
and every other broker has read that in the metadata, it may stop. So no client finds a leader that has just gone.

Sessions and how far brokers have read are not in the metadata log: a controller that begins waits one session for all.
Pure: `steady_ms` comes in, records go out, and whoever calls appends them before the next call. The time is the steady
clock's: a machine whose clock is set ends no session, and begins none.
"""

from __future__ import annotations

from minibroker.controller import brokers
from minibroker.controller.controller import Controller
from minibroker.errors import Error, KafkaError
from minibroker.metadata.features import CORDONED, DIRECTORIES, METADATA_VERSION
from minibroker.metadata.image import LOST_DIRECTORY, UNASSIGNED_DIRECTORY, UNSPECIFIED_DIRECTORY
from minibroker.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from minibroker.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from minibroker.stored.kinds import MetadataRecord

SESSION_TIMEOUT_MS = 9000  # broker.session.timeout.ms
RESERVED_DIRECTORIES = (UNSPECIFIED_DIRECTORY, UNASSIGNED_DIRECTORY, LOST_DIRECTORY)
NEVER = 1 << 62
REGISTRATION_CHANGE = 17  # kind of metadata record
NO_EPOCH = -2  # of a broker that has not been here before; no previous epoch is equal to it


class Session:
    """What the controller knows of a broker and does not write down."""

    __slots__ = ("contact_ms", "metadata_offset", "registered_at", "shutdown_offset")

    def __init__(self, registered_at: int):
        self.registered_at = registered_at  # offset of its registration: who has read it has caught up
        self.contact_ms: int | None = None  # of the last heartbeat; None: none yet, or it has expired
        self.metadata_offset = -1  # up to where it has applied the metadata
        self.shutdown_offset = -1  # who has read this knows that it leads nothing; -1: it does not stop


class Registrations:
    """The brokers of a cluster as their controller sees them come and go."""

    def __init__(
        self,
        controller: Controller,
        *,
        cluster_id: str,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        steady_ms: int = 0,
    ):
        self.controller = controller
        self.cluster_id = cluster_id
        self.session_timeout_ms = session_timeout_ms
        self.sessions: dict[int, Session] = {}
        for broker_id, broker in controller.image.brokers.items():
            session = self.sessions[broker_id] = Session(broker.broker_epoch)
            if not broker.fenced:
                session.contact_ms = steady_ms

    # Registration

    def register(
        self, request: BrokerRegistrationRequest, *, next_offset: int, steady_ms: int
    ) -> tuple[list[MetadataRecord], BrokerRegistrationResponse]:
        """Return the records of a broker that comes, and the answer with its broker epoch.

        next_offset: of the metadata log, where the first record goes.
        """
        try:
            self._check(request, steady_ms)
        except KafkaError as error:
            return [], BrokerRegistrationResponse(throttle_time_ms=0, error_code=error.code)
        image = self.controller.image
        present = image.brokers.get(request.broker_id)
        is_same = present is not None and present.incarnation_id == request.incarnation_id
        records: list[MetadataRecord] = []
        if not is_same:
            last_epoch = present.broker_epoch if present is not None else NO_EPOCH
            was_clean = request.previous_broker_epoch == last_epoch
            records = brokers.left_behind(self.controller, request.broker_id, was_clean=was_clean)
        # A broker that says the same again, perhaps with another address, stays as it is.
        epoch = present.broker_epoch if present is not None and is_same else next_offset
        records.append(
            brokers.registration(
                self.controller,
                request.broker_id,
                broker_epoch=epoch,
                incarnation_id=bytes(request.incarnation_id),
                endpoints=[(each.name, each.host, each.port, each.security_protocol) for each in request.listeners],
                features={
                    each.name: (each.min_supported_version, each.max_supported_version) for each in request.features
                },
                rack=request.rack,
                log_dirs=[bytes(directory) for directory in request.log_dirs],
                is_fenced=present.fenced if present is not None and is_same else True,
                in_controlled_shutdown=is_same and present is not None and present.in_controlled_shutdown,
            )
        )
        session = Session(next_offset + len(records) - 1)
        if is_same and request.broker_id in self.sessions:
            session.contact_ms = self.sessions[request.broker_id].contact_ms
        self.sessions[request.broker_id] = session
        return records, BrokerRegistrationResponse(throttle_time_ms=0, error_code=Error.NONE, broker_epoch=epoch)

    def _check(self, request: BrokerRegistrationRequest, steady_ms: int) -> None:
        image = self.controller.image
        if request.cluster_id != self.cluster_id:
            raise KafkaError(
                Error.INCONSISTENT_CLUSTER_ID,
                f"Expected cluster ID {self.cluster_id}, but got cluster ID {request.cluster_id}",
            )
        present = image.brokers.get(request.broker_id)
        is_another = present is not None and present.incarnation_id != request.incarnation_id
        if is_another and self.has_session(request.broker_id, steady_ms):
            raise KafkaError(Error.DUPLICATE_BROKER_REGISTRATION, "Another broker is registered with that broker id.")
        if request.is_migrating_zk_broker:
            raise KafkaError(Error.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers.")
        if image.metadata_version >= DIRECTORIES:
            self._check_directories(request)
        self._check_features(request)

    def _check_directories(self, request: BrokerRegistrationRequest) -> None:
        directories = [bytes(directory) for directory in request.log_dirs]
        reason = ""
        if not directories:
            reason = "No directories specified in request"
        elif any(directory in RESERVED_DIRECTORIES for directory in directories):
            reason = "Reserved directory ID in request"
        elif len(set(directories)) != len(directories):
            reason = "Duplicate directory ID in request"
        else:
            for broker_id, broker in self.controller.image.brokers.items():
                taken = [directory for directory in directories if directory in broker.log_dirs]
                if taken and broker_id != request.broker_id:
                    reason = f"Broker {broker_id} is already registered with directory {taken[0].hex()}"
        if reason:
            raise KafkaError(Error.INVALID_REGISTRATION, reason)

    def _check_features(self, request: BrokerRegistrationRequest) -> None:
        ranges = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features}
        if METADATA_VERSION not in ranges:
            raise KafkaError(Error.INVALID_REGISTRATION, "Request features do not contain 'metadata.version'")
        levels = dict.fromkeys(ranges, 0) | self.controller.image.features
        for name, level in levels.items():
            lowest, highest = ranges.get(name, (0, 0))
            if not lowest <= level <= highest:
                raise KafkaError(
                    Error.UNSUPPORTED_VERSION,
                    f"Unable to register because the broker does not support finalized version {level} of {name}. "
                    f"The broker wants a version between {lowest} and {highest}, inclusive.",
                )

    def unregister(self, broker_id: int) -> list[MetadataRecord]:
        """Return the records that take a broker out of the cluster."""
        if broker_id not in self.controller.image.brokers:
            raise KafkaError(Error.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
        self.sessions.pop(broker_id, None)
        return brokers.unregistered(self.controller, broker_id)

    # Heartbeats

    def heartbeat(
        self, request: BrokerHeartbeatRequest, *, next_offset: int, steady_ms: int
    ) -> tuple[list[MetadataRecord], BrokerHeartbeatResponse]:
        """Return what follows from a broker's word that it lives, and what the broker is told."""
        try:
            self.controller.check_broker_epoch(request.broker_id, request.broker_epoch)
        except KafkaError as error:
            return [], BrokerHeartbeatResponse(throttle_time_ms=0, error_code=error.code, should_shut_down=False)
        broker_id, controller = request.broker_id, self.controller
        image, session = controller.image, self.sessions[broker_id]
        session.contact_ms = steady_ms
        was_fenced = image.brokers[broker_id].fenced
        was_stopping = session.shutdown_offset >= 0
        is_fenced, is_stopping, may_stop = self._next_state(request, was_fenced, was_stopping)
        records: list[MetadataRecord] = []
        if may_stop or (is_fenced and not was_fenced):
            records = brokers.fenced(controller, broker_id)
        elif was_fenced and not is_fenced:
            records = brokers.unfenced(controller, broker_id)
        elif is_stopping and not was_stopping:
            records = brokers.shutting_down(controller, broker_id)
        if image.metadata_version >= DIRECTORIES:
            records += brokers.directories_failed(controller, broker_id, list(map(bytes, request.offline_log_dirs)))
        if image.metadata_version >= CORDONED and request.cordoned_log_dirs is not None:
            records += brokers.directories_cordoned(controller, broker_id, list(map(bytes, request.cordoned_log_dirs)))
        # What has just changed for a broker it has not read yet.
        has_changed = any(record.type_number == REGISTRATION_CHANGE for record in records)
        session.metadata_offset = -1 if has_changed else request.current_metadata_offset
        if is_fenced:
            session.shutdown_offset = -1
        elif is_stopping and not was_stopping:
            session.shutdown_offset = next_offset + len(records) - 1
        if may_stop:
            # Kafka: keeps the session until it times out, so a broker that starts again at once is refused for a while.
            session.contact_ms = None
        return records, BrokerHeartbeatResponse(
            throttle_time_ms=0,
            error_code=Error.NONE,
            is_caught_up=request.current_metadata_offset >= session.registered_at,
            is_fenced=is_fenced,
            should_shut_down=may_stop,
        )

    def _next_state(
        self, request: BrokerHeartbeatRequest, was_fenced: bool, was_stopping: bool
    ) -> tuple[bool, bool, bool]:
        """Return whether the broker is fenced now, is stopping, and may stop."""
        session = self.sessions[request.broker_id]
        if was_stopping:
            may_stop = not self._leads(request.broker_id) and session.shutdown_offset <= self._lowest_offset()
            return may_stop, True, may_stop
        if was_fenced:
            has_caught_up = request.current_metadata_offset >= session.registered_at
            return request.want_shut_down or request.want_fence or not has_caught_up, False, request.want_shut_down
        if request.want_fence:
            return True, False, request.want_shut_down
        if request.want_shut_down:
            leads = self._leads(request.broker_id)
            return not leads, leads, not leads
        return False, False, False

    def _leads(self, broker_id: int) -> bool:
        return any(
            partition.leader == broker_id
            for topic in self.controller.image.topics.values()
            for partition in topic.partitions
        )

    def _lowest_offset(self) -> int:
        """Return up to where every broker that serves clients has read the metadata."""
        return min(
            (
                session.metadata_offset
                for broker_id, session in self.sessions.items()
                if not self.controller.image.brokers[broker_id].fenced and session.shutdown_offset < 0
            ),
            default=NEVER,
        )

    # Silence

    def has_session(self, broker_id: int, steady_ms: int) -> bool:
        session = self.sessions.get(broker_id)
        return session is not None and session.contact_ms is not None and steady_ms <= self._ends_ms(session.contact_ms)

    @property
    def next_expiry_ms(self) -> int | None:
        """When the next broker is to be fenced if it stays silent, None if there is nobody."""
        ends = [self._ends_ms(each.contact_ms) for each in self.sessions.values() if each.contact_ms is not None]
        return min(ends) + 1 if ends else None

    def expire(self, steady_ms: int) -> list[MetadataRecord]:
        """Return the records that fence one broker that has been silent for too long, none if there is nobody.

        One at a time: who leads after the next one depends on this one being gone.
        """
        silent = self.silent(steady_ms)
        return self.end_session(silent[0]) if silent else []

    def silent(self, steady_ms: int) -> list[int]:
        """Return the brokers whose sessions have expired and have not been ended."""
        return [
            broker_id
            for broker_id, session in self.sessions.items()
            if session.contact_ms is not None and steady_ms > self._ends_ms(session.contact_ms)
        ]

    def end_session(self, broker_id: int) -> list[MetadataRecord]:
        """Return the records that fence a broker now, as if it had been silent for long."""
        session = self.sessions[broker_id]
        session.contact_ms = None
        session.shutdown_offset = -1
        return brokers.fenced(self.controller, broker_id)

    def _ends_ms(self, contact_ms: int) -> int:
        return contact_ms + self.session_timeout_ms
