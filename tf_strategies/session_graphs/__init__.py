"""Supports graphs that a `tf.compat.v1.Session` runs, such as those of Estimator. All strategies use it."""
