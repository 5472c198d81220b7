"""One worker of benchmarks.compression, as TF_CONFIG says. The first writes when its epochs ended: worker0.json."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import tensorflow as tf

from benchmarks.parameter_server_worker import Clock, build_model, endless_batches

WIDTHS = [3072, 3072, 768]
EPOCHS = 3


def make_strategy(system: str) -> tf.distribute.Strategy:
    if system == "mwms":
        return tf.distribute.MultiWorkerMirroredStrategy()
    import tf_strategies as tfs

    compression = {
        "dense": lambda: None,
        "half": tfs.compression.Half,
        "quantize8": tfs.compression.Quantize8,
        "quantize4": tfs.compression.Quantize4,
        "ternary": tfs.compression.Ternary,
        "sign": tfs.compression.SignSGD,
        "power_sgd": lambda: tfs.compression.PowerSGD(2),
        "random_k": lambda: tfs.compression.RandomK(0.01),
        "top_k": lambda: tfs.compression.TopK(0.01),
        "dgc": lambda: tfs.compression.DeepGradientCompression(0.001),
    }[system]()
    return tfs.CollectiveAllReduceStrategy(compression=compression)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--system", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--results", required=True)
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    strategy = make_strategy(arguments.system)
    with strategy.scope():
        model = build_model(WIDTHS)
    clock = Clock()
    data = strategy.distribute_datasets_from_function(endless_batches)
    model.fit(data, steps_per_epoch=arguments.steps, epochs=EPOCHS, verbose=0, callbacks=[clock])
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    if index == 0:
        Path(arguments.results, "worker0.json").write_text(json.dumps(clock.ends))


if __name__ == "__main__":
    main()
