"""Trains in a custom loop: `strategy.run`, `strategy.reduce`, and a dataset that is split between the workers.

    tfs-run --workers 2 examples/03_custom_training_loop.py

Fits a linear model to scikit-learn's breast-cancer data. A replica divides its loss by the global batch size,
so the sum of the gradients over all replicas is the gradient of the whole batch. The chief prints a line for
each epoch, and ends with

    train accuracy 0.98 with 2 workers

It takes about 20 seconds. With plain `python` it runs as one worker.
"""

from __future__ import annotations

import argparse

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_breast_cancer

import tf_strategies as tfs

BATCH = 64


def load() -> tuple:
    data = load_breast_cancer()
    x = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    return x.astype("float32"), data.target.astype("float32")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=5)
    arguments = parser.parse_args()
    x, y = load()

    strategy = tfs.CollectiveAllReduceStrategy()
    with strategy.scope():
        weights = tf.Variable(tf.zeros([x.shape[1]]), name="weights")
        bias = tf.Variable(0.0, name="bias")
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=1).batch(BATCH)
    batches = strategy.experimental_distribute_dataset(dataset)

    def replica_step(features: tf.Tensor, labels: tf.Tensor) -> tuple:
        with tf.GradientTape() as tape:
            logits = tf.linalg.matvec(features, weights) + bias
            loss = tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)) / BATCH
        gradients = tape.gradient(loss, [weights, bias])
        gradients = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        for variable, gradient in zip([weights, bias], gradients):
            variable.assign_sub(0.5 * gradient)
        correct = tf.reduce_sum(tf.cast(tf.equal(logits > 0, labels > 0.5), tf.float32))
        return loss, correct

    @tf.function
    def step(batch: tuple) -> tuple:
        losses, correct = strategy.run(replica_step, args=batch)
        return strategy.reduce("SUM", losses, axis=None), strategy.reduce("SUM", correct, axis=None)

    for epoch in range(arguments.epochs):
        results = [step(batch) for batch in batches]
        if strategy.rank == 0:
            print(f"epoch {epoch + 1}: loss {np.mean([float(loss) for loss, _ in results]):.4f}")
    accuracy = sum(float(correct) for _, correct in results) / len(x)
    if strategy.rank == 0:
        print(f"train accuracy {accuracy:.2f} with {strategy.size} workers")


if __name__ == "__main__":
    main()
