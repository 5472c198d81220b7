"""One worker of test_trace.py: all-reduces of 4 MB, until worker 0 knows of a slow wire; a subgroup works, too."""

from __future__ import annotations

import logging
import sys
import time

import numpy as np

import tf_strategies as tfs
from tests.support.endings import ended_with

_MOST_SECONDS = 60


class Seen(logging.Handler):
    """Remembers whether a message was logged."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        if "is slow" in record.getMessage():
            self.text = record.getMessage()


def main() -> int:
    logging.basicConfig(level=logging.WARNING)
    seen = Seen()
    logging.getLogger("tf_strategies").addHandler(seen)
    strategy = tfs.CollectiveAllReduceStrategy(tfs.CommunicationOptions(timeout=60))
    part = strategy.subgroup([0, 2])
    values = np.ones(1 << 20, np.float32)
    end = time.monotonic() + _MOST_SECONDS
    try:
        while not strategy.all_reduce(float(bool(seen.text) or time.monotonic() > end)):
            strategy.all_reduce(values)
        if part is not None:
            assert part.all_reduce(1.0) == 2.0
        strategy.barrier()
    except Exception as error:
        return ended_with(error)
    print("ended", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
