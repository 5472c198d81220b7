"""Runs tfs-doctor as `python -m tf_strategies.doctor`."""

import sys

from tf_strategies.doctor.main import main

if __name__ == "__main__":
    sys.exit(main())
