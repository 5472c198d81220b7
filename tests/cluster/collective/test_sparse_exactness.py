"""Embeddings train on P workers as in one process with the joint batch, and send each worker's rows of a word once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cluster.collective import sparse_exactness_worker as worker
from tests.support.processes import ProcessGroup, ReservedPorts


def gradients(weights: list, words: np.ndarray, labels: np.ndarray) -> list:
    """Of the mean cross-entropy of one joint batch, with respect to embedding, kernel and bias."""
    table, kernel, bias = weights
    mean = table[words].mean(axis=1)
    logits = mean @ kernel + bias
    chance = np.exp(logits - logits.max(axis=1, keepdims=True))
    chance /= chance.sum(axis=1, keepdims=True)
    chance[np.arange(len(labels)), labels] -= 1
    error = chance / len(labels)
    of_table = np.zeros_like(table)
    np.add.at(of_table, words, (error @ kernel.T)[:, np.newaxis] / words.shape[1])
    return [of_table, mean.T @ error, error.sum(axis=0)]


def joint_training(first: list, optimizer: str) -> list:
    """The weights after training on the joint batches, in NumPy."""
    words, labels = worker.data()
    weights = [weight.astype(np.float64) for weight in first]
    speeds = [np.zeros_like(weight) for weight in weights]
    squares = [np.zeros_like(weight) for weight in weights]
    for step, rows in enumerate(np.split(np.arange(len(words)), worker.STEPS), start=1):
        found = gradients(weights, words[rows], labels[rows])
        for i, (weight, gradient) in enumerate(zip(weights, found)):
            if optimizer == "adam":
                speeds[i] += 0.1 * (gradient - speeds[i])
                squares[i] += 0.001 * (gradient**2 - squares[i])
                rate = worker.RATE / 20 * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
                weight -= rate * speeds[i] / (np.sqrt(squares[i]) + worker.EPSILON)
                continue
            keep = worker.MOMENTUM if "momentum" in optimizer else 0.0
            moved = keep * speeds[i] - worker.RATE * gradient
            if optimizer == "lazy momentum" and i == 0:
                touched = np.unique(words[rows])
                speeds[i][touched] = moved[touched]
                weight[touched] += moved[touched]
            else:
                speeds[i] = moved
                weight += moved
    return weights


def rows_sent(size: int, local: int) -> list:
    """How many rows all workers send in each step, when each sends its rows of a word once."""
    words, _ = worker.data()
    steps = words.reshape(worker.STEPS, local, size, -1)  # a batch is dealt out in pieces for one replica
    return [sum(len(np.unique(step[:, rank])) for rank in range(size)) for step in steps]


@pytest.mark.parametrize(
    ("size", "local"),
    [pytest.param(2, 2, marks=pytest.mark.quick), pytest.param(3, 1, marks=pytest.mark.any_line)],
)
def test_training_with_an_embedding_equals_one_process_with_the_joint_batch(
    size: int, local: int, tmp_path: Path
) -> None:
    with ReservedPorts(size) as ports, ProcessGroup(tmp_path) as group:
        group.start_workers(
            ports.addresses, "tests.cluster.collective.sparse_exactness_worker", str(tmp_path), str(local)
        )
        assert set(group.wait_all(timeout=300).values()) == {0}
        kept = {path.stem: dict(np.load(path)) for path in sorted(tmp_path.glob("*.npz"))}
        runs = sorted({name.rsplit("-", 1)[0] for name in kept})
        assert {run.split("-")[1] for run in runs} == set(worker.OPTIMIZERS)
        assert len(kept) == len(runs) * size
        rows = rows_sent(size, local)
        assert max(rows) < 0.7 * worker.data()[0].size / worker.STEPS
        for run in runs:
            mine = kept[f"{run}-0"]
            for rank in range(1, size):
                for key, value in kept[f"{run}-{rank}"].items():
                    np.testing.assert_array_equal(value, mine[key], err_msg=f"{run} {key}, worker {rank}")
            expected = joint_training([mine[f"arr_{i}"] for i in range(3)], run.split("-")[1])
            for i, weight in enumerate(expected):
                assert np.abs(weight - mine[f"arr_{i}"]).max() > 1e-2
                np.testing.assert_allclose(mine[f"arr_{i + 3}"], weight, rtol=0, atol=1e-5, err_msg=run)
            sent = [count * (worker.WIDTH * 4 + 4) for count in rows]
            assert mine["gathered"].tolist() == sent[1:], run
