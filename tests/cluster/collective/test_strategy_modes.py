"""Layers and modes of training, in real processes, on the Keras that is in use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.collective.modes import MODULES
from tests.support.budgets import this_line
from tests.support.checks import names_of_checks, require_checks

# Checks that trace many models run with one number of local replicas.
ONLY_WITH_REPLICAS = {
    "check_mixed_precision_trains_alike": 1,
    "check_a_custom_train_step": 1,
    "check_a_function_of_a_step_that_computes_gradients": 1,  # TensorFlow refuses it with several
    "check_functions_of_one_name_that_later_share_a_step": 1,
    "check_steps_that_divide_by_the_global_batch": 2,
    "check_fit_evaluate_freeze_and_fit_again": 2,
    "check_a_single_batch_takes_little_longer_than_a_step": 1,
    "check_run_eagerly_and_steps_per_execution_change_nothing": 2,
}
# These compare workers with each other, and depend little on Keras.
ONLY_ON_NEWEST = {
    "check_counters_that_replicas_write",
    "check_weights_set_on_one_worker_only",
    "check_what_a_drift_check_costs",
    "check_settings_of_one_worker_only",
    "check_backups_are_refused_where_weights_differ",
    "check_batches_of_many_sizes_train_as_in_one_process",
}


@pytest.mark.parametrize(
    ("workers", "replicas"),
    [pytest.param(3, 1, marks=pytest.mark.any_line), pytest.param(2, 2, marks=pytest.mark.keras)],
)
def test_layers_and_modes_on_workers_with_so_many_replicas(
    workers: int, replicas: int, tmp_path: Path
) -> None:
    every = [name for module in MODULES for name in names_of_checks(module)]
    assert {*ONLY_WITH_REPLICAS, *ONLY_ON_NEWEST} < set(every)
    left_out = set() if this_line() == "newest" else ONLY_ON_NEWEST
    names = [
        name for name in every if ONLY_WITH_REPLICAS.get(name, replicas) == replicas and name not in left_out
    ]
    require_checks(
        tmp_path,
        "tests.cluster.collective.strategy_modes_worker",
        str(replicas),
        *names,
        workers=workers,
        expected=names,
    )
