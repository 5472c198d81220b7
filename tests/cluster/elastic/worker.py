"""What the workers of the tests of elastic training have in common: how they wait for others, tell their result, and end."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.support.endings import ended_with
from tests.support.processes import wait_until

__all__ = ["main", "tell_result", "wait_for_others"]


def wait_for_others(strategy: tfs.CollectiveAllReduceStrategy, size: int, plan: Dict[str, Any]) -> None:
    """Waits until those have joined that have started again, or one of them has ended with an error."""

    def here() -> bool:
        if strategy.size >= size or _ended_file(plan).exists():
            return True
        strategy._group.step_ended()
        return False

    wait_until(here, 60, "those that have started again")


def tell_result(
    strategy: tfs.CollectiveAllReduceStrategy, model: tf.keras.Model, history: Dict[str, Sequence[Any]]
) -> None:
    """Prints the result of a worker as one line of JSON."""
    weights: List[List[float]] = [np.asarray(each).ravel().tolist() for each in model.get_weights()]
    logs = {name: [float(each) for each in values] for name, values in history.items()}
    result = {"rank": strategy.rank, "size": strategy.size, "history": logs, "weights": weights}
    print("result", json.dumps(result), flush=True)


def main(train: Callable[[Dict[str, Any], bool], None]) -> None:
    """Trains as the arguments of the process say: a plan as JSON, and "again" for a worker that has started again."""
    plan, again = json.loads(sys.argv[1]), "again" in sys.argv
    try:
        train(plan, again)
    except (tf.errors.OpError, tfs.BootstrapError, ValueError, KeyError) as error:
        if again:
            _ended_file(plan).touch()
        elif isinstance(error, (ValueError, KeyError)):
            raise
        sys.exit(ended_with(error))


def _ended_file(plan: Dict[str, Any]) -> Path:
    return Path(plan["folder"], "ended")
