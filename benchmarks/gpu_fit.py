"""Times the steps of `fit` on GPUs. Run it as every worker of a cluster, one GPU each:

    tfs-run --workers 2 -m benchmarks.gpu_fit --compression top_k
    TF_STRATEGIES_CUDA=0 tfs-run --workers 2 -m benchmarks.gpu_fit --compression top_k

The second command does without the code for GPUs: TensorFlow copies gradients to the host, and they are compressed there.
Worker 0 prints CSV: the compression, the weights of the model, and the median, least and largest milliseconds of a step.
"""

from __future__ import annotations

import time

import keras
import numpy as np
import tensorflow as tf
from absl import app, flags

import tf_strategies as tfs

_STEPS = flags.DEFINE_integer("steps", 40, "timed steps")
_UNITS = flags.DEFINE_integer("units", 2800, "units of each of the four hidden layers")
_COMPRESSION = flags.DEFINE_list("compression", ["none", "top_k", "quantize8"], "the compressions to time")
_COMPRESSORS = {
    "none": lambda: None,
    "top_k": lambda: tfs.compression.TopK(0.001),
    "quantize8": tfs.compression.Quantize8,
}


class StepTimes(keras.callbacks.Callback):
    """Keeps the times at which steps end; the loss of each step is read, which waits for the GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        float(logs["loss"])
        self.ends.append(time.perf_counter())


def main(argv: list[str]) -> None:
    del argv
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    generator = np.random.default_rng(1)
    x = generator.standard_normal((64 * (_STEPS.value + 5), 100)).astype("float32")
    y = generator.standard_normal((len(x), 10)).astype("float32")
    for name in _COMPRESSION.value:
        strategy = tfs.CollectiveAllReduceStrategy(compression=_COMPRESSORS[name]())
        with strategy.scope():
            layers = [keras.layers.Dense(_UNITS.value, "relu") for _ in range(4)]
            model = keras.Sequential([keras.layers.Input((100,)), *layers, keras.layers.Dense(10)])
            model.compile(keras.optimizers.SGD(0.001), "mse", jit_compile=False)
        times = StepTimes()
        model.fit(x, y, batch_size=64, shuffle=False, verbose=0, callbacks=[times])
        steps = np.diff(times.ends)[-_STEPS.value :] * 1e3
        if strategy.rank == 0:
            if name == _COMPRESSION.value[0]:
                print("compression,weights,median_ms,min_ms,max_ms", flush=True)
            numbers = f"{np.median(steps):.2f},{steps.min():.2f},{steps.max():.2f}"
            print(f"{name},{model.count_params()},{numbers}", flush=True)
        strategy.close()


if __name__ == "__main__":
    app.run(main)
