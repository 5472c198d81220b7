"""Splits the data between workers."""
