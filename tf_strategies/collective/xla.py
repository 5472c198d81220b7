"""XLA compiles no operation that talks to other workers."""

from __future__ import annotations

from tf_strategies._tf import compat

__all__ = ["refuse_xla"]


def refuse_xla(name: str) -> None:
    """Raises NotImplementedError if the collective about to be made would be compiled by XLA.

    Otherwise XLA itself fails, when the function runs, on an operation without a kernel.
    """
    if compat.in_xla():
        raise NotImplementedError(
            f"the collective {name!r} is inside tf.function(jit_compile=True), and XLA cannot compile what talks to other "
            "workers; leave jit_compile out around strategy.run, all_reduce and optimizers, and keep it for what only computes"
        )
