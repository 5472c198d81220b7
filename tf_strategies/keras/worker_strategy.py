"""Defines what the bridge to Keras needs of a strategy whose model is trained by several workers."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Optional, Sequence

from tf_strategies.keras.shared_progress import SharedProgress

__all__ = ["WorkerStrategy", "workers_of"]


class WorkerStrategy:
    """The face that a strategy shows to the bridge.

    Attributes:
        rank: this worker's number; 0 is the chief, who alone writes files and shows progress.
        size: the number of workers.
        deals_batches: whether batches of a dataset that is distributed now are dealt out to workers that keep their own pace.
        sums_when_applied: whether gradients of several workers are added up by what applies them, after Keras has seen them.
    """

    rank = 0
    size = 1
    deals_batches = False
    sums_when_applied = False
    _compression: Optional[Any] = None

    @property
    def compression(self) -> Optional[Any]:
        """What makes gradients smaller before they travel, one of `tfs.compression`; None for nothing."""
        return self._compression

    @property
    def compresses(self) -> bool:
        """Whether gradients are made smaller before they travel."""
        return self._compression is not None

    @property
    def momentum_of_compression(self) -> float:
        """The momentum that is applied to them then, in place of the optimizer's; 0 for none."""
        return self._compression.replaces_momentum if self.compresses else 0.0

    def name_of(self, rank: int) -> str:
        """Returns how messages name a worker: its task and, of one that is reached over the network, its address."""
        return f"worker {rank}"

    def name_variables(self, variables: Sequence[Any]) -> None:
        """Tells what variables of Keras are called."""
        del variables

    def one_op_seed(self) -> ContextManager[int]:
        """Opens a context in which random operations of datasets have equal seeds on all workers. A collective.

        It gives a seed for other uses.
        """
        return contextlib.nullcontext(0)

    def training(self) -> ContextManager[None]:
        """Opens a context for the time that `fit` runs."""
        return contextlib.nullcontext()

    def own_callbacks(self) -> Sequence[Any]:
        """Callbacks of the strategy itself, which come after those that `fit` was given."""
        return ()

    def counted_by_all(self, variables: Sequence[Any]) -> ContextManager[None]:
        """Opens a context in which these variables of metrics hold the counts of all workers.

        It is open while the logs of an epoch are computed.
        """
        del variables
        return contextlib.nullcontext()

    def progress_of_fit(self) -> Optional[SharedProgress]:
        """Returns the place where the workers of a fit leave their progress.

        None if variables end with the workers.
        """
        return None

    def alone(self) -> ContextManager[None]:
        """Opens a context in which this worker makes variables without the others."""
        return contextlib.nullcontext()

    def joint_steps(self, model: Any, data: Any, *, sums_logs: bool) -> ContextManager[None]:
        """Opens a context in which replica functions are steps of `fit` or `evaluate`.

        Args:
            model: the model whose steps run.
            data: the iterator that the steps take batches from.
            sums_logs: Keras adds up the scalars that the replicas return; else it takes their mean.
        """
        del model, data, sums_logs
        return contextlib.nullcontext()

    def call(self, function: Callable, *args: Any) -> Any:
        """Calls what runs the steps of `fit`, `evaluate` and `predict`."""
        return function(*args)

    def whole_data(self) -> ContextManager[None]:
        """Opens a context in which workers that keep their own pace see all data.

        It is open while `evaluate` and `predict` run.
        """
        return contextlib.nullcontext()


def workers_of(model: Any) -> Optional[WorkerStrategy]:
    """Returns the strategy a model was made in, if several workers train it."""
    strategy = getattr(model, "distribute_strategy", None)
    return strategy if isinstance(strategy, WorkerStrategy) and strategy.size > 1 else None
