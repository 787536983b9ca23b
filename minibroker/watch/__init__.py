"""Watching a cluster in a terminal: replicas as lanes.

state.py     what is to be seen, as plain values: `snapshot(cluster)`
frame.py     the picture of a state as lines of text; lanes.py: a partition, replica by replica
"""
