"""Spark: topics and log directories as tables. `pip install 'minibroker[spark]'` brings what it needs.

    source.py      the data source, which Spark calls first: a reader, a writer, the same for streams
    options.py     options of a query; option_table.py, option_values.py: tables of options, and how values are written
    filters.py     filters that Spark hands down; ranges.py: the offsets that follow from both, and tasks
    reading.py     tasks and their rows, either way:
    files/         log directories: segments -> tasks -> record batches; no broker
    brokers/       topics of brokers: planning -> fetches -> record batches
    columns/       batches of the log as columns of Arrow, and columns as batches
    streams/       micro-batches of both; lag.py how far behind they are
    sink/          to topics: rows -> batches -> leaders, each once
    bulk_load/     into directories: rows -> staged segments -> logs that brokers open; load.py is the whole of it
    jobs/          export, import, profile, codecs, verify, rewrite, slice; submit.py for spark-submit
    the machine    java.py, session.py, workers.py, packing.py, arrow_map.py, folders.py

Spark calls source.py, streams/reader.py, and sink.py of the folders that write.
Nothing else imports this part but the command line, when a job is asked for.
"""
