"""Refuses collectives inside XLA, which cannot compile them."""

from __future__ import annotations

from tf_strategies._tf import compat

__all__ = ["refuse_xla"]


def refuse_xla(name: str) -> None:
    """Raises NotImplementedError if XLA would compile the collective that is about to be made.

    Without this check, XLA fails when the function runs, because the operation has no XLA kernel.
    """
    if compat.in_xla():
        raise NotImplementedError(
            f"the collective {name!r} is inside tf.function(jit_compile=True), and XLA cannot compile "
            f"communication with other workers; do not use jit_compile around strategy.run, all_reduce and "
            f"optimizers, but only for functions that compute"
        )
