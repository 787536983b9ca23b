"""Bulk load: rows into staged segments, and these into logs. `load` is in minibroker/spark/load.py."""
