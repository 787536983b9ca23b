"""Settings of brokers, topics and groups: Kafka's names, types, defaults and rules, in one place.

Pure: arguments in, values or errors out; no file and no variable of the environment is read here.
alter.py and describe.py are for what requests ask, and not imported until then.
"""

from minibroker.config.broker import BrokerConfig
from minibroker.config.resources import TopicConfig, check_topic_config, log_settings
from minibroker.config.values import ConfigError

__all__ = ["BrokerConfig", "ConfigError", "TopicConfig", "check_topic_config", "log_settings"]
