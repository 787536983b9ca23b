"""What there is to see of a broker or a cluster, as rows, and frames of what has changed since.

table.py       rows by key, and with which frame each changed last
rows.py        a partition, its replicas and its health as rows
selection.py   what of it a viewer wants, as a query says it
said.py        events in words, as many as a person can read
state.py       all tables, as of a frame; updates.py brings them up to date
feed.py        as long as somebody looks; viewer.py, stream.py: one who does
reduce.py      what becomes of a state by a frame; page/reduce.js: the same for the page
records        record_rows.py, and what their bytes can be taken for: decoding.py; search.py, tail.py: those that fit a
               filter, slice by slice: filters.py, sliced_stream.py
anatomy.py     a log taken apart: segments, indexes, batches byte by byte
source.py      what a broker or a cluster has to have for that
page_files.py  the files of the page (page/), as browsers get them

What must hold: reduce(state(t0), frames from t0 to t1) == state(t1). Nothing of it is imported, subscribed to or
computed before somebody looks, and no piece of work is longer than 2 ms. A frame has rows as they are when it is made
and not as they were in between, so whoever reads slowly gets fewer frames, and nothing is kept for him.
"""
