"""Cluster resolvers of `tf.distribute` as `cluster=`, and the resolver that a strategy offers."""

from __future__ import annotations

import json
import os
import types
from pathlib import Path
from typing import Any, Optional

import pytest
import tensorflow as tf

import tf_strategies as tfs

resolvers = tf.distribute.cluster_resolver
pytestmark = pytest.mark.smoke


def simple(spec: Any, role: Optional[str] = "worker", index: Optional[int] = 0) -> Any:
    return resolvers.SimpleClusterResolver(tf.train.ClusterSpec(spec), task_type=role, task_id=index)


KUBE_CONFIG = """
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: here, context: {cluster: here, user: here}}]
users: [{name: here, user: {}}]
"""


def kubernetes(*names: str) -> Any:
    pods = [
        types.SimpleNamespace(
            metadata=types.SimpleNamespace(name=name),
            status=types.SimpleNamespace(phase="Running", host_ip=f"10.0.0.{number}"),
        )
        for number, name in enumerate(names)
    ]
    client = types.SimpleNamespace(
        list_pod_for_all_namespaces=lambda label_selector: types.SimpleNamespace(items=pods)
    )
    return resolvers.KubernetesClusterResolver({"worker": ["job-name=train"]}, 2222, override_client=client)


def read(resolver: Any) -> tfs.Cluster:
    cluster = tfs.Cluster.from_resolver(resolver)
    assert cluster is not None
    return cluster


def test_tf_config_is_read_alike_by_its_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        os.environ,
        "TF_CONFIG",
        json.dumps(
            {"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": 1}}
        ),
    )
    assert read(resolvers.TFConfigClusterResolver()) == tfs.Cluster.from_tf_config()


def test_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {
        "PROCID": "2",
        "STEP_NUM_TASKS": "3",
        "STEP_NODELIST": "n[1-2]",
        "STEP_TASKS_PER_NODE": "2,1",
    }
    for name, value in variables.items():
        monkeypatch.setitem(os.environ, f"SLURM_{name}", value)
    jobs = {"chief": 1, "worker": 2}
    resolver = resolvers.SlurmClusterResolver(
        jobs, port_base=2222, gpus_per_node=2, gpus_per_task=1, auto_set_gpu=False
    )
    cluster = read(resolver)
    assert cluster.addresses == {"chief": ("n1:2222",), "worker": ("n1:2223", "n2:2222")}
    assert (str(cluster.task), cluster.rank) == ("worker 1", 2)


def test_kubernetes_needs_to_be_told_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # TensorFlow 2.15 reads it if the package kubernetes is installed, also for a client that it is given.
    config = tmp_path / ".kube" / "config"
    config.parent.mkdir()
    config.write_text(KUBE_CONFIG)
    monkeypatch.setenv("HOME", str(tmp_path))
    resolver = kubernetes("pod-a", "pod-b")
    with pytest.raises(
        tfs.ClusterConfigError, match=r"KubernetesClusterResolver .* task_type is None and task_id"
    ):
        read(resolver)
    resolver.task_type, resolver.task_id = "worker", 1
    assert (read(resolver).rank, read(resolver).addresses["worker"][1]) == (1, "10.0.0.1:2222")


@pytest.mark.parametrize(
    ("resolver", "text"),
    [
        (simple({"worker": ["a:1"]}, None), "task_type is None and task_id is 0"),
        (simple({"worker": ["a:1"]}, index=None), "task_type is 'worker' and task_id is None"),
        (
            simple({"worker": ["a:1"]}, index=1),
            "SimpleClusterResolver the task is worker 1, but the cluster has 1",
        ),
        (simple({"worker": ["a:1"]}, "ps"), "the cluster has no ps"),
        (simple({"worker": ["a:1"]}, "trainer"), '"trainer", which is unknown'),
        (simple({"worker": ["a"]}), 'address of worker 0 is "a"'),
        (simple({"worker": ["a:1", "a:1"]}), "same address"),
        (simple({"worker": {0: "a:1", 2: "b:1"}}), "lists no worker 1"),
        (simple({"ps": ["a:1"]}, "ps"), "has only ps"),
    ],
)
def test_resolvers_that_cannot_be_used_are_refused(resolver: Any, text: str) -> None:
    with pytest.raises(tfs.ClusterConfigError, match=text) as refused:
        read(resolver)
    assert "TF_CONFIG" not in str(refused.value)


def test_an_empty_resolver_means_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tfs.Cluster.from_resolver(simple({}, None, None)) is None
    # TF_CONFIG is not read where a resolver is given.
    monkeypatch.setitem(
        os.environ, "TF_CONFIG", '{"cluster": {"worker": ["a:1"]}, "task": {"type": "ps", "index": 0}}'
    )
    strategy = tfs.CollectiveAllReduceStrategy(cluster=simple({}, None, None))
    assert (strategy.rank, strategy.size, strategy.is_chief) == (0, 1, True)


STRATEGIES = (tfs.CollectiveAllReduceStrategy, tfs.AsyncParameterServerStrategy, tfs.SyncReplicasStrategy)


@pytest.mark.parametrize("kind", STRATEGIES)
def test_a_strategy_offers_the_resolver_of_its_cluster(kind: Any) -> None:
    resolver = simple({"worker": ["a:1"], "ps": ["b:1"]}, "evaluator", 0)
    if kind is not tfs.CollectiveAllReduceStrategy or hasattr(tf, "estimator"):
        strategy = kind(cluster=resolver)
        assert strategy.cluster_resolver is resolver
        assert (strategy.rank, strategy.is_chief) == (0, False)
        cluster = tfs.Cluster.from_resolver(resolver)
        offered = kind(cluster=cluster).cluster_resolver
        assert (offered.task_type, offered.task_id) == ("evaluator", 0)
        assert offered.cluster_spec() == resolver.cluster_spec()
    alone = kind()
    assert alone.is_chief and alone.cluster_resolver.task_type is None
    assert not alone.cluster_resolver.cluster_spec()


@pytest.mark.parametrize("kind", STRATEGIES)
def test_something_else_as_cluster_is_refused(kind: Any) -> None:
    with pytest.raises(
        tfs.OptionsError, match=r"tfs.Cluster or a tf.distribute ClusterResolver; got 'a:1,b:1'"
    ):
        kind(cluster="a:1,b:1")


@pytest.mark.parametrize("make", [tfs.CollectiveAllReduceStrategy, tfs.AsyncParameterServerStrategy])
def test_a_strategy_warns_of_a_task_of_slurm_without_a_cluster(
    make: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    monkeypatch.setenv("SLURM_PROCID", "2")
    make().close()
    assert "SLURM started this process as number 2 of 4, but TF_CONFIG is not set" in caplog.text
