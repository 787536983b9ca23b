"""The log: record batches as they travel and as they lie on disk.

Imports errors, schema and stored, never protocol: a batch is the same bytes in a
produce request, in a segment file and in a fetch response, so nothing here knows about requests.
"""
