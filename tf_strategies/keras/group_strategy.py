"""Defines what the bridge to Keras needs of a strategy whose workers train in step."""

from __future__ import annotations

import contextlib
from typing import Any, ContextManager, List, Optional, Sequence

from tf_strategies.keras.worker_strategy import WorkerStrategy

__all__ = ["GroupStrategy", "group_of"]


class GroupStrategy(WorkerStrategy):
    """The face that a strategy shows to the bridge whose workers take every step together."""

    @property
    def replicas(self) -> int:
        """The number of replicas of all workers. Within a step of `fit`, `num_replicas_in_sync` is 1 instead."""
        return int(self.extended._num_replicas_in_sync)

    @property
    def keeps_gradients(self) -> bool:
        """Whether what is left of gradients when they are compressed is kept for later steps."""
        return self.compresses and bool(self._compression.slots)

    def state_of_gradients(self, variables: Sequence[Any]) -> Sequence[Any]:
        """Returns the variables, beside the optimizer's, that decide how gradients of these go on."""
        del variables
        return ()

    def share_of_batch(self) -> Optional[Any]:
        """Returns, in a replica function, this replica's rows over the mean of all replicas' rows, [] float64; None for 1."""
        return None

    def reading_together(self, variables: Sequence[Any]) -> ContextManager[None]:
        """Opens a context in which reads of these variables over all workers have been made in one message. Between replicas."""
        del variables
        return contextlib.nullcontext()

    def agreed(self, results: Any) -> Any:
        """Tells that these tensors are equal on all workers already; returns them."""
        return results

    def exchange(self, text: str, what: str) -> List[str]:
        """Returns the text of every worker, by rank; `what` it is about goes into messages. A collective."""
        del what
        return [text]

    def of_first_worker(self, value: Any, what: str) -> Any:
        """Returns the tensor of worker 0; `what` it is goes into messages. A collective."""
        del what
        return value

    def stops_training(self, wanted: bool) -> bool:
        """Returns whether all workers stop `fit` here, after a step or an epoch.

        Args:
            wanted: whether this worker wants to. They stop at the first place that none of them has passed.
        """
        return wanted

    def require_agreement(self, what: str, text: str) -> None:
        """Raises ValueError on all workers unless all have the same text about `what`; a collective."""
        del what, text


def group_of(model: Any) -> Optional[GroupStrategy]:
    """Returns the strategy a model was made in, if it spans several replicas; else None."""
    strategy = getattr(model, "distribute_strategy", None)
    return strategy if isinstance(strategy, GroupStrategy) and strategy.replicas > 1 else None
