"""Tools that read the disk and the wire for people: explain, dump, verify."""
