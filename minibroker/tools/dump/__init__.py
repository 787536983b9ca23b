"""Text of kafka-dump-log for the files of a log directory, and a lesson about offsets.

files.py     which file is dumped how            batches.py   finding batches, their lines and those of records
indexes.py   indexes and producer snapshots      decoders.py  what records of internal topics mean
offsets.py   how an offset comes about, format by format, from 0.7 on
"""
