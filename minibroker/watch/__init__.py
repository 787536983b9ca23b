"""Watching a cluster in a terminal: replicas as lanes.

frame.py     the picture of a state (cluster/snapshot.py) as lines of text; lanes.py: a partition, replica by replica
screen.py    the picture as it changes, and what keys mean
"""
