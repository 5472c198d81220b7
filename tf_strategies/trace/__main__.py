"""Runs `tfs-trace`."""

import sys

from tf_strategies.trace.main import main

if __name__ == "__main__":
    sys.exit(main())
