"""Tells Keras about workers. Nothing else in the package touches private names of Keras.

Keras was written for one process, or for TensorFlow's own strategies. `bridge.install` teaches each Keras that is
loaded (Keras 3, tf_keras, Keras 2.15) four things, for models of a `GroupStrategy` alone.
"""
