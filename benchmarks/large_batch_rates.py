"""The rates of the recipes of benchmarks.large_batch that have rates of their own."""

from __future__ import annotations

TRIED_RATES = {
    "lars": (0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
    "lamb": (0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
    "tuned_nesterov": (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8),
}
# By task and recipe, then by batch: the best of those that `--tune` tries with seed 0, which does not count in the results.
BEST_RATES: dict[tuple[str, str], dict[int, float]] = {
    ("digits", "lars"): {16: 0.5, 64: 0.5, 256: 2.0, 512: 2.0},
    ("digits", "lamb"): {16: 0.01, 64: 0.01, 256: 0.05, 512: 0.05},
    ("digits", "tuned_nesterov"): {16: 0.1, 64: 0.2, 256: 0.1, 512: 0.1},
    ("fashion", "lars"): {512: 4.0, 2048: 2.0},
    ("fashion", "lamb"): {512: 0.05, 2048: 0.05},
    ("fashion", "tuned_nesterov"): {512: 0.8, 2048: 0.8},
}
