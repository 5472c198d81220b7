"""What compressed gradients add up to, the obvious way: NumPy in float64, all workers in one process."""

from __future__ import annotations

from typing import Callable, List

import numpy as np

__all__ = ["DeepOracle", "InParts", "TopKOracle"]


def largest(values: np.ndarray, k: int) -> np.ndarray:
    """Where the k entries of largest magnitude are, of equal ones the first."""
    return np.argsort(-np.abs(values).ravel(), kind="stable")[:k]


class TopKOracle:
    """Top-k with error feedback over one gradient of each worker."""

    def __init__(
        self, workers: int, shape: tuple, ratio: Callable[[int], float], feedback: bool = True
    ) -> None:
        self.residuals = [np.zeros(shape) for _ in range(workers)]
        self._ratio = ratio
        self._feedback = feedback
        self._step = 0

    def step(self, gradients: List[np.ndarray]) -> np.ndarray:
        total = np.zeros(gradients[0].shape)
        for worker, gradient in enumerate(gradients):
            left = (gradient + self.residuals[worker]).ravel()
            places = largest(left, max(1, round(self._ratio(self._step) * left.size)))
            total.ravel()[places] += left[places]
            left[places] = 0
            if self._feedback:
                self.residuals[worker] = left.reshape(gradient.shape)
        self._step += 1
        return total


class DeepOracle:
    """Algorithm 4 of Lin et al. 2018, but for clipping, over one gradient of each worker."""

    def __init__(
        self, workers: int, shape: tuple, ratio: Callable[[int], float], momentum: float, nesterov: bool
    ) -> None:
        self.velocities = [np.zeros(shape) for _ in range(workers)]
        self.unsent = [np.zeros(shape) for _ in range(workers)]
        self._ratio, self._momentum, self._nesterov = ratio, momentum, nesterov
        self._step = 0

    def step(self, gradients: List[np.ndarray]) -> np.ndarray:
        total = np.zeros(gradients[0].shape)
        for worker, gradient in enumerate(gradients):
            velocity = self._momentum * self.velocities[worker] + gradient
            left = self.unsent[worker] + velocity
            if self._nesterov:
                velocity = self._momentum * (self.velocities[worker] + gradient)
                left = self.unsent[worker] + velocity + gradient
            k = max(1, round(self._ratio(self._step) * left.size))
            places = largest(left, k)
            total.ravel()[places] += left.ravel()[places]
            left.ravel()[places] = 0
            if k < left.size:
                velocity.ravel()[places] = 0
            self.velocities[worker], self.unsent[worker] = velocity, left
        self._step += 1
        return total


class InParts:
    """Each part of the rows of a gradient by itself, as where servers hold parts of a variable."""

    def __init__(self, oracles: list) -> None:
        self._oracles = oracles

    def step(self, gradients: List[np.ndarray]) -> np.ndarray:
        parts = [np.split(gradient, len(self._oracles)) for gradient in gradients]
        return np.concatenate([oracle.step(list(mine)) for oracle, mine in zip(self._oracles, zip(*parts))])
