"""What of a batch is compared between workers, and what a difference means."""

from __future__ import annotations

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from tf_strategies._tf import compat  # noqa: E402
from tf_strategies.collective.input.batch_check import BatchCheck, Sample, cells, differ, is_real, row_numbers  # noqa: E402

Dataset = tf.data.Dataset
ORDER, OTHER = [1.0, 2.0, 3.0], [3.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ([(False, [5, 6, 7])], [(False, [5, 6, 7])], 0),
        ([(False, [5, 6, 7])], [(False, [6, 5, 7])], 1),
        ([(True, ORDER)], [(True, OTHER)], 1),
        ([(True, ORDER), (False, [5, 6, 7])], [(True, OTHER), (False, [5, 6, 7])], 0),  # augmented
        ([(True, ORDER), (False, [5, 5, 5])], [(True, OTHER), (False, [5, 5, 5])], 1),  # labels say nothing
        ([(True, ORDER), (True, ORDER)], [(True, OTHER), (True, OTHER)], 1),  # an autoencoder: one component
        ([(True, ORDER), (True, OTHER)], [(True, OTHER), (True, ORDER)], 2),
        ([(True, ORDER)], [(True, [1.0 + 1e-7, 2.0, 3.0])], 0),  # another CPU
        ([(True, ORDER), (True, ORDER)], [(True, [1.0 + 1e-7, 2.0, 3.0]), (True, OTHER)], 1),
        ([(True, ORDER)], [(True, ORDER[:2])], 1),
    ],
)
def test_what_shows_that_rows_differ(first, second, found: int) -> None:
    samples = [[Sample(*each) for each in side] for side in (first, second)]
    assert len(differ(*samples)) == found


def sample(rows: np.ndarray) -> Sample:
    return Sample(is_real(rows), row_numbers(rows).tolist(), cells(rows).tolist())


@pytest.mark.parametrize("padding", [0, 20])
def test_tokens_masked_at_random_are_the_same_rows(padding: int) -> None:
    rng = np.random.default_rng(3)
    tokens = rng.integers(5, 3000, [40, 64])
    tokens[:, 64 - padding :] = 0

    def masked(rows: np.ndarray) -> list:
        hidden = rng.random(rows.shape) < 0.15
        return [sample(np.where(hidden, 4, rows)), sample(np.where(hidden, rows, -100))]

    assert not differ(masked(tokens), masked(tokens))
    assert len(differ(masked(tokens), masked(rng.permutation(tokens)))) == 2


def test_samples_of_other_components_are_refused() -> None:
    with pytest.raises(ValueError, match="different components"):
        differ([Sample(True, ORDER)], [Sample(False, [1, 2, 3])])


@pytest.mark.parametrize(
    "rows",
    [
        np.arange(12.0).reshape(4, 3).astype("float16"),
        np.eye(4, dtype="float32"),
        np.arange(4 * 5000, dtype="uint8").reshape(4, 50, 100),
        np.arange(4, dtype="int64"),
        np.array([[True, False], [False, True], [True, True], [False, False]]),
        tf.cast(tf.eye(4), tf.bfloat16).numpy(),
        np.array(["a", "b", "c", "ab"]),
        np.array([["a", "b"], ["b", "a"], ["ab", ""], ["", "ab"]]),
    ],
)
def test_rows_that_differ_have_other_numbers(rows: np.ndarray) -> None:
    rows = tf.constant(rows).numpy()
    numbers = row_numbers(rows)
    assert len(set(numbers.tolist())) == 4
    np.testing.assert_array_equal(row_numbers(rows[::-1]), numbers[::-1])


@pytest.mark.parametrize(
    "value", [tf.zeros([0, 3]), tf.zeros([0], tf.string), tf.zeros([], tf.int32), tf.zeros([5, 0])]
)
def test_odd_shapes_have_numbers(value) -> None:
    assert row_numbers(np.asarray(value)).ndim == 1


def test_large_batches_are_sampled() -> None:
    assert row_numbers(np.ones([1000, 7])).shape[0] == 32


class Listener:
    """A group that keeps what is told to it."""

    def __init__(self) -> None:
        self.told: list = []

    def new_topic(self, compare_on_first) -> str:
        self.compare_on_first = compare_on_first
        return "3"

    def compare(self, topic: str, key: str, payload) -> None:
        self.told.append((key, payload))


