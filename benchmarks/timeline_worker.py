"""One worker of benchmarks.timeline, as TF_CONFIG says. The first profiles some steps and writes their spans: steps.json."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import tempfile
from pathlib import Path

import tensorflow as tf

import tf_strategies as tfs
from benchmarks.fit_models import MODELS, compile_model, endless_batches, make_optimizer

_WARM_UP = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--image-size", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--bytes-per-pack", type=int, required=True)
    parser.add_argument("--results", type=Path, required=True)
    arguments = parser.parse_args()
    rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    options = tfs.CommunicationOptions(bytes_per_pack=arguments.bytes_per_pack)
    strategy = tfs.CollectiveAllReduceStrategy(options)
    with strategy.scope():
        model = MODELS[arguments.model](arguments.image_size)
        compile_model(model, make_optimizer(arguments.model))
    batches = endless_batches(arguments.model, arguments.batch, arguments.image_size, seed=rank)
    data = strategy.distribute_datasets_from_function(lambda _: batches)
    model.fit(data, steps_per_epoch=_WARM_UP, verbose=0)
    if rank > 0:
        model.fit(data, steps_per_epoch=arguments.steps, verbose=0)
        return
    from benchmarks.profiled_steps import read_steps

    with tempfile.TemporaryDirectory() as folder:
        recorded = tf.profiler.experimental.ProfilerOptions(host_tracer_level=3, python_tracer_level=0)
        with tf.profiler.experimental.Profile(folder, recorded):
            model.fit(data, steps_per_epoch=arguments.steps, verbose=0)
        steps = read_steps(Path(folder))
    written = [[dataclasses.astuple(span) for span in step] for step in steps]
    (arguments.results / "steps.json").write_text(json.dumps(written))


if __name__ == "__main__":
    main()
