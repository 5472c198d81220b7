"""Checks of what `CollectiveAllReduceStrategy` promises, by idea: what the workers of test_strategy_behaviour.py run.

`differences` comes last, for its errors may end the group.
"""

MODULES = tuple(
    f"{__name__}.{name}"
    for name in ("initial_values", "reductions", "calls", "fits", "stops", "life", "differences")
)
