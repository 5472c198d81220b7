"""What a failing collective raises, under this package's name for it."""

from __future__ import annotations

import tensorflow as tf

# A lost worker ends the collectives of all survivors with UNAVAILABLE, which TensorFlow raises, inside `fit` as elsewhere:
# the same class, so that either name catches it. The message names the worker, its address and what is known.
WorkerLostError = tf.errors.UnavailableError
