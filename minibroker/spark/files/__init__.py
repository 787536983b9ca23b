"""Log directories: which files there are, which offsets a query reads of them, and their rows."""
