"""``python -m haloscope`` is the command ``haloscope``."""

import sys

from ._command import main

sys.exit(main())