def elements():
    ragged = tf.ragged.constant([[1.0], [2.0, 3.0], [4.0], [5.0, 6.0, 7.0]] * 3)
    plain = Dataset.from_tensor_slices({"a": tf.range(12), "r": ragged, "s": tf.sparse.eye(12)})
    yield plain.batch(4)
    yield Dataset.range(12).batch(4, drop_remainder=True).prefetch(1)
    yield (
        Dataset.from_tensor_slices((tf.zeros([12, 2]), (tf.range(12), tf.constant(["x"] * 12))))
        .batch(5)
        .repeat(2)
    )


@pytest.mark.parametrize("dataset", list(elements()))
def test_a_watched_dataset_stays_what_it_was(dataset) -> None:
    listener = Listener()
    check = BatchCheck(listener, dataset)
    watched = check.watch(dataset)
    assert watched is not dataset and watched.element_spec == dataset.element_spec
    assert int(watched.cardinality()) == int(dataset.cardinality())
    for _ in range(2):
        for mine, before in zip(watched, dataset):
            for one, other in zip(
                *(tf.nest.flatten(each, expand_composites=True) for each in (mine, before))
            ):
                np.testing.assert_array_equal(one, other)
    assert [key.rpartition(" ")[2] for key, _ in listener.told] == ["0", "1", "0", "1"]
    assert len({key for key, _ in listener.told}) == 4
    samples = [payload for _, payload in listener.told]
    assert samples[0] == samples[2] and samples[1] == samples[3]
    assert listener.compare_on_first()("0 0", ("worker 0", "worker 1"), (samples[0], samples[2])) is None


def test_components_with_other_numbers_of_rows_end_the_iteration() -> None:
    def of_rows(dense: int, ragged: int) -> Dataset:
        element = (tf.ones([dense, 2]), tf.ragged.constant([[1]] * ragged), tf.sparse.eye(dense))
        return Dataset.from_tensors(element).concatenate(
            Dataset.from_tensors((tf.ones([2, 2]), *element[1:]))
        )

    for dataset, ends in ((of_rows(2, 2), False), (of_rows(3, 2), True)):
        check = BatchCheck(Listener(), dataset)
        if not ends:
            assert len(list(check.watch(dataset))) == 2
            continue
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="the components of a batch have different numbers of rows"
        ):
            list(check.watch(dataset))


def test_an_iterator_that_is_made_and_not_used_counts() -> None:
    keys = []
    for seed in range(2):
        tf.random.set_seed(seed)
        listener = Listener()
        check = BatchCheck(listener, Dataset.range(4).batch(2))
        watched = check.watch(Dataset.range(4).batch(2))
        begun = [iter(watched) for _ in range(3)]
        for iterator in begun[:: 2 - seed]:  # the second worker uses the one between as well
            next(iterator)
        keys.append([key for key, _ in listener.told if key.endswith(" 0")])  # more may be read ahead
    assert keys[0] == keys[1][::2]


def test_a_difference_names_both_workers_and_the_remedy() -> None:
    dataset, listener = Dataset.range(12).batch(4), Listener()
    check = BatchCheck(listener, dataset)
    said = check._compare("3 1", ("worker 0", "worker 2"), ([[False, [5, 6], []]], [[False, [6, 5], []]]))
    for text in (
        "worker 0 and worker 2 read different data",
        "batch 1 of an iteration",
        "seed=",
        "PyDataset",
        "OFF",
    ):
        assert text in said


def test_real_numbers_alone_that_may_be_augmented_are_warned_about_once(caplog) -> None:
    dataset = Dataset.range(12).map(lambda i: tf.cast(i, tf.float32) + tf.random.normal([])).batch(4)
    check = BatchCheck(Listener(), dataset)
    for _ in range(2):
        assert check._compare("0 0", ("worker 0", "worker 1"), ([[True, ORDER]], [[True, OTHER]])) is None
    assert caplog.text.count("Possible problem: worker 0 and worker 1 read different data") == 1
    assert check._compare("0 0", ("worker 0", "worker 1"), ([[False, [1, 2]]], [[False, [2, 1]]]))


def test_operations_of_functions_are_found_at_any_depth() -> None:
    def inner(_: tf.Tensor) -> tf.data.Dataset:
        return Dataset.range(3).map(lambda i: tf.cond(i > 1, lambda: tf.random.uniform([]), lambda: 0.0))

    found = compat.operations_of_functions(Dataset.range(2).interleave(inner).batch(2).prefetch(1))
    assert "RandomUniform" in found
