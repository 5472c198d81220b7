"""Tests tensors that workers take over from another one, several in a message."""

from __future__ import annotations

from typing import Dict, List

import numpy as np
import pytest
import tensorflow as tf

from tf_strategies.collective.values_of_worker import values_of_worker

pytestmark = pytest.mark.any_line


def values(seed: int) -> Dict[str, tf.Tensor]:
    draw = np.random.default_rng(seed)
    return {
        "kernel": tf.constant(draw.normal(size=[3, 5]), tf.float32),
        "step": tf.constant(draw.integers(9), tf.int64),
        "half": tf.constant(draw.normal(size=[4]), tf.float16),
        "large": tf.constant(draw.normal(size=[100, 3]), tf.float32),
        "none": tf.constant(draw.normal(size=[0, 3]), tf.float32),
        "flag": tf.constant(bool(seed % 2)),
        "bias": tf.constant(draw.normal(size=[5]), tf.float32),
    }


@pytest.mark.parametrize(("most", "messages"), [(1 << 20, 4), (1000, 5), (1, 7)])
def test_all_values_are_those_of_the_other_worker(most: int, messages: int) -> None:
    sent: List[tf.Tensor] = []

    def send(value: tf.Tensor, number: int) -> tf.Tensor:
        assert number == len(sent)
        sent.append(value)
        return value

    def receive(value: tf.Tensor, number: int) -> tf.Tensor:
        assert (value.shape, value.dtype) == (sent[number].shape, sent[number].dtype)
        return sent[number]

    wanted = values(1)
    values_of_worker(send, wanted, bytes_a_message=most)
    assert len(sent) == messages
    found = values_of_worker(receive, values(2), bytes_a_message=most)
    assert sorted(found) == sorted(wanted)
    for name, value in wanted.items():
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
        np.testing.assert_array_equal(found[name].numpy(), value.numpy())
