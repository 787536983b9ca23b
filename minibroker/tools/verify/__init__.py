"""Verification of log directories: `minibroker verify`."""
