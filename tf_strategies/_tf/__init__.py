"""Wraps the private parts of TensorFlow that the package needs."""
