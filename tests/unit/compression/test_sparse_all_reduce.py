"""Sums of which each worker gets the largest entries only: several workers in one process, against NumPy."""

from __future__ import annotations

from typing import Callable, Dict, List, Sequence, Tuple

import numpy as np
import pytest
import tensorflow as tf

from tests.support.compression_oracle import largest_by_region, regions_of
from tests.support.thread_workers import ThreadWorker, on_threads
from tf_strategies.compression.balanced_regions import balanced_regions
from tf_strategies.compression.entry_lists import SelectedEntries, joined
from tf_strategies.compression.sparse_all_reduce import lists_for
from tf_strategies.native.entries import merge_entries
from tf_strategies.native.top_k import top_k

ELEMENTS = [700, 1, 301, 0, 5]
SIZES = [1, 2, 3, 4, 6]


def gradients_of(rank: int, elements: Sequence[int], unit: float = 1 / 64) -> List[np.ndarray]:
    """Small multiples of a unit, so that magnitudes tie and sums are exact; half of each is the same on all workers."""
    draw = np.random.default_rng
    return [
        ((draw(number).integers(-64, 65, n) + draw([number, rank]).integers(-64, 65, n)) * unit).astype(
            "float32"
        )
        for number, n in enumerate(elements)
    ]


def exchange(
    worker: ThreadWorker,
    elements: Sequence[int],
    counts: Sequence[int],
    value_format: str = "float32",
    unit: float = 1 / 64,
) -> tuple:
    """The sums that come back, what is kept of each gradient, what was selected, [N] each; and the places of that."""
    gradients = gradients_of(worker.rank, elements, unit)
    found = [top_k(each, tf.zeros_like(each), k) for each, k in zip(gradients, counts)]
    selected = [
        SelectedEntries(each.indices, each.values, n, k) for each, n, k in zip(found, elements, counts)
    ]
    lists = lists_for("reduce_scatter", selected, value_format, worker)
    totals = lists.sum_over(worker)
    kept = [lists.unsent(number, each.remaining) for number, each in enumerate(found)]
    sent = np.concatenate(gradients) - np.concatenate([each.remaining for each in found])
    return np.concatenate(totals), np.concatenate(kept), sent, joined(selected).indices.numpy()


def sent_of(results: Sequence[tuple]) -> Tuple[List[np.ndarray], List[np.ndarray]]:
    return [sent for _, _, sent, _ in results], [places for *_, places in results]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("elements", "counts"),
    [(ELEMENTS, [70, 1, 30, 0, 2]), (ELEMENTS, ELEMENTS), ([3], [2]), ([40, 0], [0, 0]), ([2000], [1])],
)
def test_the_largest_sums_of_each_region_come_back(size: int, elements: list, counts: list) -> None:
    results = on_threads(size, lambda worker: exchange(worker, elements, counts))
    applied, held_back = largest_by_region(*sent_of(results), sum(counts))
    if size == 1:  # what is selected is what comes back, wherever it lies
        applied, held_back = results[0][2], [np.zeros_like(applied)]
    for rank, (total, kept, sent, _) in enumerate(results):
        np.testing.assert_array_equal(total, applied)
        unselected = np.concatenate(gradients_of(rank, elements)) - sent
        np.testing.assert_array_equal(kept, unselected + held_back[rank])
    assert np.count_nonzero(applied) < sum(counts) + size


