"""Batches of the log as columns of Arrow, without a Python object for each record."""
