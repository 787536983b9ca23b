"""Access rules, SCRAM passwords, delegation tokens and quotas: records of the metadata log.

They live in __cluster_metadata-0 and in its snapshots. The active controller writes them for CreateAcls, DeleteAcls,
AlterUserScramCredentials, the delegation token requests and AlterClientQuotas; brokers replay and enforce them.
"""

from __future__ import annotations

from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bool, Bytes, Float64, Int8, Int32, Int64, String, Uuid
from minibroker.stored.kinds import MetadataRecord


class AccessControlEntryRecord(MetadataRecord, type=18, versions="0", flexible="0+"):
    """An access rule has been added: principal at host may, or may not, do this to the resource."""

    id: Uuid  # made by the controller, to name the rule when it is removed
    resource_type: Int8  # 2: topic, 3: group, 4: cluster, 5: transactional id, 6: delegation token, 7: user
    resource_name: String  # name or prefix, as pattern_type says; * is any name; the cluster is called kafka-cluster
    pattern_type: Int8  # 3: literal, exactly this name, 4: prefixed, every name that begins so
    principal: String  # type and name, for example User:alice; User:* is everybody
    host: String  # address of the client, * for any
    # 2: all, 3: read, 4: write, 5: create, 6: delete, 7: alter, 8: describe, 9: cluster action, 10: describe configs,
    # 11: alter configs, 12: idempotent write, 13: create tokens, 14: describe tokens, 15: two-phase commit
    operation: Int8
    permission_type: Int8  # 2: deny, 3: allow; one deny outweighs any number of allows


class RemoveAccessControlEntryRecord(MetadataRecord, type=19, versions="0", flexible="0+"):
    """An access rule has been removed."""

    id: Uuid  # of the AccessControlEntryRecord


class AccessControlRecord(MetadataRecord, type=6, versions="0", flexible="0+"):
    """An access rule in the form of the 2.8 preview, replaced by AccessControlEntryRecord."""

    resource_type: Int8  # 2: topic, 3: group, 4: cluster, 5: transactional id, 6: delegation token, 7: user
    # name or prefix, as pattern_type says; * is any name; the cluster is called kafka-cluster
    resource_name: String | None
    pattern_type: Int8  # 3: literal, exactly this name, 4: prefixed, every name that begins so
    principal: String  # type and name, for example User:alice; User:* is everybody
    host: String  # address of the client, * for any
    # 2: all, 3: read, 4: write, 5: create, 6: delete, 7: alter, 8: describe, 9: cluster action, 10: describe configs,
    # 11: alter configs, 12: idempotent write, 13: create tokens, 14: describe tokens, 15: two-phase commit
    operation: Int8
    permission_type: Int8  # 2: deny, 3: allow; one deny outweighs any number of allows


class UserScramCredentialRecord(MetadataRecord, type=11, versions="0", flexible="0+"):
    """A user's password for SCRAM has been set (RFC 5802).

    The password itself is not stored and cannot be computed from this, but it can be guessed and checked.
    """

    name: String
    mechanism: Int8  # 1: SCRAM-SHA-256, 2: SCRAM-SHA-512
    salt: Bytes  # random, made by whoever set the password
    stored_key: Bytes  # hash of the client key: to check the client's proof
    server_key: Bytes  # to prove to the client that the server knows its credential
    iterations: Int32  # rounds of hashing from password to key, at least 4096: makes guessing slow


class RemoveUserScramCredentialRecord(MetadataRecord, type=22, versions="0", flexible="0+"):
    """A user's password for one SCRAM mechanism has been removed."""

    name: String
    mechanism: Int8  # 1: SCRAM-SHA-256, 2: SCRAM-SHA-512


class DelegationTokenRecord(MetadataRecord, type=10, versions="0", flexible="0+"):
    """A delegation token has been made or renewed (KIP-48).

    Its secret is not stored: brokers compute it from the token id and delegation.token.secret.key.
    """

    owner: String  # who the bearer acts as, for example User:alice
    requester: String  # who asked for the token; may differ from the owner
    renewers: Array[String]  # who else may renew it, for example User:bob
    issue_timestamp: Int64  # ms since 1970
    max_timestamp: Int64  # cannot be renewed beyond this, ms since 1970
    expiration_timestamp: Int64  # no longer valid after this unless renewed, ms since 1970
    token_id: String


class RemoveDelegationTokenRecord(MetadataRecord, type=26, versions="0", flexible="0+"):
    """A delegation token has expired or been revoked."""

    token_id: String


class ClientQuotaRecord(MetadataRecord, type=14, versions="0", flexible="0+"):
    """A limit for a user, a client id or an address has been set or removed."""

    entity: Array[EntityData]  # whom the limit is for: user, client-id, both together, or ip
    # producer_byte_rate or consumer_byte_rate (bytes per second and broker), request_percentage (of one thread's time),
    # controller_mutation_rate, connection_creation_rate (for ip)
    key: String
    value: Float64  # the limit, in the unit of the key; meaningless if remove is true
    remove: Bool  # true: the limit no longer exists

    class EntityData(Struct):
        entity_type: String  # user, client-id or ip
        entity_name: String | None  # null: the default for all that have no limit of their own


class QuotaRecord(MetadataRecord, type=14, versions="0"):
    """ClientQuotaRecord in the form of the 2.8 preview, not flexible."""

    entity: Array[EntityData]  # whom the limit is for: user, client-id, both together, or ip
    # producer_byte_rate or consumer_byte_rate (bytes per second and broker), request_percentage (of one thread's time),
    # controller_mutation_rate, connection_creation_rate (for ip)
    key: String
    value: Float64  # the limit, in the unit of the key; meaningless if remove is true
    remove: Bool  # true: the limit no longer exists

    class EntityData(Struct):
        entity_type: String  # user, client-id or ip
        entity_name: String | None  # null: the default for all that have no limit of their own
