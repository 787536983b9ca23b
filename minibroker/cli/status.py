"""Exit statuses, as grep and most tools have them."""

DONE, FAILED, USAGE = 0, 1, 2
INTERRUPTED = 130  # what shells expect of a program that ended by Ctrl-C
