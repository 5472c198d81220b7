"""Benchmarks: each compares in one run, in turn, and prints medians, spread and ratios."""
