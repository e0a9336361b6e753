"""``python -m regard``: the command line."""

import sys

from regard.cli import main

sys.exit(main())
