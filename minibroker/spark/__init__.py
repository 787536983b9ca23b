"""Spark: topics and log directories as tables. `pip install 'minibroker[spark]'` brings what it needs."""
