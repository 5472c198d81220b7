"""Learning rates for large batches. Each is a schedule of the Keras that `tf.keras` stands for.

Example:
    rate = tfs.schedules.LinearScalingWarmup(0.1, 256, global_batch=8192, warmup_epochs=5, steps_per_epoch=156)
"""

from tf_strategies.schedules.decays import PolynomialDecay, StepDecay
from tf_strategies.schedules.warmup import LinearScalingWarmup

__all__ = ["LinearScalingWarmup", "PolynomialDecay", "StepDecay"]
