"""One worker of test_loops.py: a loop of its own with `ElasticState`, and faults as in fit_worker.py, at batches.

With "wrong": "function", a replica runs a tf.function that was made before the loop; with "dataset", the loop reads such a one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.elastic.fit_worker import Batches, Fault
from tests.cluster.elastic.task import BATCH, BATCHES, EPOCHS, make_model, make_rows, squared_error
from tests.cluster.elastic.worker import main, tell_result, wait_for_others


def train(plan: Dict[str, Any], again: bool) -> None:
    strategy = tfs.CollectiveAllReduceStrategy(tfs.CommunicationOptions(timeout=60), elastic=tfs.Elastic())
    workers = strategy.size
    with strategy.scope():
        model = make_model(wider=again and plan["wrong"] == "model")
        total = tf.Variable(
            0.0,
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
    kind, moment = ["", 0] if again else plan["faults"].get(str(strategy.rank), ["", 0])
    fault = Fault(kind, moment, Path(plan["folder"], f"{kind}-{strategy.rank}"))
    batches = Batches()
    state = tfs.ElasticState(strategy, [model, total], epoch=0, batch=0, losses=[])

    def replica_step(x: tf.Tensor, y: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = squared_error(model(x), y)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        total.assign_add(loss)

    other = int(again and plan["wrong"] == "batches")
    rows = tf.data.Dataset.from_tensor_slices(make_rows()).batch(BATCH + other)
    before = strategy.experimental_distribute_dataset(rows) if plan["wrong"] == "dataset" else None

    def make_step() -> Any:
        return tf.function(lambda batch: strategy.run(replica_function, args=batch))

    if plan["wrong"] == "function":
        specs = [tf.TensorSpec([None, *each.shape[1:]]) for each in make_rows()]
        inner = tf.function(replica_step, input_signature=specs)
        replica_function: Any = lambda *batch: inner(*batch)  # noqa: E731
    else:
        replica_function = replica_step

    def meet() -> None:
        if plan["meet"] and state.epoch * BATCHES + state.batch + 1 >= plan["meet"]:
            wait_for_others(strategy, workers, plan)

    def loop() -> None:
        step = make_step()
        while state.epoch < EPOCHS:
            for batch in before or strategy.experimental_distribute_dataset(rows.skip(state.batch)):
                meet()
                fault.on_train_batch_begin(state.batch)
                step(batch)
                batches.on_train_batch_end(state.batch)
                state.batch += 1
                state.commit()
            state.losses.append(float(total.read_value()))
            total.assign(0.0)
            state.epoch, state.batch = state.epoch + 1, 0

    state.run(loop)
    tell_result(strategy, model, {"loss": state.losses})


if __name__ == "__main__":
    main(train)
