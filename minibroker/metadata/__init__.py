"""What the cluster knows of itself, kept as Kafka keeps it: records in the log __cluster_metadata-0 (KRaft).

image.py         the state that the records describe
metadata_log.py  the log: load, append, snapshots
bootstrap.py     whose a directory is, and what a new one begins with
snapshot.py      the format of .checkpoint files
records.py       records as bytes, in the versions that a metadata.version allows
features.py      what releases of Kafka finalize and support

Not here: who decides what is written (controller/controller.py).
"""
