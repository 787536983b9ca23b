"""Which release of Kafka the broker appears as: what it announces, and how it takes old settings.

Without a release it is the newest, and serves every older version besides.
"""

from __future__ import annotations

from minibroker.broker.apis import SERVED
from minibroker.metadata.features import (
    FINALIZED,
    LOWEST,
    LOWEST_OF_CLUSTER,
    NEWEST,
    TRANSACTION_VERSION,
    TRANSACTIONS_V2,
    bootstrap,
    supported,
)
from minibroker.metadata.features import SERVED as SERVED_FEATURES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from minibroker.config import TopicConfig
    from minibroker.parts import Metadata

PRODUCE = 0


class EmulatedRelease:
    """What depends on the release."""

    def __init__(self, as_version: str | None = None):
        self.served = {api: (first, last) for api, (first, last, _) in SERVED.items()}
        self.announced = self.served
        self.release = NEWEST  # whose features and settings are known
        self.settings_release = NEWEST
        self.defaults_release: str | None = None  # whose defaults settings have, if not the newest
        self.knows_consumer_protocol = True  # KIP-848: since 3.7 where settings ask for it, since 4.0 by default
        self.has_features = True  # of a cluster: before KRaft there were none worth the name
        self._default_format = 2
        self._is_named = as_version is not None
        if as_version is not None:
            self._appear_as(as_version)
        # Topics have old formats, with rules of their own; the oldest clients are served, and answered as they expect.
        self.is_before_3, self.is_before_4 = self.settings_release == "2.8", self.release < "4"

    def _appear_as(self, name: str) -> None:
        from minibroker.broker.releases import RELEASES, ranges_of, release_named

        release = release_named(name)
        number = RELEASES.index(release)
        ranges = ranges_of(release)
        self.served = {
            api: (max(first, ranges[api][0]), min(last, ranges[api][1]))
            for api, (first, last) in self.served.items()
            if api in ranges and first <= ranges[api][1] and ranges[api][0] <= last
        }
        self.announced = dict(self.served)
        if number >= RELEASES.index("4.0"):
            # Kafka: announces Produce from 0 on, for librdkafka looks at the least, and closes on versions below 3.
            self.announced[PRODUCE] = (0, self.served[PRODUCE][1])
        self.defaults_release = release
        self.knows_consumer_protocol = number >= RELEASES.index("3.7")
        self.has_features = number >= RELEASES.index("3.3")
        self.release = release if release in FINALIZED else "3.9"
        self.settings_release = "2.8" if number < RELEASES.index("3.0") else "3.9" if release < "4" else NEWEST
        if number < RELEASES.index("0.11.0"):
            self._default_format = 0 if number < RELEASES.index("0.10.0") else 1

    @property
    def refuses_version_0_offsets(self) -> bool:
        """Whether the release has no ZooKeeper, where the oldest clients' offsets were kept; here they are kept too."""
        return self._is_named and not self.is_before_3

    def message_format(self, topic: TopicConfig) -> int:
        """Return the format that a topic's log has; brokers before 3.0 took it from settings."""
        if not self.is_before_3 or not (
            "message.format.version" in topic.overrides or topic.broker.is_set("log.message.format.version")
        ):
            return self._default_format
        version = topic["message.format.version"]
        numbers = [int(word) for word in version.split("-")[0].split(".") if word.isdigit()]
        return 0 if numbers < [0, 10] else 1 if numbers < [0, 11] else 2

    def bootstrap_features(self, *, is_cluster: bool = False) -> Mapping[str, int]:
        """Levels that a new directory begins with."""
        if self._is_named:
            return bootstrap(self.release)
        return LOWEST_OF_CLUSTER if is_cluster else LOWEST

    def supported_features(self) -> dict[str, tuple[int, int]]:
        found = supported(self.release) if self.has_features else {}
        return {name: levels for name, levels in found.items() if name in SERVED_FEATURES}

    def finalized_features(self, metadata: Metadata) -> tuple[dict[str, int], int]:
        """Return the level of each feature, and the epoch that grows with each change of them."""
        image = metadata.image
        if not self.has_features:
            return {}, 0
        levels = {name: level for name, level in image.features.items() if name in SERVED_FEATURES}
        if self.raises_transaction_version(metadata):
            levels[TRANSACTION_VERSION] = TRANSACTIONS_V2
        return levels, image.offset

    def raises_transaction_version(self, metadata: Metadata) -> bool:
        """Whether transaction.version is raised for the first who asks for a transactional id.

        It is announced before: a client hears of the features of a broker when it connects, and goes by them.
        """
        is_set = TRANSACTION_VERSION in metadata.image.features
        return not (self.is_before_4 or is_set) and metadata.may_have_feature(TRANSACTION_VERSION, TRANSACTIONS_V2)
