"""The operations on a GPU give the bits that they give on the CPU; without one, the library with their code loads."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import numpy as np
import pytest
import tensorflow as tf

from tests.support.processes import ProcessGroup
from tf_strategies.native import gpus, loader
from tf_strategies.native.entries import encode_entries, sum_entries
from tf_strategies.native.quantize import quantize, sum_quantized
from tf_strategies.native.top_k import top_k

HOST, GPU = "/device:CPU:0", "/device:GPU:0"

on_a_gpu = pytest.mark.gpu


def on(device: str, function: Callable[[], object]) -> list[np.ndarray]:
    """The outputs of a function on a device, eager and in a graph, which must agree."""
    with tf.device(device):
        eager = [np.asarray(each) for each in tf.nest.flatten(function())]
        graph = [np.asarray(each) for each in tf.nest.flatten(tf.function(function)())]
    for one, other in zip(eager, graph):
        np.testing.assert_array_equal(one, other)
    return eager


def require_the_same_bits(function: Callable[[], object]) -> None:
    assert gpus.use_gpus()
    for found, expected in zip(on(GPU, function), on(HOST, function)):
        assert found.dtype == expected.dtype and found.shape == expected.shape
        assert found.tobytes() == expected.tobytes()


@on_a_gpu
@pytest.mark.parametrize("dtype", [tf.float32, tf.float16, tf.bfloat16])
@pytest.mark.parametrize(
    ("shape", "k"), [((7,), 2), ((30, 40), 0), ((30, 40), 1200), ((3000, 700), 2100), ((0,), 0)]
)
def test_top_k(dtype: tf.DType, shape: tuple, k: int) -> None:
    generator = np.random.default_rng(4)
    gradient = np.round(generator.standard_normal(shape) * 64).astype("float32") / 64  # with ties
    residual = generator.integers(-2, 3, shape).astype("float32")
    require_the_same_bits(lambda: top_k(tf.cast(gradient, dtype), tf.constant(residual), k))


@on_a_gpu
def test_top_k_leaves_its_inputs_as_they_are() -> None:
    residual = tf.Variable(tf.ones([5000]))
    with tf.device(GPU):
        given = residual.read_value()
        assert top_k(tf.ones([5000]), given, 10).remaining.device.endswith("GPU:0")
        np.testing.assert_array_equal(given, np.ones(5000))


@on_a_gpu
@pytest.mark.parametrize("method", ["stochastic8", "stochastic4", "ternary", "sign"])
@pytest.mark.parametrize("count", [0, 1, 1000, 1_000_003])
def test_quantizers(method: str, count: int) -> None:
    generator = np.random.default_rng(5)
    gradients = [tf.constant(generator.standard_normal(count), tf.float32) for _ in range(3)]

    def messages() -> list[tf.Tensor]:
        return [quantize(each, [7, number], method, bucket=100) for number, each in enumerate(gradients)]

    require_the_same_bits(messages)
    require_the_same_bits(lambda: sum_quantized(tf.concat(messages(), 0), count))


@on_a_gpu
@pytest.mark.parametrize("value_format", ["float32", "float16", "int8"])
def test_sums_of_entries(value_format: str) -> None:
    generator = np.random.default_rng(6)
    count, messages = 200_000, []
    for k in (0, 1, 3000, 200_000):
        indices = np.sort(generator.choice(count, k, replace=False))
        values = generator.standard_normal(k).astype("float32")
        messages.append(encode_entries(indices, values, count, value_format=value_format).message)
    require_the_same_bits(lambda: sum_entries(tf.concat(messages, 0), count))


@on_a_gpu
def test_bad_input_is_refused_as_on_the_cpu() -> None:
    assert gpus.use_gpus()
    with tf.device(GPU):
        with pytest.raises(tf.errors.InvalidArgumentError, match="k must be between 0 and"):
            top_k(tf.ones([10]), tf.zeros([10]), 11)
        with pytest.raises(tf.errors.InvalidArgumentError, match="message 0"):
            sum_quantized(tf.zeros([100], tf.uint8), 10)
        with pytest.raises(tf.errors.InvalidArgumentError, match="bucket must be between 1"):
            quantize(tf.ones([10]), [1, 2], "sign", bucket=0)


def test_what_was_built_without_cuda_uses_no_library() -> None:
    assert gpus.why_not_built("CUDA 13.0") == ""
    assert gpus.why_not_built("none: nvcc is not found").endswith("without it, because nvcc is not found")


REGISTERED = """
from tf_strategies.native import gpus
from tensorflow.python.framework import kernels

def on_gpus(name):
    found = kernels.get_registered_kernels_for_op(f"TfStrategies>{name}").kernel
    return [sorted(each.host_memory_arg) for each in found if each.device_type == "GPU"]

NAMES = ("AllReduce", "TopK", "SumEntries", "Quantize", "SumQuantized")
another = gpus.LIBRARY.with_name("another.so")
assert gpus.load(another) == f"{another} is missing"
assert gpus.load(gpus.LIBRARY) == "", gpus.load(gpus.LIBRARY)
assert "driver" in gpus._why_unusable() or "no GPU" in gpus._why_unusable(), gpus._why_unusable()
assert not any(on_gpus(name) for name in NAMES)
gpus.register_kernels()
gpus.register_kernels()
print([on_gpus(name) for name in NAMES])
assert not gpus.use_gpus()
"""


@pytest.mark.skipif(
    not gpus.LIBRARY.exists(), reason=f"built without CUDA: {loader.build_info().get('cuda')}"
)
def test_the_library_lacks_no_symbol_and_its_kernels_are_registered_once(tmp_path: Path) -> None:
    with ProcessGroup(tmp_path) as group:
        process = group.start_python("loads", "-c", REGISTERED)
        assert process.wait(120) == 0
        expected = [[], ["k"], ["count", "messages"], ["seed"], ["count", "messages"]]
        assert str([[each] for each in expected]) in process.log()
