"""minibroker: a Kafka-compatible broker that one person can read in an afternoon.

Importing this package loads nothing else: every part is imported where it is used, so a tool that needs one
message pays for one message. tests/test_house_rules.py keeps it so.
"""

__version__ = "0.1.0.dev0"
