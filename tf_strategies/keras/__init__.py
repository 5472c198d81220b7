"""What Keras needs to know about workers: the only part of the package that touches what Keras keeps to itself.

Keras was written for one process, or for TensorFlow's own strategies. `bridge.install` teaches each Keras that is
loaded (Keras 3, tf_keras, Keras 2.15) four things, for models of a `GroupStrategy` alone.
"""
