"""Support for graphs that a `tf.compat.v1.Session` runs, such as those that Estimator builds. Both kinds of strategies use it."""
