"""Checks of how data are split, counted and put together again, by idea: what the workers of test_data.py run.

The order matters to those that expect lines in the log, for each line is logged once: `splitting` comes first.
"""

MODULES = tuple(f"{__name__}.{name}" for name in ("splitting", "kinds", "own_data", "files", "results"))
