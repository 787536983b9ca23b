"""`python -m minibroker` is the command `minibroker`."""

import sys

from minibroker.cli import main

sys.exit(main())
