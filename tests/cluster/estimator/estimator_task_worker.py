"""A chief, worker or evaluator of test_estimator_collective.py: trains with train_and_evaluate until it ends or fails.

python -m tests.cluster.estimator.estimator_task_worker MODEL_DIR MAX_STEPS

Prints "step N" after each, and how a training ended that failed: "ended at <monotonic seconds> with <class>: <message>", exit
status 3. An evaluator prints what it evaluated.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Optional

import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.estimator import estimator_models as models
from tests.support.endings import ended_with


def endless(input_context: Optional[tf.distribute.InputContext] = None) -> tf.data.Dataset:
    return models.sharded_input(input_context).repeat()


def receiver() -> tf.estimator.export.TensorServingInputReceiver:
    x = tf.compat.v1.placeholder(tf.float32, [None, models.FEATURES], name="x")
    return tf.estimator.export.TensorServingInputReceiver(x, x)


class Evaluated(tf.estimator.SessionRunHook):
    def end(self, session: tf.compat.v1.Session) -> None:
        print("evaluated", int(session.run(tf.compat.v1.train.get_global_step())), flush=True)


def train(folder: Path, max_steps: int) -> None:
    strategy = tfs.CollectiveAllReduceStrategy(tfs.CommunicationOptions(timeout=60))
    print("replicas", strategy.num_replicas_in_sync, flush=True)
    config = tf.estimator.RunConfig(
        str(folder),
        train_distribute=strategy,
        eval_distribute=strategy,
        save_checkpoints_steps=20,
        save_summary_steps=5,
        keep_checkpoint_max=100,
    )
    estimator = tf.estimator.Estimator(models.model_fn, config=config, params={})
    hook = models.Losses(lambda step: print("step", step, flush=True))
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(endless, max_steps=max_steps, hooks=[hook]),
        tf.estimator.EvalSpec(
            models.sharded_input,
            steps=None,
            hooks=[Evaluated()],
            exporters=[
                tf.estimator.BestExporter("best", receiver, exports_to_keep=1),
                tf.estimator.FinalExporter("final", receiver),
            ],
            start_delay_secs=0,
            throttle_secs=0,
        ),
    )


def main() -> int:
    try:
        train(Path(sys.argv[1]), int(sys.argv[2]))
    except Exception as error:
        return ended_with(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
