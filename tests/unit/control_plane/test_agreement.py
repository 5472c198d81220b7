"""Tests that members with different settings are told what differs."""

from __future__ import annotations

import json

from tf_strategies.cluster import Cluster
from tf_strategies.control_plane.agreement import disagreement, terms_of


def three_workers(index: int = 0) -> Cluster:
    task = {"type": "worker", "index": index}
    return Cluster.from_tf_config(json.dumps({"cluster": {"worker": ["a:1", "b:1", "c:1"]}, "task": task}))


def test_the_same_configuration_agrees_from_every_rank():
    assert terms_of(three_workers(0), {"a": (1, 2)}) == terms_of(three_workers(2), {"a": [1, 2]})


def test_disagreements_name_both_sides_and_values():
    first, second = (
        terms_of(three_workers(), {"a": 1, "b": 2}),
        terms_of(three_workers(), {"a": 1, "b": 3, "c": 4}),
    )
    text = disagreement("worker 0", first, "worker 1", second)
    differences = "option b: 2 against 3; option c: 'not set' against 4"
    assert text.startswith(f"worker 0 and worker 1 disagree about {differences}: start every worker")


def test_many_disagreements_are_counted():
    first, second = {str(n): 0 for n in range(9)}, {str(n): 1 for n in range(9)}
    assert "and 5 more: start" in disagreement("x", first, "y", second)
