"""Access rules made and removed: wishes of administrators as records (Kafka's AclControlManager).

Pure, as the controller is: it reads the image and writes nothing.
A rule that is there already is made again by nobody, and the wish has been fulfilled. All of it is in pieces: whoever
writes what is decided looks whether the metadata have changed meanwhile, and if so decides again.
"""

from __future__ import annotations

from minibroker.controller.controller import RECORDS_MAX
from minibroker.errors import Error, KafkaError
from minibroker.security.acls import (
    ANY,
    CLUSTER,
    CLUSTER_NAME,
    MATCH,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    RESOURCE_TYPES,
    Rule,
    RuleFilter,
    rule_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Final

    from minibroker.controller.controller import Controller
    from minibroker.in_pieces import InPieces
    from minibroker.stored.kinds import MetadataRecord

CREATED_US: Final = 5
LOOKED_AT_PIECE: Final = 500  # rules, some hundreds of microseconds
LOOKED_AT_US: Final = 1


def check_new(rule: Rule) -> None:
    """Raise KafkaError for a rule that there cannot be, in the words of Kafka."""
    if rule.resource_type == CLUSTER and rule.resource_name != CLUSTER_NAME:
        raise _bad(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not rule.resource_name:
        raise _bad("Invalid empty resource name")
    for what, code, known in (
        ("resourceType", rule.resource_type, RESOURCE_TYPES),
        ("patternType", rule.pattern_type, PATTERN_TYPES),
        ("operation", rule.operation, OPERATIONS),
        ("permissionType", rule.permission, PERMISSIONS),
    ):
        if code not in known:
            # Kafka: with the code 0 the request cannot be read, and the connection is closed.
            raise _bad(f"Invalid {what} UNKNOWN")
    if ":" not in rule.principal:
        words = "(no colon is present separating the principal type from the principal name)"
        raise _bad(f"Could not parse principal from `{rule.principal}` {words}")
    if not rule.host:
        # Kafka: up to 3.9 takes an empty host, which no client has.
        raise _bad("Host pattern cannot be null or empty")


def is_of_filters(rule: Rule) -> bool:
    """Return whether a wish has something that only a filter can have."""
    return ANY in (rule.resource_type, rule.operation, rule.permission) or rule.pattern_type in (ANY, MATCH)


def check_filter(wanted: RuleFilter) -> None:
    """Raise KafkaError for a filter with something that nobody knows."""
    if wanted.resource_type not in {ANY, *RESOURCE_TYPES} or wanted.pattern_type not in {ANY, MATCH, *PATTERN_TYPES}:
        raise _bad("Unknown patternFilter.")
    if wanted.operation not in {ANY, *OPERATIONS} or wanted.permission not in {ANY, *PERMISSIONS}:
        raise _bad("Unknown entryFilter.")


def _bad(words: str) -> KafkaError:
    return KafkaError(Error.INVALID_REQUEST, words)


def create_acls(
    controller: Controller, rules: Sequence[Rule]
) -> InPieces[tuple[list[MetadataRecord], list[KafkaError | None]]]:
    """Return the records of the rules that are new, and what is wrong with each wish."""
    from minibroker.stored.security import AccessControlEntryRecord

    errors: list[KafkaError | None] = []
    wanted: dict[Rule, None] = {}
    for rule in rules:
        try:
            check_new(rule)
        except KafkaError as error:
            errors.append(error)
        else:
            errors.append(None)
            wanted[rule] = None
        yield CREATED_US
    names = {rule.resource_name for rule in wanted}
    for count, record in enumerate(list(controller.image.acls.values()), 1):
        if record.resource_name in names:
            wanted.pop(rule_of(record), None)
        if not count % LOOKED_AT_PIECE:
            yield LOOKED_AT_US * LOOKED_AT_PIECE
    if len(wanted) > RECORDS_MAX:
        words = "Unable to perform excessively large batch operation."
        return [], [each or KafkaError(Error.POLICY_VIOLATION, words) for each in errors]
    records: list[MetadataRecord] = []
    for rule in wanted:
        records.append(
            AccessControlEntryRecord(
                id=controller.new_id(),
                resource_type=rule.resource_type,
                resource_name=rule.resource_name,
                pattern_type=rule.pattern_type,
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation,
                permission_type=rule.permission,
            )
        )
        yield CREATED_US
    return records, errors


def rules_in(acls: Mapping[bytes, Any]) -> InPieces[dict[bytes, Rule]]:
    """Return what records say, by their ids."""
    found = {}
    for count, (rule_id, record) in enumerate(list(acls.items()), 1):
        found[rule_id] = rule_of(record)
        if not count % LOOKED_AT_PIECE:
            yield LOOKED_AT_US * LOOKED_AT_PIECE
    return found


def find_acls(rules: Mapping[bytes, Rule], wanted: RuleFilter) -> InPieces[dict[bytes, Rule]]:
    """Return the rules that a filter matches, by their ids."""
    found = {}
    count = 0
    for count, (rule_id, rule) in enumerate(rules.items(), 1):
        if wanted.matches(rule):
            found[rule_id] = rule
        if not count % LOOKED_AT_PIECE:
            yield LOOKED_AT_US * LOOKED_AT_PIECE
    yield LOOKED_AT_US * (count % LOOKED_AT_PIECE)
    return found


def delete_acls(
    controller: Controller, filters: Sequence[RuleFilter]
) -> InPieces[tuple[list[MetadataRecord], list[dict[bytes, Rule] | KafkaError]]]:
    """Return the records that remove what filters match, and for each the rules, or what is wrong with it."""
    from minibroker.stored.security import RemoveAccessControlEntryRecord

    results: list[dict[bytes, Rule] | KafkaError] = []
    gone: dict[bytes, None] = {}
    rules = yield from rules_in(controller.image.acls)
    for wanted in filters:
        yield CREATED_US
        try:
            check_filter(wanted)
            found = yield from find_acls(rules, wanted)
            if len(gone) + len(found.keys() - gone.keys()) > RECORDS_MAX:
                raise _bad(f"Cannot remove more than {RECORDS_MAX} acls in a single delete operation.")
        except KafkaError as error:
            results.append(error)
            continue
        gone.update(dict.fromkeys(found))
        results.append(found)
    records: list[MetadataRecord] = [RemoveAccessControlEntryRecord(id=rule_id) for rule_id in gone]
    return records, results
