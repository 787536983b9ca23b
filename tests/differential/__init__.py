"""The same requests to two brokers, the answers compared field by field: real Kafka against ours, or any other pair.

    python -m tests.differential.compare EXPECTED ACTUAL      two bootstrap addresses, any brokers
    pytest tests/differential/test_against_kafka.py           brings up both (needs java and mvn)
    pytest tests/differential/test_sessions.py                replays what real brokers answered once (needs neither)

wire.py asks and waits, differ.py compares, rules.py lists what may differ and why, play.py does a step on both sides,
scenario/ holds the steps, kafka.py brings up a real Kafka, sessions.py replays recordings, record.py
makes those of transactions.
"""
