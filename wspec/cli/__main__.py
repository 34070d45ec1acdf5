"""`python -m wspec.cli`."""

import sys

from wspec.cli import main

sys.exit(main())
