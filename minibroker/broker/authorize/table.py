"""The table: what each API asks for, of which of the things that a request names, and how a refusal looks.

Guards (guards.py), the page docs/acls.md and the tests are made of it. A row with `by` is carried out by that function
of a module of this folder; the others by what their needs say.
What must hold: an API that is served and not in the table is refused, so that none is forgotten.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from minibroker.broker.authorize.access import WORDS
from minibroker.security.acls import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CREATE,
    CREATE_TOKENS,
    DELEGATION_TOKEN,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    DESCRIBE_TOKENS,
    GROUP,
    IDEMPOTENT_WRITE,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
    WRITE,
)

WHOLE, EACH = "whole", "each"  # a request as a whole, or each that it names
WHY = "why"  # a refusal of the whole says what it needs, as Kafka's ClusterAuthorizationException does
FIRST, LAST = "first", "last"  # where an answer has those that were refused


class Need(NamedTuple):
    """An operation on a resource that a client must be allowed."""

    resource_type: int
    operation: int
    of: str = ""  # the field of the request that names it; of a row with `by`: which ones, in words
    scope: str = WHOLE
    alternative: int = 0  # another operation on the same resource that will do


class Row(NamedTuple):
    """What one API asks for; in the order in which it is asked."""

    needs: tuple[Need, ...] = ()
    refused: str = ""  # how a client learns of it, where that is more than an error
    by: str = ""  # module and function
    refusal: str = ""  # the same, of what makes the answer to who is refused as a whole, where it names more than usual
    order: str = LAST  # of a row without `by`
    words: str | None = None  # of a refusal of the whole
    old_words: str | None = WHY  # the same, before 4.0, where that differs


def cluster(operation: int, alternative: int = 0, *, words: str | None = WHY) -> Row:
    return Row((Need(CLUSTER, operation, alternative=alternative),), words=words)


MEMBER: Final = Row((Need(GROUP, READ, "group_id"),))
NOTHING: Final = Row(refused="nothing is asked: a client has to be able to begin")
SWITCHED_OFF: Final = Row(refused="nothing is asked: what it is for is switched off, and that is answered first")
TOKEN: Final = Row(refused="nothing is asked: owner and renewers may, and nobody else")
CONFIGS: Final = "those of topics and groups by their own resource, those of brokers and client metrics by the cluster"
HIDDEN: Final = "topics that one may not describe are as unknown as those that are not there"

TABLE: Final[dict[int, Row]] = {
    0: Row(
        (
            Need(TRANSACTIONAL_ID, WRITE, "the transactional id, if a batch is transactional"),
            Need(TOPIC, WRITE, "each topic", EACH),
        ),
        "idempotent batches ask for nothing more; with acks 0 the connection is closed",
        by="data.produce",
    ),
    1: Row(
        (
            Need(CLUSTER, CLUSTER_ACTION, "the cluster, if the request has a replica id"),
            Need(TOPIC, READ, "each topic, if it has none", EACH),
        ),
        "each partition; an id that nobody knows stays unknown",
        by="data.fetch",
    ),
    2: Row((Need(TOPIC, DESCRIBE, scope=EACH),)),
    3: Row(
        (
            Need(TOPIC, DESCRIBE, "each topic", EACH),
            Need(CLUSTER, CREATE, "the cluster, if a topic is to be made"),
            Need(TOPIC, CREATE, "or each topic that is to be made", EACH),
            Need(CLUSTER, DESCRIBE, "the cluster, for what may be done to it"),
        ),
        "all topics are those that one may describe; of the operations only the allowed ones are told",
        by="topics.metadata",
    ),
    8: Row((Need(GROUP, READ, "group_id"), Need(TOPIC, READ, scope=EACH)), order=FIRST),
    9: Row(
        (Need(GROUP, DESCRIBE, "each group", EACH), Need(TOPIC, DESCRIBE, "each topic", EACH)),
        "all topics are those that one may describe",
        by="groups.offset_fetch",
    ),
    10: Row(
        (
            Need(GROUP, DESCRIBE, "each key that is a group", EACH),
            Need(TRANSACTIONAL_ID, DESCRIBE, "each key that is a transactional id", EACH),
            Need(CLUSTER, CLUSTER_ACTION, "the cluster, for share groups"),
        ),
        by="groups.find_coordinator",
    ),
    11: MEMBER,
    12: MEMBER,
    13: MEMBER,
    14: MEMBER,
    15: Row((Need(GROUP, DESCRIBE, "each group", EACH),), by="groups.describe_groups"),
    16: Row(
        (Need(CLUSTER, DESCRIBE, "the cluster"), Need(GROUP, DESCRIBE, "or each group", EACH)),
        "only what one may describe is listed",
        by="groups.list_groups",
    ),
    17: NOTHING,
    18: NOTHING,
    19: Row(
        (Need(CLUSTER, CREATE, "the cluster"), Need(TOPIC, CREATE, "or each topic", EACH)),
        "settings of a new topic are told to whom may DESCRIBE_CONFIGS of it",
        by="topics.create_topics",
    ),
    20: Row(
        (
            Need(CLUSTER, DELETE, "the cluster"),
            Need(TOPIC, DELETE, "or each topic", EACH),
            Need(TOPIC, DESCRIBE, "each topic, to be told whether it is there", EACH),
        ),
        HIDDEN,
        by="topics.delete_topics",
    ),
    21: Row((Need(TOPIC, DELETE, scope=EACH),)),
    22: Row(
        (
            Need(TRANSACTIONAL_ID, WRITE, "the transactional id"),
            Need(CLUSTER, IDEMPOTENT_WRITE, "without one the cluster"),
            Need(TOPIC, WRITE, "or any topic there could be"),
        ),
        by="transactions.init_producer_id",
    ),
    23: Row(
        (Need(CLUSTER, CLUSTER_ACTION, "the cluster"), Need(TOPIC, DESCRIBE, "or each topic", EACH)),
        by="topics.offset_for_leader_epoch",
    ),
    24: Row(
        (
            Need(TRANSACTIONAL_ID, WRITE, "the transactional id"),
            Need(TOPIC, WRITE, "each topic", EACH),
            Need(CLUSTER, CLUSTER_ACTION, "from version 4 on only the cluster: brokers ask"),
        ),
        "if one topic is refused, OPERATION_NOT_ATTEMPTED at the others",
        by="transactions.add_partitions_to_txn",
    ),
    25: Row((Need(TRANSACTIONAL_ID, WRITE, "transactional_id"), Need(GROUP, READ, "group_id"))),
    26: Row((Need(TRANSACTIONAL_ID, WRITE, "transactional_id"),)),
    27: cluster(ALTER, CLUSTER_ACTION),
    28: Row(
        (
            Need(TRANSACTIONAL_ID, WRITE, "transactional_id"),
            Need(GROUP, READ, "group_id"),
            Need(TOPIC, READ, scope=EACH),
        ),
        order=FIRST,
    ),
    29: cluster(DESCRIBE),
    30: cluster(ALTER),
    31: cluster(ALTER),
    32: Row(
        (
            Need(CLUSTER, DESCRIBE_CONFIGS, "the cluster, for brokers", EACH),
            Need(TOPIC, DESCRIBE_CONFIGS, "each topic", EACH),
            Need(GROUP, DESCRIBE_CONFIGS, "each group", EACH),
        ),
        CONFIGS,
        by="configs.describe_configs",
    ),
    33: Row(
        (
            Need(CLUSTER, ALTER_CONFIGS, "the cluster, for brokers", EACH),
            Need(TOPIC, ALTER_CONFIGS, "each topic", EACH),
            Need(GROUP, ALTER_CONFIGS, "each group", EACH),
        ),
        CONFIGS,
        by="configs.alter_configs",
    ),
    34: cluster(ALTER, words=None),
    35: Row((Need(CLUSTER, DESCRIBE),), "no directory is told; below version 3 that is all", by="topics.log_dirs"),
    36: NOTHING,
    37: Row((Need(TOPIC, ALTER, "each topic", EACH),), by="topics.create_partitions"),
    38: Row(
        (Need(USER, CREATE_TOKENS, "the owner, if that is another one"),),
        "where tokens may be asked for at all",
        by="tokens.create",
    ),
    39: TOKEN,
    40: TOKEN,
    41: Row(
        (
            Need(DELEGATION_TOKEN, DESCRIBE, "each token of others", EACH),
            Need(USER, DESCRIBE_TOKENS, "or its owner", EACH),
        ),
        "tokens of others are left out",
        by="tokens.describe",
    ),
    42: Row((Need(GROUP, DELETE, "each group", EACH),), by="groups.delete_groups"),
    43: cluster(ALTER),
    44: Row(
        (
            Need(CLUSTER, ALTER_CONFIGS, "the cluster, for brokers", EACH),
            Need(TOPIC, ALTER_CONFIGS, "each topic", EACH),
            Need(GROUP, ALTER_CONFIGS, "each group", EACH),
        ),
        CONFIGS,
        by="configs.alter_configs",
    ),
    45: cluster(ALTER),
    46: cluster(DESCRIBE),
    47: Row(
        (Need(GROUP, DELETE, "group_id"), Need(TOPIC, READ, "each topic", EACH)),
        "an error of the group comes before those of topics",
        by="groups.offset_delete",
    ),
    48: cluster(DESCRIBE_CONFIGS, words=None),
    49: cluster(ALTER_CONFIGS, words=WORDS[CLUSTER])._replace(
        refused="each entity comes back", refusal="users.alter_quotas"
    ),
    50: cluster(DESCRIBE, words=None)._replace(refusal="users.describe_scram"),
    51: cluster(ALTER)._replace(refused="each user comes back", refusal="users.alter_scram"),
    55: cluster(DESCRIBE, words=WORDS[CLUSTER]),
    57: cluster(ALTER),
    60: Row(
        (Need(CLUSTER, DESCRIBE, "the cluster, for what may be done to it"),),
        "nothing else is asked: everybody may know the brokers",
        by="topics.describe_cluster",
    ),
    61: Row((Need(TOPIC, READ, "each topic", EACH),), by="topics.describe_producers"),
    64: cluster(ALTER)._replace(old_words=""),
    65: Row(
        (
            Need(TRANSACTIONAL_ID, DESCRIBE, "each transactional id", EACH),
            Need(TOPIC, DESCRIBE, "each topic of it", EACH),
        ),
        "topics that one may not describe are left out",
        by="transactions.describe_transactions",
    ),
    66: Row(
        (Need(TRANSACTIONAL_ID, DESCRIBE, "each transactional id", EACH),),
        "only what one may describe is listed",
        by="transactions.list_transactions",
    ),
    68: Row(
        (Need(GROUP, READ, "group_id"), Need(TOPIC, DESCRIBE, "each topic of the subscription")),
        "one topic that is refused refuses the request, and patterns stand for what may be described (since 4.0)",
        by="groups.consumer_group_heartbeat",
    ),
    69: Row(
        (Need(GROUP, DESCRIBE, "each group", EACH), Need(TOPIC, DESCRIBE, "each topic of its assignments")),
        "one topic that is refused refuses the group (since 4.0)",
        by="groups.consumer_group_describe",
    ),
    74: cluster(DESCRIBE_CONFIGS, words=None),
    75: Row(
        (Need(TOPIC, DESCRIBE, "each topic", EACH),),
        "all topics are those that one may describe",
        by="topics.describe_topic_partitions",
    ),
    **dict.fromkeys((76, 77, 78, 79, 88, 89, 90, 91, 92, 93), SWITCHED_OFF),
    **dict.fromkeys((83, 84, 85, 86, 87), cluster(CLUSTER_ACTION, words=WORDS[CLUSTER])),
    80: cluster(ALTER, words=WORDS[CLUSTER]),
    81: cluster(ALTER, words=WORDS[CLUSTER]),
    94: cluster(ALTER),
}
