"""Adapts Keras to several workers. No other folder of the package uses private names of Keras.

Keras was written for one process, or for TensorFlow's own strategies. `bridge.install` adapts each Keras that
is loaded (Keras 3, tf_keras, Keras 2.15). Only models of our strategies are affected.
"""
