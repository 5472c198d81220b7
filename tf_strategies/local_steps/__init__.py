"""Lets each worker take several steps by itself, and averages the weights of all workers between them."""

from tf_strategies.local_steps.steps import LocalSteps

__all__ = ["LocalSteps"]
