"""minibroker: a Kafka-compatible broker that starts in milliseconds, for tests, lessons and reading.

Importing this package loads nothing else: every part is imported where it is used, so a tool that needs one
message pays for one message. tests/test_house_rules.py keeps it so.
"""

__version__ = "0.1.0.dev0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.embedded import Broker as Broker
    from minibroker.embedded import Cluster as Cluster
    from minibroker.embedded.simulated.decorator import simulate as simulate

__all__ = ["Broker", "Cluster", "__version__", "simulate"]


def __getattr__(name: str) -> object:
    global Broker, Cluster, simulate
    if name == "Broker":
        from minibroker.embedded import Broker

        return Broker
    if name == "Cluster":
        from minibroker.embedded import Cluster

        return Cluster
    if name == "simulate":
        from minibroker.embedded.simulated.decorator import simulate

        return simulate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
