"""Instances: topics that share a promised flow, a capacity and an allow-list. Nothing of it is imported without one."""
