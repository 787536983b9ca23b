"""Coordinator: state in the partitions of an internal topic, kept and answered for by who leads each of them."""
