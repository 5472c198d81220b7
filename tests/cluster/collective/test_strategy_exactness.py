"""P workers with batch b train as one process with batch P*b, and all workers hold the same bits."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from tests.cluster.collective import strategy_exactness_worker as worker
from tests.support.processes import ProcessGroup, ReservedPorts


def joint_training(first: list) -> tuple:
    """SGD with momentum over the joint batches in NumPy: the weights after, and the mean of the losses."""
    x, y = worker.data()
    weights = [weight.astype(np.float64) for weight in first]
    speeds = [np.zeros_like(weight) for weight in weights]
    losses = []
    for rows in np.split(np.arange(len(x)), worker.STEPS):
        w1, b1, w2, b2 = weights
        hidden = np.tanh(x[rows] @ w1 + b1)
        logits = hidden @ w2 + b2
        logits -= logits.max(axis=1, keepdims=True)
        chance = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        losses.append(-np.log(chance[np.arange(len(rows)), y[rows]]).mean())
        error = chance.copy()
        error[np.arange(len(rows)), y[rows]] -= 1
        error /= len(rows)
        back = (error @ w2.T) * (1 - hidden**2)
        gradients = [x[rows].T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)]
        speeds = [
            worker.MOMENTUM * speed - worker.RATE * gradient for speed, gradient in zip(speeds, gradients)
        ]
        weights = [weight + speed for weight, speed in zip(weights, speeds)]
    return weights, float(np.mean(losses))


# Every Keras there is; with more than three workers only the schedule differs, and one Keras is enough.
EVERY_KERAS = ["keras", *(["tf_keras"] if importlib.util.find_spec("tf_keras") else [])]
MOST_WORKERS_WITH_EVERY_KERAS = 3
# Local replicas, and by them the algorithm: one each for more workers.
REPLICAS = {4: [2], 6: [1]}


# With more than two, what is new is the schedule: C++ that knows no TensorFlow.
@pytest.mark.parametrize(
    "size",
    [
        pytest.param(1, marks=[pytest.mark.quick, pytest.mark.any_line]),
        pytest.param(2, marks=[pytest.mark.quick, pytest.mark.smoke]),
        pytest.param(3, marks=[pytest.mark.quick, pytest.mark.any_line]),
        *(pytest.param(size, marks=pytest.mark.any_line) for size in (4, 6)),
    ],
)
def test_training_equals_one_process_with_the_joint_batch(size: int, tmp_path: Path) -> None:
    with ReservedPorts(size) as ports, ProcessGroup(tmp_path) as group:
        module = "tests.cluster.collective.strategy_exactness_worker"
        modules = EVERY_KERAS if size <= MOST_WORKERS_WITH_EVERY_KERAS else ["keras"]
        replicas = REPLICAS.get(size, [1, 2])
        arguments = [str(tmp_path), ",".join(map(str, replicas)), *modules]
        if size == 1:
            group.start_preloaded("alone", module, *arguments)
        else:
            group.start_workers(ports.addresses, module, *arguments)
        assert set(group.wait_all(timeout=400).values()) == {0}
        kept = {path.stem: dict(np.load(path)) for path in sorted(tmp_path.glob("*.npz"))}
        runs = sorted({name.rsplit("-", 1)[0] for name in kept})
        assert any("predicted" in run for run in kept.values()) == (2 in replicas)
        assert runs == sorted(f"{name}-{local}" for name in modules for local in replicas)
        assert len(kept) == len(runs) * size
        for run in runs:
            workers = [kept[f"{run}-{rank}"] for rank in range(size)]
            for rank, other in enumerate(workers):
                for key in set(other) - {"algorithms"}:
                    np.testing.assert_array_equal(
                        other[key], workers[0][key], err_msg=f"{run} {key}, worker {rank}"
                    )
            mine = workers[0]
            weights, loss = joint_training([mine[f"arr_{i}"] for i in range(4)])
            for i, weight in enumerate(weights):
                np.testing.assert_allclose(mine[f"arr_{i + 4}"], weight, rtol=0, atol=1e-5, err_msg=run)
            assert mine["logs"][0] == pytest.approx(loss, abs=1e-5)
            if "predicted" in mine:
                x, _ = worker.data()
                hidden = np.tanh(x[: len(mine["predicted"])] @ weights[0] + weights[1])
                assert len(mine["predicted"]) == 5 * worker.BATCH
                np.testing.assert_allclose(mine["predicted"], hidden @ weights[2] + weights[3], atol=1e-3)
            if size > 1:
                used = {"1": "binary_blocks", "2": "recursive_doubling"}[run.rpartition("-")[2]]
                assert list(mine["algorithms"]) == [used]
