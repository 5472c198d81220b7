"""Keras's own unit tests, with our bridge to Keras and without it."""
