"""Holds the version of the package. Nothing else repeats it."""

__version__ = "0.1.0"
