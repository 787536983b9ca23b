"""Cleaning of logs: retention, which drops whole segments, and compaction, which keeps the latest record of each key.

Decides and rewrites; plain objects without clock or waiting: the time is an argument, and what takes long is a
generator that whoever runs it may leave alone between two pieces of work.
"""
