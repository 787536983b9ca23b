"""Tests of minibroker.Broker and of the pytest plugin."""
