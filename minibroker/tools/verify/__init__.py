"""Looks for what is wrong in a log directory: `minibroker verify`."""
