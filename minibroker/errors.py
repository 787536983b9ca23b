"""What can go wrong: Kafka's error codes in one table, and the exceptions of the house.

Three kinds, three fates. `KafkaError`: the client did or met something, and its answer carries the code.
`ProtocolError`: bytes that break a format; what reads them decides who hears of it (a connection closes, a produced
batch is refused). `EncodeError`: a value of ours that no bytes can express, which is a bug of whoever built it.

Invariant: a code has one `Error` object, so `is` and `==` agree; it is an int, so it goes into a message as it is.
No `enum`: importing it and making 138 members takes longer than this house gives to a dozen message modules.
Not here: which failure gets which code in which answer (handlers).
"""

from __future__ import annotations


def _retriable(code: int, meaning: str) -> Error:
    return (code, True, meaning)  # type: ignore[return-value]  # a line of the table until the class stands


def _final(code: int, meaning: str) -> Error:
    return (code, False, meaning)  # type: ignore[return-value]


class Error(int):
    """An error code of Kafka 4.4, its name, and what it means to a client.

    `Error(6)` is `Error.NOT_LEADER_OR_FOLLOWER`; a number without a meaning raises ValueError, so code that reads
    what others sent asks `find_error` or `error_name`. `Error.NONE` is false, every other code is true.
    """

    name: str
    retriable: bool  # the same request may succeed later, perhaps elsewhere: clients repeat it by themselves
    meaning: str

    UNKNOWN_SERVER_ERROR = _final(-1, "The broker met a failure it has no code for; its log says more.")
    NONE = _final(0, "Nothing went wrong.")
    OFFSET_OUT_OF_RANGE = _final(1, "The offset lies below the log's start or above its end; reset the position.")
    CORRUPT_MESSAGE = _retriable(2, "A batch arrived with a wrong checksum or a broken structure; send it again.")
    UNKNOWN_TOPIC_OR_PARTITION = _retriable(
        3, "This broker knows no such topic or partition; refresh metadata, it may be too new to be known here."
    )
    INVALID_FETCH_SIZE = _final(4, "The size asked for in a fetch makes no sense.")
    LEADER_NOT_AVAILABLE = _retriable(
        5, "The partition has no leader at the moment; an election is under way or its replicas are down."
    )
    NOT_LEADER_OR_FOLLOWER = _retriable(
        6, "This broker does not lead the partition, or no longer holds a replica of it; refresh metadata."
    )
    REQUEST_TIMED_OUT = _retriable(7, "The work was not done within the time the request allowed; it may still happen.")
    BROKER_NOT_AVAILABLE = _final(8, "The broker asked for is not alive.")
    REPLICA_NOT_AVAILABLE = _retriable(9, "The replica asked for is not on this broker or not ready; refresh metadata.")
    MESSAGE_TOO_LARGE = _final(10, "A batch is larger than the topic or broker allows; make it smaller.")
    STALE_CONTROLLER_EPOCH = _final(11, "A controller that has been replaced sent this; only the newest one is obeyed.")
    OFFSET_METADATA_TOO_LARGE = _final(12, "The text stored beside a committed offset is too long.")
    NETWORK_EXCEPTION = _retriable(13, "The connection broke before the answer came; clients set this code themselves.")
    COORDINATOR_LOAD_IN_PROGRESS = _retriable(
        14, "The coordinator has just moved here and still reads its state; ask again shortly."
    )
    COORDINATOR_NOT_AVAILABLE = _retriable(15, "There is no coordinator yet; find it again in a moment.")
    NOT_COORDINATOR = _retriable(
        16, "This broker does not coordinate the group or transaction; find the coordinator again."
    )
    INVALID_TOPIC_EXCEPTION = _final(
        17, "The topic name breaks the naming rules, or the topic is not open to this operation."
    )
    RECORD_LIST_TOO_LARGE = _final(18, "The batches for one partition are together larger than a segment can be.")
    NOT_ENOUGH_REPLICAS = _retriable(
        19, "Fewer replicas are in sync than min.insync.replicas asks for; nothing was written."
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = _retriable(
        20, "The data was written, but too few replicas are in sync to vouch for it; a repeat may duplicate it."
    )
    INVALID_REQUIRED_ACKS = _final(21, "acks may only be 0, 1 or -1 (all).")
    ILLEGAL_GENERATION = _final(
        22, "The generation is not the group's current one; this member missed a rebalance and must rejoin."
    )
    INCONSISTENT_GROUP_PROTOCOL = _final(
        23, "The member's protocol type or assignors have nothing in common with those of the group."
    )
    INVALID_GROUP_ID = _final(24, "The group id is empty or not allowed.")
    UNKNOWN_MEMBER_ID = _final(
        25, "The group does not know this member, perhaps because its session ran out; rejoin with an empty member id."
    )
    INVALID_SESSION_TIMEOUT = _final(26, "The session timeout is outside the range the broker accepts.")
    REBALANCE_IN_PROGRESS = _final(27, "The group is sharing out its partitions anew; rejoin before going on.")
    INVALID_COMMIT_OFFSET_SIZE = _final(
        28, "The committed offset could not be stored because its record would be too large."
    )
    TOPIC_AUTHORIZATION_FAILED = _final(29, "The user may not do this with the topic.")
    GROUP_AUTHORIZATION_FAILED = _final(30, "The user may not do this with the group.")
    CLUSTER_AUTHORIZATION_FAILED = _final(31, "The user may not do this with the cluster.")
    INVALID_TIMESTAMP = _final(32, "The timestamp of a record is too far from the broker's clock or missing.")
    UNSUPPORTED_SASL_MECHANISM = _final(
        33, "The broker does not offer this SASL mechanism; the answer lists those it has."
    )
    ILLEGAL_SASL_STATE = _final(34, "This request does not belong at this point of the SASL exchange.")
    UNSUPPORTED_VERSION = _final(
        35, "The broker does not speak this version of the request, or lacks a feature that it needs."
    )
    TOPIC_ALREADY_EXISTS = _final(36, "A topic of this name exists already.")
    INVALID_PARTITIONS = _final(
        37, "The number of partitions is not possible, for example zero or fewer than there are."
    )
    INVALID_REPLICATION_FACTOR = _final(
        38, "The replication factor is below one or above the number of usable brokers."
    )
    INVALID_REPLICA_ASSIGNMENT = _final(
        39, "The given assignment of replicas to brokers is incomplete, has duplicates or names unknown brokers."
    )
    INVALID_CONFIG = _final(40, "The name or value of a setting is not acceptable.")
    NOT_CONTROLLER = _retriable(41, "This broker is not the active controller; ask for the current one.")
    INVALID_REQUEST = _final(42, "The request contradicts itself, or a field holds what it must not hold.")
    UNSUPPORTED_FOR_MESSAGE_FORMAT = _final(
        43, "The partition's message format is too old for this, for example for timestamps or transactions."
    )
    POLICY_VIOLATION = _final(44, "A policy that the operator installed forbids this.")
    OUT_OF_ORDER_SEQUENCE_NUMBER = _final(
        45, "A sequence number is missing before this batch; an earlier batch of the producer never arrived."
    )
    DUPLICATE_SEQUENCE_NUMBER = _final(46, "A batch with these sequence numbers was written before; it is stored once.")
    INVALID_PRODUCER_EPOCH = _final(47, "The producer's epoch is out of date: a newer instance of it has started.")
    INVALID_TXN_STATE = _final(48, "The transaction is not in a state that allows this step.")
    INVALID_PRODUCER_ID_MAPPING = _final(49, "The producer id is not the one that belongs to this transactional id.")
    INVALID_TRANSACTION_TIMEOUT = _final(
        50, "The transaction timeout exceeds transaction.max.timeout.ms of the broker, or is not positive."
    )
    CONCURRENT_TRANSACTIONS = _retriable(
        51, "The transaction before this one is still being completed; repeat in a moment."
    )
    TRANSACTION_COORDINATOR_FENCED = _final(52, "A transaction marker came from a coordinator that has been replaced.")
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = _final(53, "The user may not use this transactional id.")
    SECURITY_DISABLED = _final(54, "The broker runs without an authorizer, so there are no ACLs to read or change.")
    OPERATION_NOT_ATTEMPTED = _final(55, "This item was left alone because another item of the request failed.")
    KAFKA_STORAGE_ERROR = _retriable(
        56, "The broker could not read or write its disk; the partition moves to another broker."
    )
    LOG_DIR_NOT_FOUND = _final(57, "The broker has no such log directory, or the replica is in none.")
    SASL_AUTHENTICATION_FAILED = _final(58, "Wrong user, password, token or signature.")
    UNKNOWN_PRODUCER_ID = _final(
        59, "The broker holds no state for this producer id; its records have expired or were deleted."
    )
    REASSIGNMENT_IN_PROGRESS = _final(60, "The partition is on its way to other brokers, which rules this out for now.")
    DELEGATION_TOKEN_AUTH_DISABLED = _final(61, "Delegation tokens are switched off on this broker.")
    DELEGATION_TOKEN_NOT_FOUND = _final(62, "There is no such delegation token.")
    DELEGATION_TOKEN_OWNER_MISMATCH = _final(63, "The delegation token belongs to someone else.")
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = _final(
        64, "Delegation tokens cannot be handled over this connection; it needs strong authentication, not a token."
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = _final(65, "The user may not do this with the delegation token.")
    DELEGATION_TOKEN_EXPIRED = _final(66, "The delegation token has run out.")
    INVALID_PRINCIPAL_TYPE = _final(67, "The principal is of a type that cannot be used here.")
    NON_EMPTY_GROUP = _final(68, "The group still has members; stop them first.")
    GROUP_ID_NOT_FOUND = _final(69, "There is no group of this id.")
    FETCH_SESSION_ID_NOT_FOUND = _retriable(
        70, "The broker has forgotten this fetch session; open one with a full fetch."
    )
    INVALID_FETCH_SESSION_EPOCH = _retriable(
        71, "The fetch session's epoch is not the next in line; open a session with a full fetch."
    )
    LISTENER_NOT_FOUND = _retriable(72, "The leader has no listener of the name this connection came in by.")
    TOPIC_DELETION_DISABLED = _final(73, "Deleting topics is switched off by delete.topic.enable.")
    FENCED_LEADER_EPOCH = _retriable(
        74, "The leader epoch in the request is older than the broker's; refresh metadata."
    )
    UNKNOWN_LEADER_EPOCH = _retriable(
        75, "The leader epoch in the request is newer than the broker's, which will soon catch up."
    )
    UNSUPPORTED_COMPRESSION_TYPE = _final(
        76, "The codec is unknown to the broker or needs a newer version of the request."
    )
    STALE_BROKER_EPOCH = _final(77, "The broker epoch is out of date: this broker has registered anew since.")
    OFFSET_NOT_AVAILABLE = _retriable(78, "A fresh leader does not know its high watermark yet; ask again shortly.")
    MEMBER_ID_REQUIRED = _final(79, "Join again with the member id that this answer carries.")
    PREFERRED_LEADER_NOT_AVAILABLE = _retriable(
        80, "The preferred leader is down or not in sync, so it cannot be elected."
    )
    GROUP_MAX_SIZE_REACHED = _final(81, "The group has as many members as group.max.size allows.")
    FENCED_INSTANCE_ID = _final(82, "Another member has taken over this group.instance.id.")
    ELIGIBLE_LEADERS_NOT_AVAILABLE = _retriable(83, "No replica that may lead this partition is alive.")
    ELECTION_NOT_NEEDED = _retriable(84, "The partition has the right leader already.")
    NO_REASSIGNMENT_IN_PROGRESS = _final(85, "The partition is not being reassigned, so there is nothing to cancel.")
    GROUP_SUBSCRIBED_TO_TOPIC = _final(86, "A live group reads this topic, so its offsets cannot be deleted.")
    INVALID_RECORD = _final(
        87, "A record breaks a rule, for example it lacks a key on a compacted topic; do not repeat it unchanged."
    )
    UNSTABLE_OFFSET_COMMIT = _retriable(88, "A transaction still holds offsets of this group; wait until it has ended.")
    THROTTLING_QUOTA_EXCEEDED = _retriable(89, "A quota is used up; wait for the throttle time and repeat.")
    PRODUCER_FENCED = _final(90, "A newer producer with the same transactional id has taken over; close this one.")
    RESOURCE_NOT_FOUND = _final(91, "The thing asked about does not exist.")
    DUPLICATE_RESOURCE = _final(92, "The same thing is named twice in one request.")
    UNACCEPTABLE_CREDENTIAL = _final(
        93, "The password data does not meet the requirements, for example too few SCRAM iterations."
    )
    INCONSISTENT_VOTER_SET = _final(94, "The voters in the request are not those this controller knows.")
    INVALID_UPDATE_VERSION = _final(95, "A feature cannot be set to this level.")
    FEATURE_UPDATE_FAILED = _final(96, "The new feature levels could not be made permanent.")
    PRINCIPAL_DESERIALIZATION_FAILURE = _final(97, "The principal inside a forwarded request cannot be decoded.")
    SNAPSHOT_NOT_FOUND = _final(98, "There is no snapshot of this id.")
    POSITION_OUT_OF_RANGE = _final(99, "The position lies outside the snapshot.")
    UNKNOWN_TOPIC_ID = _retriable(
        100, "This broker knows no topic of this id; refresh metadata, it may be too new or deleted."
    )
    DUPLICATE_BROKER_REGISTRATION = _final(101, "A live broker has registered with this id already.")
    BROKER_ID_NOT_REGISTERED = _final(102, "No broker of this id is registered with the controller.")
    INCONSISTENT_TOPIC_ID = _retriable(
        103, "The topic id in the log differs from the one in the request; refresh metadata."
    )
    INCONSISTENT_CLUSTER_ID = _final(104, "The request is meant for another cluster.")
    TRANSACTIONAL_ID_NOT_FOUND = _final(105, "There is no transaction of this transactional id.")
    FETCH_SESSION_TOPIC_ID_ERROR = _retriable(
        106, "The fetch session mixes topic ids with topic names; open a session with a full fetch."
    )
    INELIGIBLE_REPLICA = _final(107, "A replica proposed for the in-sync set is fenced or shutting down.")
    NEW_LEADER_ELECTED = _final(
        108, "The change to the in-sync set was made, and another broker now leads the partition."
    )
    OFFSET_MOVED_TO_TIERED_STORAGE = _final(
        109, "The offset is held in remote storage; the follower must continue from what is local."
    )
    FENCED_MEMBER_EPOCH = _final(
        110, "The member epoch is out of date: the coordinator has fenced this member, which must rejoin."
    )
    UNRELEASED_INSTANCE_ID = _final(111, "Another member still uses this instance id and has to leave first.")
    UNSUPPORTED_ASSIGNOR = _final(112, "The coordinator does not have the assignor asked for.")
    STALE_MEMBER_EPOCH = _final(
        113, "The member epoch is behind the coordinator's; wait for the next heartbeat and repeat."
    )
    MISMATCHED_ENDPOINT_TYPE = _final(114, "The request reached a broker where a controller was meant, or the reverse.")
    UNSUPPORTED_ENDPOINT_TYPE = _final(115, "Endpoints of this type cannot be asked for here.")
    UNKNOWN_CONTROLLER_ID = _final(116, "No controller of this id is known.")
    UNKNOWN_SUBSCRIPTION_ID = _final(117, "The telemetry subscription has changed; fetch it again before pushing.")
    TELEMETRY_TOO_LARGE = _final(118, "The pushed metrics are larger than the broker accepts.")
    INVALID_REGISTRATION = _final(119, "The controller turned the registration down as not valid.")
    TRANSACTION_ABORTABLE = _final(120, "The transaction cannot go on; abort it, then start another.")
    INVALID_RECORD_STATE = _final(
        121, "The record is not in a state that allows this acknowledgement, for example its lock ran out."
    )
    SHARE_SESSION_NOT_FOUND = _retriable(122, "The broker has forgotten this share session; open one with epoch 0.")
    INVALID_SHARE_SESSION_EPOCH = _retriable(
        123, "The share session's epoch is not the next in line; open a session with epoch 0."
    )
    FENCED_STATE_EPOCH = _final(
        124, "The share state belongs to a later epoch: another leader has taken over the share partition."
    )
    INVALID_VOTER_KEY = _final(125, "The request is meant for a voter with another id or directory id.")
    DUPLICATE_VOTER = _final(126, "This voter is in the set already.")
    VOTER_NOT_FOUND = _final(127, "The set has no such voter.")
    INVALID_REGULAR_EXPRESSION = _final(128, "The regular expression of the subscription cannot be compiled.")
    REBOOTSTRAP_REQUIRED = _final(129, "The client's view is out of date; start again from its bootstrap servers.")
    STREAMS_INVALID_TOPOLOGY = _final(130, "The Streams topology does not fit together.")
    STREAMS_INVALID_TOPOLOGY_EPOCH = _final(131, "The Streams topology's epoch is not possible.")
    STREAMS_TOPOLOGY_FENCED = _final(
        132, "The Streams topology's epoch is out of date: the group has moved on to a newer one."
    )
    SHARE_SESSION_LIMIT_REACHED = _retriable(133, "The broker holds as many share sessions as it may; try again later.")
    GROUP_DELETION_FAILED = _final(134, "The group could not be deleted.")
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = _final(
        135, "The description of the Streams topology could not be stored."
    )
    CONTROLLER_ID_NOT_REGISTERED = _final(136, "No controller of this id is registered with the active controller.")

    def __new__(cls, code: int) -> Error:
        try:
            return _BY_CODE[code]
        except KeyError:
            raise ValueError(f"{code!r} is not an error code of Kafka") from None

    def __repr__(self) -> str:
        return f"Error.{self.name}"

    def __str__(self) -> str:
        return self.name


_BY_CODE: dict[int, Error] = {}

for _name, _line in list(vars(Error).items()):
    if not _name.startswith("__") and type(_line) is tuple:  # Python keeps tuples of its own in a class
        _error = int.__new__(Error, _line[0])
        _error.name = _name
        _, _error.retriable, _error.meaning = _line
        _BY_CODE[_line[0]] = _error
        setattr(Error, _name, _error)

ERRORS = tuple(_BY_CODE.values())  # in the order of the codes

FORMER_NAMES = {  # what older releases, and the clients written for them, call a code
    "UNKNOWN": "UNKNOWN_SERVER_ERROR",
    "NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER",
    "GROUP_LOAD_IN_PROGRESS": "COORDINATOR_LOAD_IN_PROGRESS",
    "GROUP_COORDINATOR_NOT_AVAILABLE": "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR_FOR_GROUP": "NOT_COORDINATOR",
}


def find_error(code_or_name: int | str) -> Error | None:
    """Return the error of a code, a name or a former name; None if Kafka has no such error."""
    if isinstance(code_or_name, int):
        return _BY_CODE.get(code_or_name)
    found = getattr(Error, FORMER_NAMES.get(code_or_name, code_or_name), None)
    return found if isinstance(found, Error) else None


def error_name(code: int) -> str:
    """Return the name of any code for people to read, also of one that is newer than we are."""
    error = _BY_CODE.get(code)
    return error.name if error is not None else f"UNKNOWN_CODE_{code}"


class KafkaError(Exception):
    """Something the client did or met; becomes an error code in its response.

    The message carries the values at hand; the same text goes to log, event and response.
    """

    def __init__(self, code: Error, message: str = ""):
        if len(message) > MESSAGE_LETTERS_MAX:
            message = shortened(message)
        super().__init__(code, message)
        self.code = code
        self.message = message or code.meaning

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"


MESSAGE_LETTERS_MAX = 8000  # a response has room for 32,767 bytes, and a letter takes up to four


def shortened(message: str) -> str:
    """Return a message that fits into an answer, whatever of what a client has sent is in it."""
    if len(message) <= MESSAGE_LETTERS_MAX:
        return message
    return f"{message[:MESSAGE_LETTERS_MAX]}... ({len(message)} letters)"


class ProtocolError(Exception):
    """Bytes that break a format: where they do, in which field, and how.

    The attributes may be completed on the way up: who reads a batch knows the path to a record, not the one to itself.
    """

    def __init__(self, reason: str, position: int = 0, path: str = ""):
        super().__init__(reason, position, path)
        self.reason = reason
        self.position = position  # of the first byte that is wrong, from the start of the buffer
        self.path = path  # as in `FetchResponse.responses[0].partitions[2].records`

    def __str__(self) -> str:
        return f"{self.path} at byte {self.position}: {self.reason}".lstrip()


class Truncated(ProtocolError):
    """The bytes end before the value does."""


class TrailingBytes(ProtocolError):
    """Bytes are left over where the value should end."""


class InvalidLength(ProtocolError):
    """A length or count is negative, or larger than what follows could hold."""


class NullForbidden(ProtocolError):
    """Null where this version of the field needs a value."""


class InvalidVarint(ProtocolError):
    """A varint goes on for more bytes than its type allows."""


class InvalidTag(ProtocolError):
    """A tagged field comes twice, out of order, or with a size that is not the size of its value."""


class TooDeep(ProtocolError):
    """Values are nested in each other deeper than anything real would be."""


class UnsupportedVersion(ProtocolError):
    """The message has no such version."""


class UnknownMessage(ProtocolError):
    """There is no such message, api key or record type."""


class InvalidValue(ProtocolError):
    """The right number of bytes, but not a value of the type: text that is not UTF-8, for example."""


class CorruptCrc(ProtocolError):
    """The checksum of a batch does not match its bytes."""


class InvalidMagic(ProtocolError):
    """A batch says it has a format other than 0, 1 or 2, or one that is not allowed in its place."""


class UnknownCodec(ProtocolError):
    """The attributes of a batch name a compression codec that Kafka does not have."""


class InvalidRecordCount(ProtocolError):
    """A batch holds more or fewer records than its header says."""


class InvalidRecord(ProtocolError):
    """The structure of a record contradicts itself or its batch."""


class DecompressionFailed(ProtocolError):
    """The codec cannot make sense of the compressed bytes."""


class DecompressionLimit(ProtocolError):
    """The bytes would unpack to more than the caller allows."""


class EncodeError(Exception):
    """A value that does not fit its field: too large, of another type, null where that is not allowed."""

    def __init__(self, reason: str, path: str = ""):
        super().__init__(reason, path)
        self.reason = reason
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


class StorageError(KafkaError):
    """A disk refused: full, broken, or not to be trusted any more. Clients see KAFKA_STORAGE_ERROR."""

    path = ""  # of the file, where the operating system refused

    def __init__(self, message: str = ""):
        super().__init__(Error.KAFKA_STORAGE_ERROR, message)

    @classmethod
    def of(cls, doing: str, path: str, failure: OSError, *, told: str = "") -> StorageError:
        """Return the error for what the operating system said; told: what people are told in place of the path."""
        error = cls(f"{doing} {told or path}: {failure.strerror or failure}")
        error.path = path
        return error


class StorageDamaged(StorageError):
    """What a disk gives back is not what was written to it. A disk may work again; this stays until a file changes."""


class LogOffline(StorageError):
    """A log that a disk has failed is asked for something: that is known, and the disk has refused nothing anew."""


class LogDamaged(KafkaError):
    """Bytes of a log that are no records: what asks for them is refused, for that partition and no other."""


def dependency_missing(error: ModuleNotFoundError) -> str:
    """Return what helps where a package that minibroker needs is not installed; raise the error if it is none of those.

    That is so behind `pip install --no-deps`, in a copy of the sources, and where a package could not be compiled.
    """
    name = (error.name or "minibroker").partition(".")[0]
    if name == "minibroker":  # a mistake of ours
        raise error
    return f"the package of the module {name} is not installed, and minibroker needs it: pip install minibroker"
