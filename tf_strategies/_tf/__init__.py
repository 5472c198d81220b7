"""The private side of TensorFlow."""
