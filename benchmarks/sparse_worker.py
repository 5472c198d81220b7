"""One worker of benchmarks.sparse: measures the ways of adding up slices in turn; worker 0 writes the results."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from tf_strategies.cluster import Cluster
from tf_strategies.collective.exchange import sparse
from tf_strategies.collective.exchange.sparse_rows import from_dense, to_dense
from tf_strategies.collective.group import form_group
from tf_strategies.options import CommunicationOptions

_BYTES_A_LOOP = 16 << 20

Way = Callable[[tf.IndexedSlices], tf.IndexedSlices]


def exchange(group, dense_from: float) -> Way:
    @tf.autograph.experimental.do_not_convert
    def way(slices: tf.IndexedSlices) -> tf.IndexedSlices:
        sparse.DENSE_FROM = dense_from  # read while tracing
        return sparse.SparseExchange(group, [tf.float32]).add_up([slices])[0]

    return way


def packed(group) -> Way:
    @tf.autograph.experimental.do_not_convert
    def way(slices: tf.IndexedSlices) -> tf.IndexedSlices:
        rows = int(tf.get_static_value(slices.dense_shape)[0])
        return from_dense(*group.all_reduce(list(to_dense(slices, rows)), name="pack"), like=slices)

    return way


def looped(way: Way, rows: int, width: int) -> Callable:
    @tf.function
    def loop(indices: tf.Tensor, values: tf.Tensor, calls: tf.Tensor) -> tf.Tensor:
        touched = tf.constant(0, tf.int32)
        for _ in tf.range(calls):
            again = indices + tf.minimum(touched, 0)  # keeps the work inside the loop
            total = way(tf.IndexedSlices(values, again, tf.constant([rows, width])))
            touched = tf.cast(tf.size(total.indices), tf.int32)
            touched.set_shape([])
        return touched

    return loop


def measure(rows: int, width: int, density: float, repeats: int, group) -> dict:
    """Every worker has round(rows · density) distinct rows of its own choice."""
    generator = np.random.default_rng([rows, width, group.rank])
    mine = generator.permutation(rows)[: max(1, round(rows * density))]
    indices = tf.constant(mine, tf.int32)
    values = tf.constant(generator.standard_normal((len(mine), width)), tf.float32)
    calls = max(3, min(20, _BYTES_A_LOOP // (rows * width * 4)))
    ways = {"rows": exchange(group, float("inf")), "dense": exchange(group, -1.0), "packed": packed(group)}
    loops = {name: looped(way, rows, width) for name, way in ways.items()}
    times: dict = {name: [] for name in loops}
    for repeat in range(repeats + 1):
        for name, loop in loops.items():
            group.all_reduce([tf.zeros([])], name="start together")
            start = time.perf_counter()
            loop(indices, values, tf.constant(calls)).numpy()
            if repeat:
                times[name].append((time.perf_counter() - start) / calls)
    ratio = group.size * len(mine) * (width + 1) / ((rows + 1) * (width + 1))
    return {"rows": rows, "width": width, "density": density, "bytes_ratio": ratio, "times": times}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=json.loads, required=True)
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--transport", required=True)
    arguments = parser.parse_args()

    options = CommunicationOptions(transport=arguments.transport, timeout=120)
    group = form_group(Cluster.from_tf_config(), options)
    results = [measure(*case, arguments.repeats, group) for case in arguments.cases]
    group.all_reduce([tf.zeros([])], name="all measured")
    if group.rank == 0:
        arguments.results.write_text(json.dumps(results))
    group.close()


if __name__ == "__main__":
    main()