@pytest.mark.parametrize("value_format", ["float16", "int8"])
@pytest.mark.parametrize("size", SIZES)
def test_what_rounding_changes_is_kept(size: int, value_format: str) -> None:
    counts = [n // 3 for n in ELEMENTS]
    results = on_threads(size, lambda worker: exchange(worker, ELEMENTS, counts, value_format, 0.1))
    for total, *_ in results:
        np.testing.assert_array_equal(total.view(np.int32), results[0][0].view(np.int32))
    assert 0 < np.count_nonzero(results[0][0]) < sum(counts) + size
    everything = sum(np.concatenate(gradients_of(rank, ELEMENTS, 0.1)) for rank in range(size))
    kept = sum(kept for _, kept, *_ in results)
    np.testing.assert_allclose(results[0][0] + kept, everything, rtol=0, atol=1e-5)
    exact, _ = largest_by_region(*sent_of(results), sum(counts))
    assert np.abs(results[0][0] - exact).max() > 0, "nothing was rounded"


def test_sums_that_overflow_are_seen_by_all_and_kept_by_none() -> None:
    def work(worker: ThreadWorker) -> tuple:
        large = SelectedEntries(tf.constant([3], tf.int64), tf.constant([3e38]), 8, 1)
        lists = lists_for("reduce_scatter", [large], "float16", worker)
        total = lists.sum_over(worker)[0].numpy()
        return total, lists.unsent(0, tf.zeros([8])).numpy()

    for total, kept in on_threads(2, work):
        assert np.isinf(total[3]) and np.count_nonzero(total) == 1
        assert np.isfinite(kept).all()


def test_bytes_do_not_grow_with_the_workers() -> None:
    k = 3000

    def work(worker: ThreadWorker) -> int:
        exchange(worker, [20 * k], [k])
        return worker.bytes_received

    received = {size: max(on_threads(size, work)) for size in (2, 8, 16)}
    entry = 4 + 6 / 8  # a value, and a gap of about so many bits
    assert k * entry < received[2] < 1.2 * k * entry, received
    samples = 16 * 48 * 4  # indices of 4 bytes, which regions are made by
    assert received[16] < 2.2 * k * entry + samples + 16 * 100, received


def drawn(rank: int, k: int, begin: int, end: int) -> np.ndarray:
    return np.sort(begin + np.random.default_rng(rank).choice(end - begin, k, replace=False))


LENGTH = (
    5000  # of a vector; a skew is the places of the entries of a worker, by rank, number of workers, and k
)
FREQUENCIES = 1 / np.arange(1, LENGTH + 1) / np.sum(1 / np.arange(1, LENGTH + 1))
SKEWS: Dict[str, Callable[[int, int, int], np.ndarray]] = {
    "even": lambda rank, size, k: drawn(rank, k, 0, LENGTH),
    "the same for all": lambda rank, size, k: drawn(0, k, 0, LENGTH),
    "the first places": lambda rank, size, k: np.arange(k),
    "a narrow range near the end": lambda rank, size, k: drawn(rank, k, LENGTH - k - 40, LENGTH - 20),
    "a range for each": lambda rank, size, k: np.arange(k) + rank * k,
    "a range for each, in reverse": lambda rank, size, k: np.arange(k) + (size - rank) * k,
    "both ends": lambda rank, size, k: np.r_[: k * rank // size, LENGTH - k + k * rank // size : LENGTH],
    "one worker apart": lambda rank, size, k: np.arange(k) + (LENGTH - k if rank == 1 else 0),
    "few are frequent": lambda rank, size, k: np.sort(
        np.random.default_rng(rank).choice(LENGTH, k, replace=False, p=FREQUENCIES)
    ),
}


@pytest.mark.parametrize("skew", SKEWS)
@pytest.mark.parametrize("size", [2, 3, 4, 6])
def test_a_worker_receives_two_and_a_half_k_wherever_entries_lie(size: int, skew: str) -> None:
    parts = [1700, 0, 3, LENGTH - 1703]

    def work(worker: ThreadWorker, k: int, mine: np.ndarray, values: np.ndarray) -> tuple:
        whole = np.zeros(LENGTH, "float32")
        whole[mine] = values
        starts = np.cumsum([0, *parts])
        selected = [
            SelectedEntries(
                tf.constant(inside - start, tf.int64), tf.constant(whole[inside]), int(stop - start), k // 4
            )
            for start, stop in zip(starts, starts[1:])
            for inside in [mine[(start <= mine) & (mine < stop)]]
        ]
        lists = lists_for("reduce_scatter", selected, "float32", worker)
        total = np.concatenate(lists.sum_over(worker))
        kept = [lists.unsent(number, tf.zeros([each.elements])) for number, each in enumerate(selected)]
        return total, np.concatenate(kept), whole, worker.received

    for k in (4, 60, 600):
        places = [SKEWS[skew](rank, size, k) for rank in range(size)]
        values = np.random.default_rng(k).integers(-64, 65, (size, k)) / 64
        results = on_threads(size, lambda worker: work(worker, k, places[worker.rank], values[worker.rank]))
        applied, held_back = largest_by_region([whole for _, _, whole, _ in results], places, k)
        regions = regions_of(places, k, LENGTH)
        for rank, (total, kept, _, (_, entries, sums)) in enumerate(results):
            np.testing.assert_array_equal(total, applied)
            np.testing.assert_array_equal(kept, held_back[rank])
            inside = regions[rank + 1] - regions[rank]
            received = sum(len(merge_entries(each, inside).indices) for each in entries)
            received += sum(len(merge_entries(each, LENGTH).indices) for each in sums)
            assert received <= 2.5 * k + 2 * size + 1, (k, rank, received)


@pytest.mark.parametrize("size", [2, 50])
def test_samples_bound_the_regions_of_long_vectors(size: int) -> None:
    k, elements = 1000, 1 << 40
    places = [(1 << 40) - 1 - k - rank + np.arange(k) for rank in range(size)]

    def work(worker: ThreadWorker) -> tuple:
        mine = SelectedEntries(tf.constant(places[worker.rank]), tf.zeros([k]), elements, k)
        return balanced_regions(mine, worker, "places").numpy(), worker.bytes_received

    expected = regions_of(places, k, elements)
    for offsets, received in on_threads(size, work):
        np.testing.assert_array_equal(offsets, expected)
        assert received <= 4096 * 8
    largest = np.diff(np.sum([np.searchsorted(each, expected) for each in places], axis=0)).max()
    stride = -(-k // min(2 * (size + 8), 4096 // size))
    assert largest <= k + (size + 1) * stride


def test_no_region_is_left_out_where_there_are_more_workers_than_entries() -> None:
    def work(worker: ThreadWorker) -> np.ndarray:
        residual, applied = tf.zeros([12]), np.zeros(12)
        for _ in range(12):
            found = top_k(tf.ones([12]), residual, 1)
            lists = lists_for(
                "reduce_scatter", [SelectedEntries(found.indices, found.values, 12, 1)], "float32", worker
            )
            applied += lists.sum_over(worker)[0].numpy()
            residual = lists.unsent(0, found.remaining)
        return applied

    for applied in on_threads(4, work):
        assert (applied > 0).all(), applied
