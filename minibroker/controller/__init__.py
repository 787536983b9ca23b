"""Decides what the cluster is: registrations, elections, placement, reassignment, AlterPartition. Pure."""
