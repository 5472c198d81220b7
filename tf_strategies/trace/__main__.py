"""Runs `tfs-trace`."""

import sys

from tf_strategies.trace.main import main

sys.exit(main())
