"""Values of variables that one worker takes over from another, several in a message."""

from __future__ import annotations

from typing import Dict, List

import numpy as np
import pytest
import tensorflow as tf

from tf_strategies.elastic import taking_over

pytestmark = pytest.mark.any_line


class Sender:
    """Notes the messages."""

    def __init__(self) -> None:
        self.messages: Dict[str, tf.Tensor] = {}

    def of_worker(self, rank: int, value: tf.Tensor, what: str) -> tf.Tensor:
        self.messages[what] = value
        return value


class Receiver:
    """Gets the messages of a sender."""

    def __init__(self, sender: Sender) -> None:
        self._messages = sender.messages

    def of_worker(self, rank: int, value: tf.Tensor, what: str) -> tf.Tensor:
        message = self._messages[what]
        assert (message.shape, message.dtype) == (value.shape, value.dtype)
        return message


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


@pytest.mark.parametrize(("most", "messages"), [(1 << 20, 4), (1000, 6), (1, 7)])
def test_all_values_are_those_of_the_other_worker(
    most: int, messages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking_over, "_BYTES_A_MESSAGE", most)
    sender = Sender()
    taking_over.of_worker(sender, 0, values(1))
    assert len(sender.messages) == messages
    found = taking_over.of_worker(Receiver(sender), 0, values(2))
    wanted = values(1)
    names: List[str] = sorted(wanted)
    assert sorted(found) == names
    for name in names:
        assert (found[name].dtype, found[name].shape) == (wanted[name].dtype, wanted[name].shape)
        np.testing.assert_array_equal(found[name].numpy(), wanted[name].numpy())
