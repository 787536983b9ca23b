"""One module for each API: its request and its response, all versions side by side."""
