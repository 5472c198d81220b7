"""TF_CONFIG of the pods of an Indexed Job."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tf_strategies.cluster import Cluster
from tf_strategies.launcher.kubernetes_task import tf_config

pytestmark = pytest.mark.any_line


def pod(index: int, name: str = "digits") -> dict[str, str]:
    return {"JOB_COMPLETION_INDEX": str(index), "HOSTNAME": f"{name}-{index}"}


@pytest.mark.parametrize("name", ["digits", "digits-workers-0"])  # of a Job, and of a job of a JobSet
def test_pods_get_one_cluster_and_their_own_index(name: str) -> None:
    for index in range(12):
        cluster = Cluster.from_tf_config(tf_config(pod(index, name), 12, "digits-pods", 2222))
        assert (cluster.rank, cluster.size) == (index, 12)
        assert cluster.address_of(cluster.task) == f"{name}-{index}.digits-pods:2222"


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"HOSTNAME": "digits-0"}, "JOB_COMPLETION_INDEX not set; .* completionMode: Indexed"),
        (pod(4), "JOB_COMPLETION_INDEX is 4, but --workers is 4"),
        ({**pod(1), "HOSTNAME": "host"}, "HOSTNAME is host, and does not end with the index of the pod, -1"),
    ],
)
def test_a_pod_of_another_kind_is_refused(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tf_config(environ, 4, "digits-pods", 2222)


def test_it_becomes_the_command() -> None:
    module = ["-m", "tf_strategies.launcher.kubernetes_task", "--workers", "2", "--service", "s"]
    command = [sys.executable, "-c", "import os; print(os.environ['TF_CONFIG'])"]
    done = subprocess.run(
        [sys.executable, *module, *command],
        env={**os.environ, **pod(1)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Cluster.from_tf_config(done.stdout.strip().splitlines()[-1]).rank == 1


@pytest.mark.parametrize(("index", "size"), [(0, 2), (1, 2), (3, 4)])
def test_pods_beyond_the_first_ones_list_all_before_them(index: int, size: int) -> None:
    cluster = Cluster.from_tf_config(tf_config(pod(index), 2, "pods", 2222, 4))
    assert (cluster.rank, cluster.size) == (index, size)


def test_there_are_not_more_pods_than_that() -> None:
    with pytest.raises(ValueError, match="is 4, but --max-workers is 4; give it the completions"):
        tf_config(pod(4), 2, "pods", 2222, 4)
    with pytest.raises(ValueError, match="--max-workers 1 is less than --workers 2"):
        tf_config(pod(0), 2, "pods", 2222, 1)
