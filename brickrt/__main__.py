"""`python -m brickrt`."""

import sys

from brickrt.cli import main

sys.exit(main())
