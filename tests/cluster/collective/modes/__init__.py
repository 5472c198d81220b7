"""Checks of layers and modes of training, by idea: what the workers of test_strategy_modes.py run."""

MODULES = tuple(
    f"{__name__}.{name}"
    for name in (
        "normalization",
        "random_layers",
        "mixed_precision",
        "modes_of_fit",
        "single_batches",
        "optimizers",
        "custom_steps",
        "scopes",
        "drift",
    )
)
