"""TF_CONFIG of the tasks of a SLURM job step."""

from __future__ import annotations

import pytest

from tf_strategies.cluster import Cluster
from tf_strategies.launcher.slurm_task import tf_config

pytestmark = pytest.mark.any_line


def test_slurm_tasks_get_one_cluster_and_their_own_index() -> None:
    step = {"SLURM_STEP_NODELIST": "gpu[1-2]", "SLURM_STEP_TASKS_PER_NODE": "4(x2)"}
    for task in range(8):
        cluster = Cluster.from_tf_config(tf_config({**step, "SLURM_PROCID": str(task)}, 20000))
        assert (cluster.rank, cluster.size) == (task, 8)
        assert cluster.address_of(cluster.task) == f"gpu{1 + task // 4}:{20000 + task % 4}"


def test_without_slurm_or_with_other_counts_the_error_says_so() -> None:
    with pytest.raises(ValueError, match=r"SLURM_PROCID not set; start this program with srun"):
        tf_config({}, 20000)
    step = {
        "SLURM_STEP_NODELIST": "gpu[1-3]",
        "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
        "SLURM_PROCID": "0",
    }
    with pytest.raises(ValueError, match=r"names 3 nodes \(gpu\[1-3\]\) but the tasks of 2"):
        tf_config(step, 20000)
