"""What compressed gradients add up to, the obvious way: NumPy in float64, all workers in one process."""

from __future__ import annotations

import math
from typing import Callable, List, Tuple

import numpy as np

__all__ = ["DeepOracle", "InParts", "PowerOracle", "TopKOracle", "largest_by_region", "regions_of"]


def largest(values: np.ndarray, k: int) -> np.ndarray:
    """Where the k entries of largest magnitude are, of equal ones the first."""
    return np.argsort(-np.abs(values).ravel(), kind="stable")[:k]


def regions_of(places: List[np.ndarray], k: int, elements: int) -> List[int]:
    """Returns the offsets of the regions. Each worker sends entries at ascending places."""
    size = len(places)
    stride = max(1, math.ceil(k / min(2 * (size + 8), 4096 // size)))
    samples = sorted(
        index
        for rank, each in enumerate(places)
        for index in each[(2 * rank + 1) * stride // (2 * size) :: stride]
    )
    if not samples:
        return [0, *[elements] * size]
    return [0, *(samples[math.ceil(len(samples) * rank / size) - 1] + 1 for rank in range(1, size)), elements]


def largest_by_region(
    sent: List[np.ndarray], places: List[np.ndarray], k: int
) -> Tuple[np.ndarray, List[np.ndarray]]:
    """Of the sum of vectors [n], one of each worker, the k largest entries; and [n] for each what it adds up and holds back.

    A worker sends what it has at the given places. Each takes its share of k, rounded up, from its own part of the sum.
    """
    total, size = sum(sent), len(sent)
    applied = np.zeros_like(total)
    held_back = [np.zeros_like(total) for _ in sent]
    regions = regions_of(places, k, total.size)
    for worker, (begin, end) in enumerate(zip(regions, regions[1:])):
        chosen = begin + largest(total[begin:end], -(-k // size))
        held_back[worker][begin:end] = total[begin:end]
        held_back[worker][chosen] = 0
        applied[chosen] = total[chosen]
    return applied, held_back


class PowerOracle:
    """PowerSGD with error feedback over one gradient of each worker, from given first factors [columns, rank]."""

    def __init__(self, workers: int, shape: Tuple[int, int], factor: np.ndarray) -> None:
        self._left_out, self._factor = [np.zeros(shape) for _ in range(workers)], factor.astype(np.float64)

    def step(self, gradients: List[np.ndarray]) -> np.ndarray:
        wanted = [gradient + left for gradient, left in zip(gradients, self._left_out)]
        projection, _ = np.linalg.qr(sum(each @ self._factor for each in wanted))
        self._left_out = [each - projection @ (projection.T @ each) for each in wanted]
        self._factor = sum(wanted).T @ projection
        return projection @ self._factor.T


class TopKOracle:
    """Top-k with error feedback over one gradient of each worker."""

    def __init__(
        self,
        workers: int,
        shape: tuple,
        ratio: Callable[[int], float],
        feedback: bool = True,
        exchange: str = "all_gather",
    ) -> None:
        self._exchange = exchange
        self.residuals = [np.zeros(shape) for _ in range(workers)]
        self._ratio = ratio
        self._feedback = feedback
        self._step = 0

    def step(self, gradients: List[np.ndarray]) -> np.ndarray:
        shape = gradients[0].shape
        k = max(1, round(self._ratio(self._step) * gradients[0].size))
        sent, chosen = [], []
        for worker, gradient in enumerate(gradients):
            left = (gradient + self.residuals[worker]).ravel()
            places = largest(left, k)
            chosen.append(np.sort(places))
            sent.append(np.zeros(left.size))
            sent[-1][places] = left[places]
            left[places] = 0
            if self._feedback:
                self.residuals[worker] = left.reshape(shape)
        self._step += 1
        residuals = self.residuals if self._feedback else []
        return _applied(sent, chosen, k, self._exchange, residuals).reshape(shape)


class DeepOracle:
    """Algorithm 4 of Lin et al. 2018, but for clipping, over one gradient of each worker."""

    def __init__(
        self,
        workers: int,
        shape: tuple,
        ratio: Callable[[int], float],
        momentum: float,
        nesterov: bool,
        exchange: str = "all_gather",
    ) -> None:
        self._exchange = exchange
        self.velocities = [np.zeros(shape) for _ in range(workers)]
        self.unsent = [np.zeros(shape) for _ in range(workers)]
        self._ratio, self._momentum, self._nesterov = ratio, momentum, nesterov
        self._step = 0

    def step(self, gradients: List[np.ndarray]) -> np.ndarray:
        shape = gradients[0].shape
        k = max(1, round(self._ratio(self._step) * gradients[0].size))
        sent, chosen = [], []
        for worker, gradient in enumerate(gradients):
            velocity = self._momentum * self.velocities[worker] + gradient
            left = self.unsent[worker] + velocity
            if self._nesterov:
                velocity = self._momentum * (self.velocities[worker] + gradient)
                left = self.unsent[worker] + velocity + gradient
            places = largest(left, k)
            chosen.append(np.sort(places))
            sent.append(np.zeros(left.size))
            sent[-1][places] = left.ravel()[places]
            left.ravel()[places] = 0
            if k < left.size:
                velocity.ravel()[places] = 0
            self.velocities[worker], self.unsent[worker] = velocity, left
        self._step += 1
        return _applied(sent, chosen, k, self._exchange, self.unsent).reshape(shape)


def _applied(
    sent: List[np.ndarray], places: List[np.ndarray], k: int, exchange: str, residuals: List[np.ndarray]
) -> np.ndarray:
    """What is applied of vectors that workers send; what else is added up goes to their residuals."""
    if exchange == "all_gather":
        return sum(sent)
    applied, held_back = largest_by_region(sent, places, k)
    for residual, more in zip(residuals, held_back):
        residual += more.reshape(residual.shape)
    return applied


class InParts:
    """Each part of the rows of a gradient by itself, as where servers hold parts of a variable."""

    def __init__(self, oracles: list) -> None:
        self._oracles = oracles

    def step(self, gradients: List[np.ndarray]) -> np.ndarray:
        parts = [np.split(gradient, len(self._oracles)) for gradient in gradients]
        return np.concatenate([oracle.step(list(mine)) for oracle, mine in zip(self._oracles, zip(*parts))])
