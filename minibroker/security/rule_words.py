"""Access rules in words: resources, operations and principals as people type them.

    orders    topic:orders    group:readers*    transactional-id:shop    cluster    token:ID    user:alice

A star at the end means every name that begins so, a star alone every name. What makes no sense is a ValueError.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from minibroker.security.acls import (
    CLUSTER,
    CLUSTER_NAME,
    DELEGATION_TOKEN,
    EVERY,
    GROUP,
    LITERAL,
    OPERATIONS,
    PREFIXED,
    RESOURCE_TYPES,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
)

# A word before a colon, or an option of kafka-acls.sh -> the kind of resource.
KINDS: Final = {
    "topic": TOPIC,
    "group": GROUP,
    "transactional-id": TRANSACTIONAL_ID,
    "token": DELEGATION_TOKEN,
    "delegation-token": DELEGATION_TOKEN,
    "user": USER,
    "user-principal": USER,
}


class Resource(NamedTuple):
    type: int
    name: str | None  # of a filter also None: every one
    pattern: int  # LITERAL or PREFIXED; of a filter also MATCH or ANY

    def __str__(self) -> str:
        pattern = "prefix " if self.pattern == PREFIXED else ""
        return f"{pattern}{RESOURCE_TYPES.get(self.type, 'ANY')}:{self.name or EVERY}"


def resource_of(text: str) -> Resource:
    """Return what a word names: a topic, unless a kind stands before it."""
    if text in ("cluster", "cluster:", CLUSTER_NAME, f"cluster:{CLUSTER_NAME}"):
        return Resource(CLUSTER, CLUSTER_NAME, LITERAL)
    word, colon, name = text.partition(":")
    kind = KINDS.get(word.lower().replace("_", "-")) if colon else TOPIC
    if kind is None:
        known = ", ".join(each for each in KINDS if each not in ("delegation-token", "user-principal"))
        raise ValueError(f"{text!r}: there is no resource {word!r}; there are {known}, cluster")
    name = name if colon else text
    if not name:
        raise ValueError(f"{text!r}: of what name? {EVERY} is every one")
    is_prefix = len(name) > 1 and name.endswith(EVERY)
    if kind == USER and name != EVERY:
        name = principal_of(name)
    return Resource(kind, name.removesuffix(EVERY) if is_prefix else name, PREFIXED if is_prefix else LITERAL)


def principal_of(text: str) -> str:
    """Return a principal; without a type it is a user."""
    if not text:
        raise ValueError("a principal has a name: User:alice, or alice")
    return text if ":" in text else f"User:{text}"


def operation_of(text: str) -> int:
    """Return an operation by its name in any case, with any or no lines between its words."""
    code = _known().get(_plain(text))
    if code is None:
        raise ValueError(f"there is no operation {text!r}; there are {', '.join(OPERATIONS.values())}")
    return code


def is_operation(text: str) -> bool:
    return _plain(text) in _known()


def _known() -> dict[str, int]:
    return {_plain(name): code for code, name in OPERATIONS.items()}


def _plain(text: str) -> str:
    return text.replace("_", "").replace("-", "").lower()
