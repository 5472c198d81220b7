"""Calls outside of replica functions: in a single process, and with a worker that sends what no worker would."""

from __future__ import annotations

import json
from typing import Any, Callable, Tuple

import numpy as np
import pytest
import tensorflow as tf

import tf_strategies as tfs
from tf_strategies.collective.calls.calls import WorkerCalls
from tf_strategies.objects import encode

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def alone() -> tfs.CollectiveAllReduceStrategy:
    return tfs.CollectiveAllReduceStrategy(devices=["CPU:0"])


def test_a_single_worker_gets_its_own_values(alone) -> None:
    assert (alone.local_rank, alone.local_size, alone.is_chief) == (0, 1, True)
    value = {"a": np.arange(3), "b": (tf.constant([1.5]), 2)}
    for result in (alone.all_reduce(value, "product"), alone.broadcast(value)):
        assert isinstance(result["a"], np.ndarray) and isinstance(result["b"][0], tf.Tensor)
        tf.nest.map_structure(np.testing.assert_array_equal, result, value)
    assert alone.all_reduce(3, "mean") == 3.0 and type(alone.all_reduce(3, "mean")) is float
    np.testing.assert_array_equal(alone.all_gather(np.ones([2, 3])), np.ones([2, 3]))
    received, lengths = alone.all_to_all(tf.range(4))
    assert received.numpy().tolist() == [0, 1, 2, 3] and lengths.numpy().tolist() == [4]
    assert alone.broadcast_object({"a": None}) == {"a": None} and alone.all_gather_object(1) == [1]
    with alone.only_on_chief() as mine, pytest.raises(RuntimeError, match="in the block of only_on_chief"):
        assert mine
        alone.barrier()
    with alone.once_per_host() as mine:
        assert mine
    alone.barrier()
    part = alone.subgroup([0])
    assert part.all_reduce(1) == 1
    part.close()


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda calls: calls.all_reduce("a"), TypeError, "builtins.str"),
        (lambda calls: calls.all_reduce(np.array(["a"])), TypeError, "numpy.ndarray of dtype str"),
        (lambda calls: calls.all_reduce(tf.constant("a")), TypeError, "of dtype string"),
        (lambda calls: calls.all_reduce(tf.ragged.constant([[1], []])), TypeError, "RaggedTensor"),
        (lambda calls: calls.all_reduce(np.uint8(1)), TypeError, "cannot reduce uint8"),
        (lambda calls: calls.all_reduce(1 << 80), OverflowError, "int"),
        (lambda calls: calls.all_reduce(1, "average"), ValueError, "'product'; got 'average'"),
        (lambda calls: calls.all_gather(1.0), ValueError, "give it a dimension"),
        (lambda calls: calls.all_to_all(np.ones(3), [2]), ValueError, r"add up to 3; got \[2\]"),
        (lambda calls: calls.broadcast(1, root=True), ValueError, "from 0 to 0; got True"),
        (lambda calls: calls.broadcast_object(object()), TypeError, "cannot send a object"),
        (lambda calls: calls.subgroup([]), ValueError, "at least one rank"),
    ],
)
def test_wrong_arguments_are_refused(alone, call: Callable[[Any], Any], kind: type, text: str) -> None:
    with pytest.raises(kind, match=text):
        call(alone)


class LyingGroup:
    """The group of this worker and of one that sends a given text and given bytes."""

    rank, size, hosts, timeout, usable = 0, 2, ("a", "b"), 1.0, True
    is_newcomer = False

    def __init__(self, text: str, data: bytes = b"") -> None:
        self._codes = [*text.encode(), -1]
        self._data = list(data)

    def name_of(self, rank: int) -> str:
        return f"worker {rank}"

    def all_gather(self, tensor: tf.Tensor, name: str, layout: str = "") -> tf.Tensor:
        theirs = self._codes if name == "a call of the strategy" else self._data
        return tf.concat([tensor, tf.constant(theirs, tensor.dtype)], axis=0)

    def broadcast(self, tensor: tf.Tensor, name: str, root: int = 0) -> tf.Tensor:
        return tf.constant(self._data, tensor.dtype)


def with_peer(text: str, data: bytes = b"") -> Tuple[WorkerCalls, LyingGroup]:
    calls, group = WorkerCalls(), LyingGroup(text, data)
    calls._group = group
    return calls, group


def message(call: str, **note: Any) -> str:
    return json.dumps({"call": call, "error": "", "note": note})


@pytest.mark.parametrize(
    "text",
    ["", "no JSON", "[" * 100_000, "[]", '{"call": 1, "error": "", "note": {}}', '{"call": "barrier()"}'],
)
def test_a_message_that_no_worker_sends_is_an_error(text: str) -> None:
    calls, _group = with_peer(text)
    with pytest.raises(ValueError, match="worker 1 has sent a message that cannot be read"):
        calls.barrier()


@pytest.mark.parametrize("length", [None, -1, True, 1.5, "8", 1 << 31, 1 << 62])
def test_an_announced_length_is_checked_before_use(length: Any) -> None:
    note = {} if length is None else {"length": length}
    calls, _group = with_peer(message("all_gather_object()", **note))
    with pytest.raises(ValueError, match="worker 1 announces an object of"):
        calls.all_gather_object(1)
    calls, _group = with_peer(message("broadcast_object(root=1)", **note))
    with pytest.raises(ValueError, match="worker 1 announces an object of"):
        calls.broadcast_object(root=1)


def test_objects_that_are_not_as_announced_are_errors() -> None:
    calls, _group = with_peer(message("all_gather_object()", length=9), encode(7))
    with pytest.raises(ValueError, match="bytes instead of"):
        calls.all_gather_object(1)
    pickle = b"\x80\x04N."
    calls, _group = with_peer(message("all_gather_object()", length=len(pickle)), pickle)
    with pytest.raises(ValueError, match="no object with the tag"):
        calls.all_gather_object(1)
    calls, _group = with_peer(message("broadcast_object(root=1)", length=len(pickle)), pickle)
    with pytest.raises(ValueError, match="no object with the tag"):
        calls.broadcast_object(root=1)


def test_another_call_of_the_peer_is_shown_also_if_it_is_long() -> None:
    calls, _group = with_peer(
        message("broadcast({'a': float32[3], " + "'b': int32[2], " * 200 + "}, root=0)")
    )
    with pytest.raises(
        ValueError, match=r"worker 0 calls barrier\(\) \.\.\., but worker 1 calls broadcast"
    ) as refused:
        calls.barrier()
    assert len(str(refused.value)) < 2000
