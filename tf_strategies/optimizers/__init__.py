"""Optimizers for large batches. Each is an optimizer of the Keras that `tf.keras` stands for.

Example:
    model.compile(tfs.optimizers.LARS(8.0, weight_decay=5e-4), "sparse_categorical_crossentropy")
"""

from tf_strategies.optimizers.lamb import LAMB
from tf_strategies.optimizers.lars import LARS
from tf_strategies.optimizers.sgd import SGD

__all__ = ["LAMB", "LARS", "SGD"]
