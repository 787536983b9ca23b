"""Spark: topics and log directories as tables. `pip install 'minibroker[spark]'` brings what it needs.

    source.py      what Spark asks for first: a reader, a writer, the same for streams
    options.py     what was asked for; columns.py of which columns; filters.py what Spark hands down; ranges.py which
                   offsets that is; option_values.py how values are written
    reading.py     tasks and their rows, either way:
    path/          log directories: files -> tasks -> record batches; no broker
    wire/          brokers: planning -> fetches -> record batches
    streams/       micro-batches of both; lag.py how far behind they are
    sending/       to topics: rows -> batches -> leaders, each once
    loading/       into directories: rows -> staged segments -> logs that brokers open; load.py is the whole of it
    jobs/          export, import, profile, codecs, verify, compact, convert, slice; submit.py for spark-submit
    the machine    java.py, session.py, workers.py, arrow_map.py, folders.py

What Spark calls is in source.py, streams/reader.py, and sink.py of a folder that writes.
Nothing else imports this part but the command line, when a job is asked for. Records become columns, and columns
records, in minibroker/log/column*.py.
"""
