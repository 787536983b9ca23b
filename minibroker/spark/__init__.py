"""Spark: topics and log directories as tables. `pip install 'minibroker[spark]'` brings what it needs.

    source.py      what Spark asks for: a reader, a writer, the same for streams
    options.py     what was asked for; filters.py what Spark hands down; ranges.py which offsets that is
    path mode      directories.py files -> segments.py tasks -> rows.py record batches; no broker
    wire mode      wire_source.py: wire_planning.py tasks -> wire_fetching.py bytes -> wire_rows.py record batches
    streams        streams.py, stream_offsets.py, stream_logs.py; lag.py how far behind they are
    to topics      wire_writer.py, write_options.py; wire_sending*.py: rows -> batches -> leaders, each once
    bulk load      load.py, load_writer.py; load_*.py: rows -> staged segments -> a directory that brokers open
    jobs/          export, import, profile, codecs, verify, compact, convert, slice; submit.py for spark-submit
    the machine    java.py, session.py, workers.py, arrow_map.py, folders.py

Nothing else imports this part but the command line, when a job is asked for. Records become columns, and columns
records, in minibroker/log/column*.py.
"""
