"""A process that another launcher started as one of several is recognized."""

from __future__ import annotations

import logging

import pytest

from tf_strategies.other_launchers import LaunchedTask, launched_task, warn_if_alone

pytestmark = pytest.mark.any_line
STEP = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (STEP, LaunchedTask("SLURM", 2, 4)),
        ({"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_RANK": "0"}, LaunchedTask("Open MPI", 0, 8)),
        ({"PMI_SIZE": "2", "PMI_RANK": "1"}, LaunchedTask("MPI", 1, 2)),
        ({"WORLD_SIZE": "2", "RANK": "1"}, LaunchedTask("torchrun", 1, 2)),
        ({"HOROVOD_SIZE": "3", "HOROVOD_RANK": "1", **STEP}, LaunchedTask("Horovod", 1, 3)),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, None),  # a batch script
        ({"WORLD_SIZE": "1", "RANK": "0"}, None),
        ({"WORLD_SIZE": "4"}, None),
        ({"WORLD_SIZE": "many", "RANK": "0"}, None),
        ({}, None),
    ],
)
def test_the_variables_of_launchers_are_understood(environ, expected):
    assert launched_task(environ) == expected


@pytest.mark.parametrize(
    ("environ", "warned"), [(STEP, True), ({**STEP, "TF_CONFIG": "{}"}, False), ({}, False)]
)
def test_a_process_without_tf_config_among_others_is_warned(environ, warned, caplog):
    with caplog.at_level(logging.WARNING, "tf_strategies"):
        warn_if_alone(environ)
    assert ("SLURM started this process as number 2 of 4, but TF_CONFIG is not set" in caplog.text) == warned
